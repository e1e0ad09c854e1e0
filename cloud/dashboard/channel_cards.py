"""A card for each channel: its last value, unit, quality in words and colour, and age."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from nicegui import ui

from cloud.dashboard.frame import ago, number
from cloud.kafka.latest import Shown, sparkline
from cloud.lake.mast import MOST_CHANNELS, Channel
from cloud.wire.reading_records import QUALITIES

_BARS: Final = 12
"""The number that fits beside a value."""


_NEVER: Final = "imported, or not seen yet by fieldgate jobs run presence"


def _shown(value: float | None, unit: str) -> str:
    return "no value" if value is None else number(value, 4, unit)


class ChannelCards:
    """Built once, and then shown as often as something is new; ``address`` is that of a channel's page."""

    def __init__(
        self, channels: tuple[Channel, ...], chosen: Channel | None, address: Callable[[str], str]
    ) -> None:
        self._problem = ui.label().classes("missing").props('role="status"')
        self._problem.set_visibility(False)
        self._units = {each.name: each.unit for each in channels}
        self._left_out = ui.label().classes("missing")
        self._cards: dict[str, tuple[ui.label, ui.label, ui.label]] = {}
        self._place = ui.element("div").classes("channels")
        for each in channels:
            with self._place, ui.link(target=address(each.name)) as link:
                link.classes("channel here" if each == chosen else "channel")
                self._add(each.name)

    def _add(self, name: str) -> None:
        with ui.element("div").classes("line now"):
            value = ui.label().classes("value")
            bars = ui.label().classes("bars").props('aria-hidden="true"')
        ui.label(name).classes("name")
        self._cards[name] = (value, bars, ui.label().classes("state"))

    def show(
        self,
        known: Mapping[str, Mapping[str, Any]],
        live: Mapping[str, Shown],
        problem: str | None,
        now_s: float,
    ) -> None:
        """``known`` are rows of ``presence`` by channel; a live reading that is as new comes first.

        A channel that has no statistics yet is shown where it is live.
        """
        self._problem.set_text(f"Live values stand still: {problem}" if problem else "")
        self._problem.set_visibility(problem is not None)
        new = sorted(live.keys() - self._cards.keys())
        room = max(0, MOST_CHANNELS - len(self._cards))
        left_out = f"{len(new) - room:,} live channels have no card: fieldgate watch shows them."
        self._left_out.set_text(left_out if len(new) > room else "")
        self._left_out.set_visibility(len(new) > room)
        for name in new[:room]:
            with self._place, ui.element("div").classes("channel"):
                self._add(name)
        for name, (value, bars, state) in self._cards.items():
            row, now = known.get(name, {}), live.get(name)
            if now is not None and now.reading.time_us // 1000 >= (row.get("last_at") or 0):
                reading = now.reading
                word = QUALITIES.get(reading.quality, "not evaluated")
                reasons = f" ({', '.join(reading.reasons)})" if reading.reasons else ""
                value.set_text(_shown(reading.value, reading.unit))
                bars.set_text(sparkline(now.values[-_BARS:]))
                state.set_text(f"{word}{reasons}, {ago(now_s - reading.time_us / 1e6)}")
            else:
                word = row.get("state", "unknown")
                value.set_text(_shown(row.get("last_value"), self._units.get(name, "")))
                bars.set_text("")
                state.set_text(word if row else _NEVER)
            state.classes(replace=f"state {word.replace(' ', '_')}")
