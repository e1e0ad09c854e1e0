"""Each channel's newest rows in ``statistics``, and which intervals are missing by them.

A channel is due in an interval that lies

- between two intervals of it that have readings,
- after its last reading, up to the newest interval of its gateway,
- before its first reading, in a period its records were in force, from the gateway's first reading on,

and, where it has records, wholly within the times they were in force. After a reading (or the begin of a
period) 400 days are due at most, so that one reading of a wrong date doesn't make a million rows. A gateway
that sent in time and fell silent altogether is taken to go on for 31 days. The period in force, and the unit,
are those of the last reading before; the record's where there is none.

So what is due follows from the readings and the records alone, whatever order they arrived in, but for how
far time has come. Owned by whoever holds the lock of the statistics sink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_jobs.intervals import DAY_US, SECOND_US, Channel, Interval
from spark_jobs.state.configured import FOREVER_US, Configured, whole_intervals
from spark_jobs.state.intervals import SILENCE_S
from spark_jobs.transforms.gaps import Stretch

LONGEST_US: Final = 400 * DAY_US
"""So long after a reading rows are made for what is missing: a year and a month."""
OFFLINE_S: Final = 900.0
"""So long after an interval's end a gateway that sends nothing at all may still be about to."""
_LIVE_S: Final = 3_600.0
"""A gateway whose newest row was computed so long after its interval is one that is live, no replay."""
_OFFLINE_DAYS: Final = 31


@dataclass(slots=True)
class Newest:
    """Of a channel: its newest row, its newest row with readings, and what was in force there.

    ``touched_s`` is the monotonic second of its last new reading. From ``solid_us`` to ``data_us`` there are
    readings in every interval. One that is only ``expected``, by its record, has no readings yet:
    ``data_us`` is where it was due first.
    """

    row_us: int
    data_us: int
    period_ms: int
    unit: str
    touched_s: float
    solid_us: int = FOREVER_US
    expected: bool = False


@dataclass(slots=True)
class _Gateway:
    data_us: int
    touched_s: float
    live: bool


