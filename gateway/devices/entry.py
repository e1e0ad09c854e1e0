"""Where what devices hand to the gateway itself enters: bounded, and answered once it is durable.

Any thread may call; the forwarder's thread calls back. A posted body becomes one record for each reading.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from cloud.wire import reading_records as wire
from cloud.wire.fields import UNDECODABLE
from gateway.forwarding.forwarder import Posted, Published
from gateway.forwarding.ledger import ENTRY_BYTES
from gateway.mqtt.intake import Intake
from gateway.ports import Ack, Clock, Record

_MOST_OPEN_BYTES: Final = 4 << 20
"""Devices have to wait while more than this isn't durable yet."""


class DeviceEntry:
    """``put`` enters what comes with the forwarder; ``is_full``: its memory has no room."""

    def __init__(self, put: Callable[[Posted | Published], None], is_full: Callable[[], bool]) -> None:
        self._put = put
        self._is_full = is_full
        self._open_bytes = 0
        self._lock = threading.Lock()

    @property
    def has_room(self) -> bool:
        """True while records are accepted."""
        return self._open_bytes < _MOST_OPEN_BYTES and not self._is_full()

    def hand_over(self, records: Sequence[Record], done: Callable[[], None]) -> bool:
        """Enter records; ``done`` once Kafka has all of them, or the outbox. False: there is no room."""
        ack = self._ack(sum(ENTRY_BYTES + len(record.value) for record in records), done)
        if ack is not None:
            self._put(Posted(records, ack))
        return ack is not None

    def publish(self, topic: str, payload: bytes, done: Callable[[], None]) -> bool:
        """Enter a message; ``done`` once what comes of it is durable. False: there is no room."""
        ack = self._ack(ENTRY_BYTES + len(topic) + len(payload), done)
        if ack is not None:
            self._put(Published(topic, payload, ack))
        return ack is not None

    def _ack(self, size: int, done: Callable[[], None]) -> Ack | None:
        with self._lock:
            if not self.has_room:
                return None
            self._open_bytes += size

        def durable() -> None:
            with self._lock:
                self._open_bytes -= size
            done()

        return Ack(0, 0, done=durable)


MOST_READINGS: Final = 10_000
"""The bound of one request."""
_GZIP: Final = 31
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
LINES: Final = ("application/x-ndjson", "application/jsonl", "application/json-lines")


class BadBody(Exception):
    """Nothing of a body can be read; ``too_large``: for its size."""

    def __init__(self, problem: str, *, too_large: bool = False) -> None:
        super().__init__(problem)
        self.too_large = too_large


class Refusal(NamedTuple):
    """A reading that isn't taken: its line, or its place in the array, from 1 on; and why."""

    line: int
    reason: str
    detail: str


def unpacked(body: bytes, most_bytes: int) -> bytes:
    """What a gzip body holds, as far as it isn't larger than that. Raises BadBody."""
    unpacker = zlib.decompressobj(_GZIP)
    try:
        found = unpacker.decompress(body, most_bytes + 1)
    except zlib.error as error:
        raise BadBody(f"not gzip: {error}") from error
    if len(found) > most_bytes:
        raise BadBody(f"over {most_bytes} bytes once unpacked", too_large=True)
    if not unpacker.eof or unpacker.unused_data:
        raise BadBody("not gzip: it is cut off, or more comes behind it")
    return found


def payloads(body: bytes, content_type: str) -> list[tuple[int, bytes]]:
    """The readings in a body as they stand there, with line or place. Raises BadBody."""
    if content_type in LINES:
        found = [(number, line.strip()) for number, line in enumerate(body.split(b"\n"), 1)]
        found = [(number, line) for number, line in found if line]
    else:
        try:
            if body.lstrip()[:1] == b"[":
                found = [(number, bytes(each)) for number, each in enumerate(_ARRAY.decode(body), 1)]
            else:
                found = [(1, body.strip())]
        except UNDECODABLE as error:
            raise BadBody(f"not JSON: {error}") from error
    if len(found) > MOST_READINGS:
        raise BadBody(f"over {MOST_READINGS} readings", too_large=True)
    return found


class PostedReadings:
    """Checks readings as those of other devices on the local broker are. ``clock`` is this machine's."""

    def __init__(self, intake: Intake, clock: Clock, forwarded: Callable[[wire.Reading], None]) -> None:
        self._intake = intake
        self._clock = clock
        self._forwarded = forwarded

    def records(
        self, found: Sequence[tuple[int, bytes]], device: str | None
    ) -> tuple[list[Record], list[Refusal]]:
        """A record of each that is a reading, of ``device`` where its token says so; and the others."""
        records: list[Record] = []
        refusals: list[Refusal] = []
        received_us = self._clock.now_ns() // 1000 if self._clock.synced else None
        for number, payload in found:
            try:
                records.append(self._record(payload, device, received_us))
            except wire.InvalidReading as problem:
                refusals.append(Refusal(number, problem.reason, problem.detail))
        return records, refusals

    def _record(self, payload: bytes, device: str | None, received_us: int | None) -> Record:
        reading, intake = wire.parse_reading(payload, received_us), self._intake
        intake.check_sender(reading, None)
        if device not in (None, reading.gateway):
            raise wire.InvalidReading("FOREIGN", f"the token is {device}'s, and gateway is {reading.gateway}")
        if reading.quantity not in intake.quantities:
            raise wire.InvalidReading("UNKNOWN_QUANTITY", f"no topic for {reading.quantity}")
        self._forwarded(reading)
        records = intake.records
        return records.reading(reading, payload, f"http/{reading.gateway}", (), records.topic)
