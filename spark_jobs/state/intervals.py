"""Which intervals are still open, and when they close.

An interval is over with a newer reading of its channel (one in a later interval), by silence (its end and
the last reading in it are both 60 s ago), or with ``--once``; then it is closed, and stays so. Times are
microseconds since the epoch. Owned by whoever holds the statistics job's lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from spark_jobs.intervals import SECOND_US, Channel, Interval

SILENCE_S: Final = 60.0


@dataclass
class OpenIntervals:
    """Open intervals per channel with the monotonic second they were last touched, and the newest.

    Those of all channels are over at the same time. So that new readings don't wait meanwhile, what has a row
    in the table, as an open one, is closed beside them: it is over until it is taken to be closed, and then
    being closed. A restart finds such rows open.
    """

    interval_s: int
    _open: dict[Channel, dict[int, float]] = field(default_factory=dict)
    _newest_us: dict[Channel, int] = field(default_factory=dict)
    _over: set[Interval] = field(default_factory=set)
    _closing: set[Interval] = field(default_factory=set)

    def restore(self, channel: Channel, start_us: int, *, is_open: bool, now_s: float) -> None:
        """Takes up a row of the table at start; silence is counted from now."""
        self._newest_us[channel] = max(start_us, self._newest_us.get(channel, start_us))
        if is_open:
            self._open.setdefault(channel, {})[start_us] = now_s

    def touch(self, intervals: Iterable[Interval], now_s: float) -> dict[Interval, bool]:
        """Takes up new readings' intervals: those to be computed, and whether each is to be closed with that.

        It is where a newer reading of its channel has ended it, and no row of it is there as an open one.
        """
        due = dict.fromkeys(intervals, False)
        there = {interval for interval in due if self._is_open(interval)}
        for channel, start_us in due:
            self._newest_us[channel] = max(start_us, self._newest_us.get(channel, start_us))
            self._open.setdefault(channel, {})[start_us] = now_s
        self._over -= due.keys()
        self._closing -= due.keys()
        for channel in {channel for channel, _ in due}:
            for start_us in [start for start in self._open[channel] if start < self._newest_us[channel]]:
                del self._open[channel][start_us]
                interval = (channel, start_us)
                if interval in due and interval not in there:
                    due[interval] = True
                else:
                    self._over.add(interval)
        return due

    def over(self) -> list[Interval]:
        """What is over by a newer reading; being closed from here."""
        taken, self._over = self._over, set()
        self._closing |= taken
        return list(taken)

    def silent(self, wall_us: int, now_s: float) -> list[Interval]:
        """Open intervals whose end and whose last reading are 60 s ago; being closed from here."""
        latest_us = wall_us - int((self.interval_s + SILENCE_S) * SECOND_US)
        return self._close(
            (channel, start_us)
            for channel, starts in self._open.items()
            for start_us, touched_s in starts.items()
            if start_us <= latest_us and now_s - touched_s >= SILENCE_S
        )

    def all(self) -> list[Interval]:
        """Every interval that isn't closed; being closed from here."""
        return self.over() + self._close(
            (channel, start) for channel, starts in self._open.items() for start in starts
        )

    def closed(self, intervals: Iterable[Interval]) -> set[Interval]:
        """Those that were being closed and can be: no reading has come for them meanwhile."""
        found = self._closing.intersection(intervals)
        self._closing -= found
        return found

    def _is_open(self, interval: Interval) -> bool:
        channel, start_us = interval
        return start_us in self._open.get(channel, ())

    def _close(self, items: Iterable[Interval]) -> list[Interval]:
        closing = list(items)
        for channel, start_us in closing:
            del self._open[channel][start_us]
        self._closing.update(closing)
        return closing
