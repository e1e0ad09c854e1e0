"""One target's alerts from Kafka to people: read, held back, sent, and only then passed over.

Invariants: an alert is read again after a restart until it has been sent or isn't wanted; a target that can't
be reached holds back no other, since each has its own position in Kafka and its own thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from cloud.backoff import Backoff
from cloud.config.model import TargetConfig
from cloud.errors import CloudError
from cloud.kafka.topic_reader import KEEP_EVERY_S, Partition, TopicReader
from cloud.notify.digest import Message, is_quiet, is_urgent, message, wanted
from cloud.notify.sent import Sent
from cloud.wire.alert_records import AlertRecord

log = logging.getLogger(__name__)

_TURN_S: Final = 0.5
_AGAIN_S: Final = (2.0, 300.0)
_MOST_HELD: Final = 10_000

Send = Callable[[Message], bool]
"""Sends a message to people; whether it was taken."""


class Target:
    """One target. ``run`` is a thread's; it ends with ``stopping``."""

    def __init__(
        self,
        name: str,
        config: TargetConfig,
        send: Send,
        sent: Callable[[], Sent],
        reader: Callable[[], TopicReader],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._config = config
        self._send = send
        self._open_sent = sent
        self._open_reader = reader
        self._now = now
        self._monotonic = monotonic
        self._zone = ZoneInfo(config.time_zone)
        self._held: list[tuple[Partition, int, AlertRecord]] = []
        self._read_to: dict[Partition, int] = {}
        self._due_s: float | None = None
        self._kept_at_s = 0.0
        self._backoff = Backoff(*_AGAIN_S)

    def run(self, stopping: threading.Event) -> None:
        """Until it is stopped; what fails is tried again, later and later."""
        again = Backoff(*_AGAIN_S)
        while not stopping.is_set():
            self._held.clear()
            self._read_to.clear()
            self._due_s = None
            try:
                sent = self._open_sent()
                try:
                    reader = self._open_reader()
                    try:
                        # Where a new target begins is kept: else the start after a crash would begin later.
                        self._read_to = dict(reader.begun)
                        while not stopping.is_set():
                            is_kept = reader.begun.keys() <= reader.committed.keys()
                            self.turn(reader, sent)
                            if not is_kept and reader.begun.keys() <= reader.committed.keys():
                                log.info("event=notify.reads target=%s", self.name)
                                again.reset()
                        reader.flush()
                    finally:
                        reader.close()
                finally:
                    sent.close()
            except CloudError as error:
                log.warning("event=notify.waits target=%s problem=%r", self.name, str(error))
                stopping.wait(again.next())
            except Exception:
                # The process runs on for the other targets, so nobody would see that this one has ended.
                log.exception("event=notify.defect target=%s", self.name)
                stopping.wait(again.next())

    def turn(self, reader: TopicReader, sent: Sent) -> None:
        """Read what there is for half a second, and send what is due."""
        until_s = self._monotonic() + _TURN_S
        while len(self._held) < _MOST_HELD and (left_s := until_s - self._monotonic()) > 0:
            record = reader.read(left_s)
            if record is None:
                continue
            self._read_to[record.place] = record.offset + 1
            alert = parse_alert(record.value)
            if alert is None or not wanted(alert, self._config) or sent.has(alert.id, alert.state):
                continue
            self._held.append((record.place, record.offset, alert))
            if self._due_s is None:
                self._due_s = self._monotonic() + self._config.group_s
        if self._due_s is not None and self._monotonic() >= self._due_s:
            self._send_due(sent)
        positions = dict(self._read_to)
        for place, offset, _ in self._held:
            positions[place] = min(positions[place], offset)
        moved = any(reader.committed.get(place) != at for place, at in positions.items())
        if moved or self._monotonic() >= self._kept_at_s + KEEP_EVERY_S:
            self._kept_at_s = self._monotonic()
            reader.commit(positions)

    def _send_due(self, sent: Sent) -> None:
        quiet = is_quiet(self._config, self._now().astimezone(self._zone))
        due = [each for each in self._held if not quiet or is_urgent(each[2], self._config)]
        if due:
            alerts = [alert for _, _, alert in due]
            if not self._send(message(alerts)):
                self._due_s = self._monotonic() + (delay_s := self._backoff.next())
                log.warning(
                    "event=notify.refused target=%s alerts=%d again_s=%g", self.name, len(due), delay_s
                )
                return
            self._backoff.reset()
            sent.add(((alert.id, alert.state) for alert in alerts), int(self._now().timestamp()))
            log.info("event=notify.sent target=%s alerts=%d", self.name, len(due))
            self._held = [each for each in self._held if each not in due]
        # In quiet hours the rest is looked at again in each group's time.
        self._due_s = self._monotonic() + self._config.group_s if self._held else None


def parse_alert(value: bytes) -> AlertRecord | None:
    """An alert's record, None where it is none; fields that it has beyond those known don't matter."""
    try:
        return msgspec.json.decode(value, type=AlertRecord)
    except (msgspec.DecodeError, UnicodeDecodeError):
        log.warning("event=notify.no_alert bytes=%d", len(value))
        return None
