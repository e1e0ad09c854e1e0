"""The dialog in which alerts are acknowledged: for how long, and with which note."""

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
