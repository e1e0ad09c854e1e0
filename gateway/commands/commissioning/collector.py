"""Collects the readings of one phase of a check, while the installer handles a sensor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from gateway.commands.commissioning.checks import Window
from gateway.commands.commissioning.steps import Phase
from gateway.commands.live_readings import Source
from gateway.commands.reading_rows import Row

_POLL_S: Final = 0.3


class Collector:
    """Keeps the last readings, so that what changes rarely need not be waited for."""

    def __init__(
        self,
        source: Source,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source = source
        self._clock = clock
        self._sleep = sleep
        self._last: dict[str, Row] = {}

    def collect(
        self,
        phase: Phase,
        before: Sequence[Window],
        show: Callable[[Row], None],
        interrupted: Callable[[], bool] = lambda: False,
    ) -> Window:
        """The phase's readings until they are enough, time is over or the person ends it. Raises NoStatus."""
        window: dict[str, list[Row]] = {}

        def take(rows: Sequence[Row]) -> None:
            for row in rows:
                window.setdefault(row.channel, []).append(row)
                if row.channel in phase.shows:
                    show(row)

        self._poll()
        if not phase.fresh:
            take([row for row in self._last.values() if row.channel in phase.shows])
        end_s = self._clock() + phase.limit_s
        while not phase.enough((*before, window)) and self._clock() < end_s and not interrupted():
            self._sleep(_POLL_S)
            take(self._poll())
        return window

    def _poll(self) -> list[Row]:
        rows = self._source.poll()
        self._last.update((row.channel, row) for row in rows)
        return rows
