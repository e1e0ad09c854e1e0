"""Publishes the records of Kafka topics on the local broker, each at least once.

Kafka keeps where to read on. It is moved past a record once the local broker has acknowledged it, or it was
refused; after a kill, records between are published again. While the broker is away nothing is read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final

from cloud.errors import CloudError
from cloud.kafka.roles import group_of
from cloud.kafka.topic_reader import KEEP_EVERY_S, Begin, Partition, TopicReader, TopicRecord
from cloud.wire.reading_records import MAX_PAYLOAD_BYTES
from gateway.config import Config
from gateway.config.bridges.model import KEY, DownlinkConfig
from gateway.ports import Record, Snapshot
from gateway.remote.kafka_thread import KafkaThread
from gateway.status.status import DownlinksStatus, DownlinkStatus

log = logging.getLogger(__name__)

_MOST_OPEN: Final = 50
_MOST_OPEN_BYTES: Final = 2 << 20
"""The bound of messages that the local broker has yet to acknowledge."""
_COMMIT_EVERY_S: Final = 1.0
_LOOK_EVERY_S: Final = 600.0
_LONGEST_TOPIC_BYTES: Final = 1024
_LAST_S: Final = 2.0
_EVENT_EVERY_S: Final = 60.0

Publish = Callable[[str, bytes, bool, Callable[[bool], None]], bool]
"""Publishes to a topic, retained or not, and calls back once the broker has it, or it can't be. False: there
is no broker, and nothing was done."""


class Refused(Exception):
    """Why a record is not published: a word, and what about it."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


def destination(downlink: DownlinkConfig, key: bytes | None) -> str | None:
    """The MQTT topic of a record by its key; None where it is for others. Raises Refused."""
    if downlink.key_prefix and not (key or b"").startswith(downlink.key_prefix.encode()):
        return None
    if KEY not in downlink.mqtt_topic:
        return downlink.mqtt_topic
    try:
        text = (key or b"").decode()[len(downlink.key_prefix) :]
    except UnicodeDecodeError as error:
        raise Refused("BAD_KEY", f"byte {error.start} of the key is not UTF-8") from error
    if not text:
        raise Refused("NO_KEY", f"{downlink.mqtt_topic} needs a key")
    if any(each in "+#" or not each.isprintable() for each in text):
        raise Refused("BAD_KEY", f"{text[:80]!r} has characters that no MQTT topic may have")
    topic = downlink.mqtt_topic.replace(KEY, text)
    if len(topic.encode()) > _LONGEST_TOPIC_BYTES:
        raise Refused("BAD_KEY", f"the topic would have over {_LONGEST_TOPIC_BYTES} bytes")
    return topic


@dataclass(slots=True)
class _Counts:
    """One downlink's counts."""

    received: int = 0
    published: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    lag: int | None = None


