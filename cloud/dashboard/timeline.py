"""What happened at a mast, beside its charts: marks, the same as a list, and where it was moved to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nicegui import ui

from cloud.config import DashboardConfig
from cloud.dashboard.frame import MapCard, card, missing, moment
from cloud.lake.events import MOST, Happened, Happenings, Place, Track
from cloud.remedies import remedy_of

_LONGEST_MARK: Final = 90


def event_marks(events: Sequence[Happened]) -> list[dict[str, Any]]:
    """Returns events as points of the chart's strip; those that ask for something are triangles."""
    marks = []
    for each in events:
        words = f"{moment(each.at_ms)} {each.kind}{': ' * bool(each.text)}{each.text}"
        short = words if len(words) <= _LONGEST_MARK else f"{words[: _LONGEST_MARK - 1]}…"
        mark: dict[str, Any] = {"name": short, "value": [each.at_ms, 0]}
        marks.append(mark | ({"symbol": "triangle", "symbolSize": 11} if remedy_of(each.kind) else {}))
    return marks


class EventsCard:
    """The list of what happened in the time that the charts show, and after it where that is the newest."""

    def __init__(self) -> None:
        self._shown: Happenings | None = None
        with card("Events", wide=True):
            self._body = ui.element("div")

    def show(self, events: Happenings) -> None:
        """Shows the newest first; the same ones stay as they are, and where they were scrolled to."""
        if events == self._shown:
            return
        self._shown = events
        self._body.clear()
        with self._body:
            missing(list(events.missing))
            if not events.found:
                ui.label("Nothing happened in this time, as far as the gateway has reported.").classes("soft")
                return
            # A region that is scrolled is one that keys reach.
            with (
                ui.element("div")
                .props('role="list" tabindex="0" aria-label="Events"')
                .classes("causes events")
            ):
                for each in events.found:
                    self._line(each)
            if not events.is_whole:
                ui.label(f"The newest {MOST}; fieldgate query has all: tables events and runs.").classes(
                    "soft"
                )

    @staticmethod
    def _line(event: Happened) -> None:
        remedy = remedy_of(event.kind)
        with ui.element("div").classes("cause").props('role="listitem"'):
            ui.label(moment(event.at_ms)).classes("soft")
            ui.label(f"▲ {event.kind}" if remedy else event.kind)
            with ui.element("div"):
                ui.label(event.text)
                if remedy:
                    ui.label(remedy).classes("soft")


def track_card(track: Track, config: DashboardConfig) -> None:
    """Builds the map of a mast that was moved, with the same in words below it."""
    moved = MapCard("Where the mast was", config, wide=True)
    planned = [{"at": [each.latitude, each.longitude], "words": each.what} for each in track.planned]
    line = sorted((*track.announced, *track.fixes), key=lambda each: each.at_ms)
    dots = [
        {"at": [each.latitude, each.longitude], "words": f"{moment(each.at_ms)} {each.what}"} for each in line
    ]
    moved.show("drawTrack", {"planned": planned, "track": dots})
    with moved.below.props('role="list"'):
        for each in track.planned:
            _place(each, f"{each.what} from {moment(each.at_ms)}")
        for each in track.announced:
            _place(each, f"{moment(each.at_ms)} {each.what}")
        for words, fix in zip(
            ("first fix", "last fix"), (*track.fixes[:1], *track.fixes[1:][-1:]), strict=False
        ):
            _place(fix, f"{moment(fix.at_ms)} {words} shown, by GPS")


def _place(place: Place, words: str) -> None:
    position = f"{place.latitude:.5f}, {place.longitude:.5f}"
    with ui.element("div").classes("line").props('role="listitem"'):
        ui.label(words)
        # A phone opens its map with this.
        ui.link(position, f"geo:{place.latitude:.6f},{place.longitude:.6f}")
