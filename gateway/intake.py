"""Decides what a message from the broker is: a reading to forward, an echo of our own, or a dead letter.

Owned by the forwarder's thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cloud import schema
from gateway.identity import Sequences
from gateway.ports import Clock, Record

_MQTT_TOPIC: Final = "mqtt-topic"
_RECEIVED_AT: Final = "received-at"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A reading, as it will be sent."""

    record: Record


@dataclass(frozen=True, slots=True)
class Refusal:
    """A dead letter, as it will be sent, and why."""

    record: Record
    reason: str


class Intake:
    """Turns messages into Kafka records.

    ``clock`` is this machine's: the time of receipt, whatever time an emulated mast lives in.
    """

    def __init__(self, gateway: str, run: str, issued: Sequences, topic: str, clock: Clock) -> None:
        self._gateway = gateway
        self._run = run
        self._issued = issued
        self._topic = topic
        self._clock = clock
        self._dead_letters = 0

    def own(self, reading: schema.Reading, mqtt_topic: str) -> Record:
        """The record of a reading sampled here. Any thread may call this."""
        return self._record(reading, schema.encode_reading(reading), mqtt_topic)

    def accept(self, mqtt_topic: str, payload: bytes) -> Accepted | Refusal | None:
        """What to send for a message; None for the echo of a reading that this run issued."""
        if len(payload) > schema.MAX_PAYLOAD_BYTES:
            return self._refuse("TOO_LARGE", f"{len(payload)} bytes", mqtt_topic, payload)
        received_us = self._now_us() if self._clock.synced else None
        try:
            reading = schema.parse_reading(payload, received_us)
        except schema.InvalidReading as problem:
            return self._refuse(problem.reason, problem.detail, mqtt_topic, payload)
        if (reading.gateway, reading.run) == (self._gateway, self._run):
            if reading.seq <= self._issued.last(reading.channel):
                return None
            return self._refuse("FORGED", f"seq {reading.seq} was never issued", mqtt_topic, payload)
        if reading.quantity not in schema.UNITS:
            return self._refuse("UNKNOWN_QUANTITY", f"no topic for {reading.quantity}", mqtt_topic, payload)
        return Accepted(self._record(reading, payload, mqtt_topic))

    def refuse(self, record: Record, problem: str) -> Refusal:
        """The dead letter of a record that Kafka will never take."""
        source = dict(record.headers).get(_MQTT_TOPIC, b"").decode(errors="replace")
        return self._refuse("REFUSED_BY_KAFKA", problem, source, record.value)

    def refuse_row(self, stored: bytes, problem: str) -> Refusal:
        """The dead letter of an outbox row that is not a record."""
        return self._refuse("BAD_OUTBOX_ROW", problem, "", stored)

    def _record(self, reading: schema.Reading, value: bytes, mqtt_topic: str) -> Record:
        return Record(
            schema.reading_topic(self._topic, reading.quantity),
            schema.reading_key(reading.gateway, reading.channel),
            value,
            self._headers(mqtt_topic),
        )

    def _refuse(self, reason: str, detail: str, mqtt_topic: str, payload: bytes) -> Refusal:
        self._dead_letters += 1
        letter = schema.dead_letter(
            self._gateway, self._run, self._dead_letters, reason, detail, mqtt_topic, self._now_us(), payload
        )
        value = schema.encode_dead_letter(letter)
        record = Record(schema.DEAD_LETTER_TOPIC, self._gateway.encode(), value, self._headers(mqtt_topic))
        return Refusal(record, reason)

    def _headers(self, mqtt_topic: str) -> tuple[tuple[str, bytes], ...]:
        received_at = schema.format_time(self._now_us() // 1000 * 1000)
        return ((_MQTT_TOPIC, mqtt_topic.encode()), (_RECEIVED_AT, received_at.encode()))

    def _now_us(self) -> int:
        return self._clock.now_ns() // 1000