class Downlinks(KafkaThread[TopicReader]):
    """The thread. ``event`` makes a record of an event, ``announce`` sends it."""

    def __init__(
        self,
        config: Config,
        publish: Publish,
        event: Callable[..., Record],
        announce: Callable[[Record], None],
        stopping: threading.Event,
    ) -> None:
        super().__init__("downlinks", config, stopping)
        self._publish = publish
        self._event = event
        self._announce = announce
        self._outcomes: SimpleQueue[tuple[int, Partition, int, bool]] = SimpleQueue()
        self._counts: dict[str, _Counts] = {}
        # The number of the reader in use; outcomes of an earlier one's messages mean nothing any more.
        self._reader = 0
        self._wanted_by_topic: Mapping[str, DownlinkConfig] = {}
        # The bytes of what the broker is yet to acknowledge by offset, None once that is done.
        self._open_records: dict[Partition, OrderedDict[int, int | None]] = {}
        self._positions: dict[Partition, int] = {}
        self._waiting: TopicRecord | None = None
        self._kept_at_s = self._looked_at_s = 0.0
        self._reported: tuple[float, int] = (float("-inf"), 0)

    @property
    def status(self) -> DownlinksStatus:
        """What has come of each Kafka topic, what became of it, and what is still to be read."""
        topics = {
            topic: DownlinkStatus(
                received=each.received, published=each.published, refused=dict(each.refused), lag=each.lag
            )
            for topic, each in self._counts.copy().items()
            if self._wanted(self._config)
        }
        return DownlinksStatus(problem=self.problem, topics=topics)

    def tick(self, snapshot: Snapshot) -> None:
        """Once a second; at most once a minute an event where records were refused."""
        super().tick(snapshot)
        refused = {topic: dict(each.refused) for topic, each in self._counts.copy().items() if each.refused}
        total, (at_s, before) = sum(sum(each.values()) for each in refused.values()), self._reported
        if total > before and snapshot.at_s >= at_s + _EVENT_EVERY_S:
            self._reported = snapshot.at_s, total
            self._announce(self._event("downlink-refused", records=total - before, topics=refused))

    def _wanted(self, config: Config) -> object:
        return config.downlinks

    def _open(self) -> TopicReader:
        config = self._config
        prefix = config.kafka.prefix
        begins: dict[str, Begin] = {prefix + each.topic: each.begin for each in config.downlinks}
        properties = {**config.kafka.properties, "client.id": "downlinks"}
        group, servers = prefix + group_of(config.gateway.id), config.kafka.bootstrap_servers
        reader = TopicReader(servers, properties, group, begins, patient=not self._metered)
        self._begin(reader, config)
        return reader

    def _begin(self, reader: TopicReader, config: Config) -> None:
        self._wanted_by_topic = {config.kafka.prefix + each.topic: each for each in config.downlinks}
        self._counts = {topic: self._counts.get(topic, _Counts()) for topic in self._wanted_by_topic}
        self._reader += 1
        self._positions, self._waiting = dict(reader.begun), None
        self._open_records = {place: OrderedDict() for place in reader.begun}
        self._looked_at_s = time.monotonic()
        self._kept_at_s = float("-inf")

    def _turn(self, reader: TopicReader) -> None:
        now_s = time.monotonic()
        unkept = {place: at for place, at in self._positions.items() if reader.committed.get(place) != at}
        if now_s >= self._kept_at_s + (_COMMIT_EVERY_S if unkept else KEEP_EVERY_S):
            self._kept_at_s = now_s
            reader.commit(unkept or self._positions)
        for topic, counts in self._counts.items():
            counts.lag = reader.lag(topic, self._positions)
        if now_s >= self._looked_at_s + _LOOK_EVERY_S:
            self._looked_at_s = now_s
            if reader.has_grown():
                self._changed.set()

    def _take(self, reader: TopicReader, timeout_s: float) -> None:
        sizes = [size for each in self._open_records.values() for size in each.values() if size is not None]
        full = len(sizes) >= _MOST_OPEN or sum(sizes) >= _MOST_OPEN_BYTES
        self._settle(timeout_s if full or self._waiting is not None else 0)
        if not full:
            self._waiting = self._waiting or reader.read(timeout_s)
            if self._waiting is not None and self._goes(self._waiting):
                self._waiting = None

    def _goes(self, record: TopicRecord) -> bool:
        """Hand a record to the broker, or refuse it; False while there is no broker."""
        topic = record.place[0]
        downlink, counts = self._wanted_by_topic[topic], self._counts[topic]
        open_records = self._open_records[record.place]
        try:
            to = destination(downlink, record.key)
            if to is not None and len(record.value) > MAX_PAYLOAD_BYTES:
                raise Refused("TOO_LARGE", f"{len(record.value)} bytes")
        except Refused as refused:
            level = logging.DEBUG if counts.refused[refused.reason] else logging.WARNING
            log.log(level, "event=downlink.refused topic=%s offset=%d why=%s", topic, record.offset, refused)
            counts.refused[refused.reason] += 1
            to = None
        else:
            done = partial(self._done, self._reader, record.place, record.offset)
            open_records[record.offset] = len(record.value)
            if to is not None and not self._publish(to, record.value, downlink.retain, done):
                del open_records[record.offset]
                return False
        counts.received += 1
        if to is None:
            open_records[record.offset] = None
            self._move(record.place)
        return True

    def _done(self, reader: int, place: Partition, offset: int, published: bool) -> None:
        """Called by the forwarder's thread."""
        self._outcomes.put((reader, place, offset, published))

    def _settle(self, timeout_s: float) -> None:
        """Note what the broker has acknowledged; wait for the first. Raises CloudError: one wasn't queued."""
        while True:
            try:
                reader, place, offset, published = (
                    self._outcomes.get(timeout=timeout_s) if timeout_s else self._outcomes.get_nowait()
                )
            except Empty:
                return
            timeout_s = 0
            if reader != self._reader:
                continue
            if not published:
                raise CloudError(
                    f"{place[0]}: the local broker's queue is full: read again from the last position"
                )
            self._counts[place[0]].published += 1
            self._open_records[place][offset] = None
            self._move(place)

    def _move(self, place: Partition) -> None:
        """Move a partition's position past what is done, up to the first that isn't."""
        open_records = self._open_records[place]
        while open_records and open_records[next(iter(open_records))] is None:
            self._positions[place] = open_records.popitem(last=False)[0] + 1

    def _left(self, reader: TopicReader) -> None:
        until_s = time.monotonic() + _LAST_S
        while any(self._open_records.values()) and (left_s := until_s - time.monotonic()) > 0:
            self._settle(left_s)
        reader.flush()
        reader.commit(self._positions)
        reader.flush()