@dataclass
class ChannelRows:
    """Channels whose rows are known, and how far their gateways have come."""

    interval_s: int
    records: Mapping[Channel, Configured] = field(default_factory=dict)
    _channels: dict[Channel, Newest] = field(default_factory=dict)
    _gateways: dict[str, _Gateway] = field(default_factory=dict)

    @property
    def _length_us(self) -> int:
        return self.interval_s * SECOND_US

    def __contains__(self, channel: Channel) -> bool:
        return channel in self._channels

    def __getitem__(self, channel: Channel) -> Newest:
        return self._channels[channel]

    def is_new(self, interval: Interval) -> bool:
        """Whether an interval lies after all rows of its channel, those of missing ones too."""
        channel, start_us = interval
        newest = self._channels.get(channel)
        return newest is None or start_us > max(newest.row_us, newest.data_us)

    def restore(self, channel: Channel, newest: Newest, computed_us: int) -> None:
        """Takes up a channel's newest rows as the table has them, and when the newest was computed."""
        self._channels[channel] = newest
        live = computed_us - newest.row_us - self._length_us < _LIVE_S * SECOND_US
        gateway = self._gateways.setdefault(channel[0], _Gateway(newest.data_us, newest.touched_s, live))
        gateway.live = live if newest.row_us >= gateway.data_us else gateway.live
        gateway.data_us = max(gateway.data_us, newest.data_us)

    def expect(self, channel: Channel, since_us: int, record: Configured, now_s: float) -> None:
        """A configured channel that has no row yet is due from an interval on."""
        since_us -= self._length_us
        # What lies after the gateway's newest interval is for later, when the records may be others.
        before_us = min(since_us, self._gateways[channel[0]].data_us - self._length_us)
        self._channels[channel] = Newest(
            before_us, since_us, record.period_ms, record.unit, now_s, expected=True
        )

    def add(self, interval: Interval, period_ms: int, unit: str, now_s: float) -> list[Stretch] | None:
        """Takes up a row with readings: what is missing between it and the channel's newest row before it.

        Rows come in order of time. None when it lies before the newest row and beside an interval without
        readings, or one that isn't known: what surrounds it has to be looked up.
        """
        channel, start_us = interval
        newest = self._channels.get(channel)
        if newest is None:
            self._channels[channel] = Newest(start_us, start_us, period_ms, unit, now_s, start_us)
            return []
        newest.touched_s = now_s
        if start_us < newest.data_us and not newest.expected:
            return [] if newest.solid_us <= start_us else None
        late = start_us < newest.row_us
        missing = self._after(channel, newest, start_us) if start_us > newest.row_us else []
        if newest.expected or start_us > newest.data_us + self._length_us:
            newest.solid_us = start_us
        newest.expected = False
        newest.solid_us = min(newest.solid_us, start_us)
        newest.data_us, newest.period_ms, newest.unit = start_us, period_ms, unit
        newest.row_us = max(newest.row_us, start_us)
        return None if late else missing

    def received(self, gateway: str, start_us: int, now_s: float, wall_us: int) -> None:
        """A reading of the gateway in this interval came in."""
        known = self._gateways.setdefault(gateway, _Gateway(start_us, now_s, live=False))
        known.touched_s = now_s
        if start_us >= known.data_us:
            known.data_us = start_us
            known.live = wall_us - start_us - self._length_us < _LIVE_S * SECOND_US

    def silent(self, now_s: float, wall_us: int) -> list[Stretch]:
        """What is missing by now of channels that went silent; they are taken to be written from here."""
        return self._trailing(
            {gateway: self._horizon(known, now_s, wall_us) for gateway, known in self._gateways.items()},
            now_s - SILENCE_S,
        )

    def all(self) -> list[Stretch]:
        """What is missing up to the newest interval of each gateway, that one included."""
        return self._trailing(
            {gateway: known.data_us + self._length_us for gateway, known in self._gateways.items()},
            float("inf"),
        )

    def without_rows(self) -> set[str]:
        """Gateways with channels that are configured and have no row known."""
        return {
            channel[0]
            for channel in self.records
            if channel not in self._channels and channel[0] in self._gateways
        }

    def stretches(
        self, channel: Channel, first_us: int, end_us: int, since_us: int, period_ms: int, unit: str
    ) -> list[Stretch]:
        """The parts of a time without readings in which a channel was due; ``since_us``: the reading before.

        Starts of intervals from ``first_us`` on, before ``end_us``.
        """
        end_us = min(end_us, since_us + LONGEST_US)
        if first_us >= end_us:
            return []
        record = self.records.get(channel)
        spans = [(first_us, end_us)] if record is None else record.within(first_us, end_us, self.interval_s)
        return [Stretch(channel, first, end, period_ms, unit) for first, end in spans]

    def before(self, channel: Channel, gateway_us: int, first_us: int | None) -> Iterator[Stretch]:
        """What is missing before a channel's first reading, or altogether where it has none.

        ``gateway_us``: first interval of the gateway that has readings; ``first_us``: of the channel.
        """
        record = self.records.get(channel)
        if record is None:
            return
        end_us = FOREVER_US if first_us is None else first_us
        for span in record.spans:
            if span[0] == -FOREVER_US:
                continue
            first, end = whole_intervals(span, self.interval_s)
            first = max(first, gateway_us)
            end = min(end, end_us, first + LONGEST_US)
            if first < end:
                yield Stretch(channel, first, end, record.period_ms, record.unit)

    def _after(self, channel: Channel, newest: Newest, end_us: int) -> list[Stretch]:
        return self.stretches(
            channel,
            newest.row_us + self._length_us,
            end_us,
            newest.data_us,
            newest.period_ms,
            newest.unit,
        )

    def _horizon(self, gateway: _Gateway, now_s: float, wall_us: int) -> int:
        """Up to where a gateway's silent channels are due: the end of its newest closed interval."""
        over_us = wall_us - int(SILENCE_S * SECOND_US) - self._length_us
        quiet = now_s - gateway.touched_s >= SILENCE_S and gateway.data_us <= over_us
        end_us = gateway.data_us + self._length_us if quiet else gateway.data_us
        if gateway.live:
            offline_us = min(wall_us - int(OFFLINE_S * SECOND_US), gateway.data_us + _OFFLINE_DAYS * DAY_US)
            end_us = max(end_us, offline_us // self._length_us * self._length_us)
        return end_us

    def _trailing(self, ends_us: Mapping[str, int], untouched_s: float) -> list[Stretch]:
        found: list[Stretch] = []
        for channel, newest in self._channels.items():
            end_us = ends_us.get(channel[0], 0)
            if newest.row_us + self._length_us < end_us and newest.touched_s <= untouched_s:
                found += self._after(channel, newest, end_us)
                newest.row_us = end_us - self._length_us
        return found
