"""The card with a mast's marks in the cleaning log: a period is marked with a reason, a mark taken back."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from nicegui import ui

from cloud.dashboard.frame import card, is_open, moment
from cloud.errors import CloudError
from cloud.lake.cleaning import Mark, add, mark_of, withdraw
from cloud.lake.mast import Channel
from cloud.lake.reader import LakeReader
from cloud.lake.tables import IN_FORCE, WHOLE_MAST

_LISTED: Final = 50
_SPEC: Final = "%Y-%m-%dT%H:%M"
_ALL: Final = "all"


class MarkBook:
    """The cleaning log as ``author`` may see it and add to it; None may only see it. Raises CloudError."""

    def __init__(self, reader: LakeReader, author: str | None) -> None:
        self._reader, self.author = reader, author

    def of(self, gateway: str) -> list[dict[str, Any]]:
        """A mast's marks in force, the newest first."""
        if self._reader.version("cleaning") < 0:
            return []
        return self._reader.read(
            "cleaning",
            f'SELECT id, channel, epoch_ms("begin") AS begin_at, epoch_ms("end") AS end_at, reason, author '  # noqa: S608
            f'FROM ({IN_FORCE}) WHERE gateway = ? ORDER BY "begin" DESC, channel',
            [gateway],
        ).dicts()

    def mark(self, gateway: str, texts: Mapping[str, str]) -> list[Mark]:
        """Marks a period: ``sensor``, ``start``, ``stop`` and ``reason``; none where it is marked already."""
        author = self._allowed(gateway)
        return add(self._reader.lakes, [mark_of(texts, gateway, author, datetime.now(UTC), "The mark")])

    def withdraw(self, gateway: str, mark_id: str, reason: str) -> Mark:
        """Takes one of the mast's marks back, which is noted too."""
        author = self._allowed(gateway)
        if not reason.strip():
            raise CloudError("Why is it taken back? A reason is noted with it.")
        if mark_id not in {each["id"] for each in self.of(gateway)}:
            raise CloudError(f"{gateway} has no such mark any more.")
        return withdraw(self._reader.lakes, mark_id, reason.strip(), author, datetime.now(UTC))

    def _allowed(self, gateway: str) -> str:
        if self.author is None or not self._reader.shows(gateway):
            raise CloudError(f"You may not mark {gateway}.")
        return self.author


def of_channel(marks: list[dict[str, Any]], channel: str) -> list[dict[str, Any]]:
    """Those that are about a channel: its own, its sensor's, the whole mast's."""
    return [
        mark
        for mark in marks
        if mark["channel"] in (WHOLE_MAST, channel) or channel.startswith(f"{mark['channel']}.")
    ]


class MarksCard:
    """Builds the card; ``seen`` is what the chart shows now, from and to in milliseconds since 1970."""

    def __init__(
        self, gateway: str, channel: Channel, book: MarkBook, seen: Callable[[], tuple[int, int]]
    ) -> None:
        self._gateway, self._channel, self._book, self._seen = gateway, channel, book, seen
        with card("Cleaning log", wide=True) as head:
            self._outcome = ui.label().classes("soft").props('role="status"')
            self._listed = ui.element("div")
        if book.author is not None:
            with head:
                ui.element("span").classes("gap")
                ui.button("Mark a period …", on_click=self._ask).props("dense no-caps flat")

    def show(self, marks: list[dict[str, Any]]) -> None:
        """The marks in force."""
        self._listed.clear()
        with self._listed:
            if not marks:
                with_button = "the button, or " if self._book.author is not None else ""
                ui.label(f"No marks. A period is marked by {with_button}fieldgate cleaning add.").classes(
                    "soft"
                )
            for mark in marks[:_LISTED]:
                self._line(mark)
            if len(marks) > _LISTED:
                ui.label(f"and {len(marks) - _LISTED} older: fieldgate cleaning list").classes("soft")

    def _line(self, mark: dict[str, Any]) -> None:
        end = "no end" if mark["end_at"] is None else moment(mark["end_at"])
        channel = "the whole mast" if mark["channel"] == WHOLE_MAST else mark["channel"]
        with ui.element("div").classes("line"):
            ui.label(channel)
            ui.label(f"{moment(mark['begin_at'])} to {end}").classes("soft")
            ui.label(f"{mark['reason']} · {mark['author']}")
            if self._book.author is not None:
                ui.button("Withdraw …", on_click=lambda: self._take_back(mark["id"])).props(
                    "dense no-caps flat"
                )

    async def _ask(self) -> None:
        sensor = self._channel.name.rpartition(".")[0]
        begin, end = self._seen()
        with ui.dialog() as dialog, ui.card():
            ui.label(f"{self._gateway}: readings stay; views without marks leave this period out.")
            choice = ui.select([self._channel.name, sensor, _ALL], value=self._channel.name, label="What")
            start = ui.input("From, UTC", value=moment(begin, _SPEC))
            stop = ui.input("To, UTC", value=moment(end, _SPEC))
            reason = ui.input("Reason")
            with ui.row():
                ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat no-caps")
                ui.button("Mark", on_click=lambda: dialog.submit(True)).props("no-caps")
        if await dialog:
            texts = {"sensor": choice.value, "start": start.value, "stop": stop.value, "reason": reason.value}
            given = {name: str(value or "") for name, value in texts.items()}
            await self._do(lambda: "Marked." if self._book.mark(self._gateway, given) else "Marked already.")

    async def _take_back(self, mark_id: str) -> None:
        with ui.dialog() as dialog, ui.card():
            ui.label("The mark stays in the log, as taken back.")
            reason = ui.input("Reason")
            with ui.row():
                ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat no-caps")
                ui.button("Withdraw", on_click=lambda: dialog.submit(True)).props("no-caps")
        if await dialog:

            def act() -> str:
                self._book.withdraw(self._gateway, mark_id, str(reason.value or ""))
                return "Taken back."

            await self._do(act)

    async def _do(self, act: Callable[[], str]) -> None:
        """Acts on another thread; the list follows once the table's new version is seen."""
        try:
            text = await to_thread(act)
        except CloudError as error:
            text = str(error)
        if is_open(self._listed):
            self._outcome.set_text(text)
