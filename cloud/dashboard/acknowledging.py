"""How alerts are acknowledged: ticked in a list, then asked for how long and with which note."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Sequence

from nicegui import ui

from cloud.dashboard.frame import is_open
from cloud.errors import CloudError
from cloud.lake.acknowledgements import Acknowledgement

Acknowledge = Callable[..., list[Acknowledgement]]
"""Acknowledges alerts as one user, by ids, ``note`` and ``lasts``. Raises CloudError."""


class AcknowledgeDialog:
    """Built once on a page, with the line that says what came of it: what shows alerts is built anew."""

    def __init__(self, acknowledge: Acknowledge) -> None:
        self._acknowledge = acknowledge
        self._outcome = ui.label().classes("soft").props('role="status"')
        with ui.dialog() as self._dialog, ui.card():
            self._about = ui.label()
            self._lasts = ui.input("For", placeholder="2h, 1d; empty: until it is over")
            self._note = ui.input("Note", placeholder="what is done about it")
            with ui.row():
                ui.button("Cancel", on_click=lambda: self._dialog.submit(False)).props("flat no-caps")
                ui.button("Acknowledge", on_click=lambda: self._dialog.submit(True)).props("no-caps")

    async def ask(self, alerts: Sequence[str], about: str) -> None:
        """Acknowledges alerts, if it is wanted; the page follows once the table's new version is seen."""
        if not alerts:
            self._outcome.set_text("Tick the alerts first.")
            return
        self._about.set_text(about)
        self._lasts.set_value("")
        self._note.set_value("")
        if not await self._dialog:
            return
        given = {"note": str(self._note.value or ""), "lasts": str(self._lasts.value or "")}
        try:
            done = await to_thread(self._acknowledge, alerts, **given)
            text = f"Acknowledged: {len(done)} alert{'s' * (len(done) != 1)}."
        except CloudError as error:
            text = str(error)
        if is_open(self._outcome):
            self._outcome.set_text(text)


class AlertChoice:
    """The alerts that are ticked in the list; they stay so when it is built anew."""

    def __init__(self, acknowledge: Acknowledge) -> None:
        self._dialog, self._ticked = AcknowledgeDialog(acknowledge), set[str]()

    def add(self, head: ui.element, made: ui.table, ids: list[str | None]) -> None:
        """Has the list's rows, of alerts with these ``ids``, ticked and acknowledged."""
        self._ticked &= {each for each in ids if each is not None}

        def ticked() -> None:
            self._ticked = {name for row in made.selected if (name := ids[row["n"]]) is not None}

        made.set_selection("multiple")
        made.on_select(ticked)
        made.selected = [row for row in made.rows if ids[row["n"]] in self._ticked]
        with head:
            ui.element("span").classes("gap")
            ui.button("Acknowledge …", on_click=self._ask).props("dense no-caps flat")

    async def _ask(self) -> None:
        count = len(self._ticked)
        await self._dialog.ask(sorted(self._ticked), f"{count} alert{'s' * (count != 1)}")
