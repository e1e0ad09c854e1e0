"""The newest readings of each channel, for people who watch: one thread uses it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from cloud.wire.reading_records import Reading

_SHOWN: Final = 40
_MOST_CHANNELS: Final = 10_000
_BARS: Final = "▁▂▃▄▅▆▇█"


class Shown(NamedTuple):
    """A channel's newest reading, Kafka's time of it in µs since 1970, and its last values, oldest first."""

    reading: Reading
    arrived_us: int
    values: tuple[float, ...]


class _Channel:
    __slots__ = ("arrived_us", "reading", "values")

    def __init__(self, reading: Reading, arrived_us: int) -> None:
        self.reading, self.arrived_us = reading, arrived_us
        self.values: deque[float] = deque(maxlen=_SHOWN)


class Latest:
    """The newest readings by mast and channel; what is older than the newest changes nothing.

    Beyond 10,000 channels those go from which nothing new came for longest.
    """

    def __init__(self) -> None:
        self._masts: dict[str, dict[str, _Channel]] = {}
        # Those with the oldest news first.
        self._order: OrderedDict[tuple[str, str], None] = OrderedDict()

    def take(self, arrived: Iterable[tuple[Reading, int]]) -> None:
        """Readings, each with Kafka's time; those that come a second time count once."""
        for given, at_us in arrived:
            # Without what nobody shows, up to 64 KiB of each channel.
            reading = given if given.extra is None else replace(given, extra=None)
            place = reading.gateway, reading.channel
            held = self._masts.get(reading.gateway, {}).get(reading.channel)
            if held is None:
                held = _Channel(reading, at_us)
                self._masts.setdefault(reading.gateway, {})[reading.channel] = held
                self._order[place] = None
                if self.channels > _MOST_CHANNELS:
                    self._let_one_go()
            elif (reading.time_us, reading.seq) <= (held.reading.time_us, held.reading.seq):
                continue
            self._order.move_to_end(place)
            held.reading, held.arrived_us = reading, max(at_us, held.arrived_us)
            if reading.value is not None:
                held.values.append(reading.value)

    def _let_one_go(self) -> None:
        (gateway, channel), _ = self._order.popitem(last=False)
        del self._masts[gateway][channel]
        if not self._masts[gateway]:
            del self._masts[gateway]

    @property
    def channels(self) -> int:
        """How many are held."""
        return len(self._order)

    @property
    def masts(self) -> list[str]:
        """Those of which something has come."""
        return list(self._masts)

    def of(self, gateway: str) -> dict[str, Shown]:
        """A mast's channels, by name."""
        found = self._masts.get(gateway, {})
        return {
            name: Shown(each.reading, each.arrived_us, tuple(each.values)) for name, each in found.items()
        }

    def last_seen_us(self) -> Iterator[tuple[str, int]]:
        """Each mast with the time at which Kafka had something of it last."""
        for gateway, channels in self._masts.items():
            yield gateway, max(each.arrived_us for each in channels.values())


def sparkline(values: Sequence[float]) -> str:
    """Values as bars from their lowest to their highest; one height where all are the same."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    # By halves, for the difference of two doubles may be none.
    span = high / 2 - low / 2 or 1.0
    return "".join(_BARS[round((value / 2 - low / 2) / span * (len(_BARS) - 1))] for value in values)
