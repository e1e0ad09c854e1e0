"""The readings that arrive in Kafka from now on, or from a while ago, and the newest of each channel.

For people who watch, at a terminal and on the dashboard's pages; one thread uses each.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from cloud.errors import CloudError
from cloud.kafka.cluster_check import NoAnswer, first_metadata
from cloud.kafka.topic_scan import open_consumer, reading_topics
from cloud.wire.avro_readings import NO_SCHEMAS, UnknownSchema, plain
from cloud.wire.fields import InvalidFields
from cloud.wire.reading_records import Reading, parse_reading

_MOST: Final = 2000


class Tail:
    """One thread uses it. Each call raises CloudError.

    ``refused`` counts records that are no readings, ``unknown`` those in Avro by no schema of ``schemas``.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, str],
        since_s: float,
        timeout_s: float,
        schemas: Mapping[int, str] = NO_SCHEMAS,
        prefix: str = "",
    ) -> None:
        self._schemas = schemas
        self._servers = bootstrap_servers
        self._errors: list[KafkaError] = []
        self.refused = self.unknown = 0
        self._consumer: Consumer = open_consumer(bootstrap_servers, properties, self._errors)
        try:
            found = first_metadata(
                self._consumer, self._errors, bootstrap_servers, dict(properties), timeout_s
            ).topics
            from_ms = round((time.time() - since_s) * 1000)
            places = [
                TopicPartition(topic, partition, from_ms)
                for topic in sorted(found)
                if topic.startswith(prefix) and reading_topics((topic[len(prefix) :],))
                for partition in found[topic].partitions
            ]
            if not places:
                raise CloudError(f"Kafka at {bootstrap_servers} has no topic of readings, {prefix}mqtt.…")
            begins = self._consumer.offsets_for_times(places, timeout=timeout_s)
            for place in begins:
                place.offset = place.offset if place.offset >= 0 else OFFSET_END
            self._consumer.assign(begins)
        except (KafkaException, NoAnswer) as error:
            self.close()
            raise CloudError(f"no answer from Kafka at {bootstrap_servers}: {error}") from error

    def read(self, timeout_s: float) -> list[tuple[Reading, int]]:
        """What has come, at the latest after so long; with Kafka's time, microseconds since the epoch."""
        found = []
        messages = self._consumer.consume(_MOST, timeout=timeout_s)
        if any(message.error() is None for message in messages):
            self._errors.clear()
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise CloudError(f"Kafka at {self._servers} forbids {message.topic()}: allow Read")
                continue
            try:
                value = plain(message.value() or b"", self._schemas)
                received_us = message.timestamp()[1] * 1000
                # The jobs have it so too: else one of the future would be the newest until then.
                found.append((parse_reading(value, received_us), received_us))
            except UnknownSchema:
                self.unknown += 1
            except InvalidFields:
                self.refused += 1
        return found

    @property
    def problem(self) -> str | None:
        """Kafka's last complaint since a record came, None where there was none."""
        return self._errors[-1].str() if self._errors else None

    @property
    def is_lost(self) -> bool:
        """Whether no broker could be reached since a record came."""
        return any(each.code() == KafkaError._ALL_BROKERS_DOWN for each in self._errors)

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


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
