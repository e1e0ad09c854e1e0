"""Which intervals are still open, and when they close.

An interval is closed by a newer reading of its channel (one in a later interval), by silence (its end and
the last reading in it are both 60 s ago), or by ``--once``. Once closed it stays so. Times are microseconds
since the epoch. Owned by whoever holds the lock of the statistics sink.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

Channel = tuple[str, str]
"""gateway, channel."""
Interval = tuple[Channel, int]
"""Channel and start, microseconds since the epoch."""

SILENCE_S: Final = 60.0
_US: Final = 1_000_000


@dataclass
class OpenIntervals:
    """Open intervals per channel with the monotonic second they were last touched, and the newest."""

    interval_s: int
    _open: dict[Channel, dict[int, float]] = field(default_factory=dict)
    _newest_us: dict[Channel, int] = field(default_factory=dict)

    def restore(self, channel: Channel, start_us: int, *, is_open: bool, now_s: float) -> None:
        """Takes up a row of the table at start; silence is counted from now."""
        self._newest_us[channel] = max(start_us, self._newest_us.get(channel, start_us))
        if is_open:
            self._open.setdefault(channel, {})[start_us] = now_s

    def touch(self, intervals: Iterable[Interval], now_s: float) -> dict[Interval, bool]:
        """Takes up new readings' intervals: what is to be computed, and whether each is closed by now.

        Besides the intervals touched these are the open ones that a newer reading of their channel closes.
        """
        touched = list(intervals)
        for channel, start_us in touched:
            self._newest_us[channel] = max(start_us, self._newest_us.get(channel, start_us))
            self._open.setdefault(channel, {})[start_us] = now_s
        due: dict[Interval, bool] = dict.fromkeys(touched, False)
        for channel in {channel for channel, _ in touched}:
            for start_us in list(self._open[channel]):
                if start_us < self._newest_us[channel]:
                    due[channel, start_us] = True
                    del self._open[channel][start_us]
        return due

    def silent(self, wall_us: int, now_s: float) -> dict[Interval, bool]:
        """Open intervals whose end and whose last reading are 60 s ago; they count as closed from here."""
        latest_us = wall_us - int((self.interval_s + SILENCE_S) * _US)
        return self._close(
            (channel, start_us)
            for channel, starts in self._open.items()
            for start_us, touched_s in starts.items()
            if start_us <= latest_us and now_s - touched_s >= SILENCE_S
        )

    def all(self) -> dict[Interval, bool]:
        """Every open interval; they count as closed from here."""
        return self._close((channel, start) for channel, starts in self._open.items() for start in starts)

    def _close(self, items: Iterable[Interval]) -> dict[Interval, bool]:
        closing = dict.fromkeys(items, True)
        for channel, start_us in closing:
            del self._open[channel][start_us]
        return closing
