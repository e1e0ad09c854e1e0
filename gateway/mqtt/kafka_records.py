"""Makes the Kafka records of readings, raw messages and dead letters: topic, key, headers.

Samplers' threads make those of own readings, the forwarder's thread all others.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from cloud.wire import reading_records as wire
from gateway.clock.repair import RECEIVED_AT, mark_unsynced
from gateway.ports import Clock, Record

log = logging.getLogger(__name__)

_MQTT_TOPIC: Final = "mqtt-topic"

Headers = tuple[tuple[str, bytes], ...]


class KafkaRecords:
    """The records of one run of ``gateway``; ``clock`` gives the time of receipt."""

    def __init__(self, gateway: str, run: str, topic: str, clock: Clock) -> None:
        self.topic = topic
        """The template of the Kafka topics that own readings go to."""
        self._key_prefix = f"{gateway}/".encode()
        self._gateway = gateway
        self._run = run
        self._clock = clock
        self._received = (0, (RECEIVED_AT, b""))
        self._letters = 0
        # The first refusal of each kind is logged as a warning: a long backlog has many.
        self._said: set[tuple[str, str]] = set()

    def own(self, reading: wire.Reading, mqtt_topic: str) -> Record:
        """A reading sampled here. Any thread may call this."""
        value = wire.encode_reading(reading)
        return self.reading(reading, value, mqtt_topic, mark_unsynced(reading), self.topic)

    def reading(
        self,
        reading: wire.Reading,
        value: bytes,
        mqtt_topic: str,
        unrepaired: Headers,
        topic: str,
        key: bytes | None = None,
    ) -> Record:
        """A reading with its JSON; ``topic`` is a template, ``unrepaired``: it waits for the clock."""
        key = wire.reading_key(reading.gateway, reading.channel) if key is None else key
        topic = wire.reading_topic(topic, reading.quantity)
        return Record(topic, key, value, (*self._headers(mqtt_topic), *unrepaired))

    def is_own(self, record: Record) -> bool:
        """Whether a reading was sampled here: its MQTT topic ends like its key. Forwards may make any key."""
        key, headers = record.key, record.headers
        return (
            key.startswith(self._key_prefix)
            and bool(headers)
            and headers[0][0] == _MQTT_TOPIC
            and headers[0][1].endswith(b"/" + key.replace(b".", b"/"))
        )

    def raw(
        self,
        payload: bytes,
        mqtt_topic: str,
        topic: str,
        key: bytes,
        channel: str,
        seq: int,
        *,
        retained: bool,
    ) -> Record:
        """A message as it came, with its identity in headers."""
        headers = (
            *self._headers(mqtt_topic),
            ("gateway", self._gateway.encode()),
            ("channel", channel.encode()),
            ("run", self._run.encode()),
            ("seq", str(seq).encode()),
            *((("retained", b"1"),) if retained else ()),
        )
        return Record(topic, key, payload, headers)

    def dead_letter(
        self, reason: str, detail: str, mqtt_topic: str, payload: bytes, *, hidden: bool = False
    ) -> Record:
        """What can't be forwarded; the bytes of one that may hold what a step hides stay here."""
        self._letters += 1
        now_us = self._clock.now_ns() // 1000
        letter = wire.dead_letter(
            self._gateway, self._run, self._letters, reason, detail, mqtt_topic, now_us, payload
        )
        if hidden:
            letter = msgspec.structs.replace(letter, payload=b"")
        value = wire.encode_dead_letter(letter)
        return Record(wire.DEAD_LETTER_TOPIC, self._gateway.encode(), value, self._headers(mqtt_topic))

    def refused(self, record: Record, problem: str) -> Record | None:
        """The dead letter of a record that Kafka will never take; None where it is one already.

        That one waits until the topic or the client takes messages of its size.
        """
        if record.topic == wire.DEAD_LETTER_TOPIC:
            return None
        source = dict(record.headers).get(_MQTT_TOPIC, b"").decode(errors="replace")
        fault = (record.topic, problem)
        level = logging.DEBUG if fault in self._said else logging.WARNING
        self._said.add(fault)
        text = "event=message.refused topic=%s reason=REFUSED_BY_KAFKA kafka_topic=%s error=%s"
        log.log(level, text, source, *fault)
        return self.dead_letter("REFUSED_BY_KAFKA", problem, source, record.value)

    def damaged_row(self, stored: bytes, problem: str) -> Record:
        """The dead letter of an outbox row that is not a record."""
        return self.dead_letter("BAD_OUTBOX_ROW", problem, "", stored)

    def _headers(self, mqtt_topic: str) -> Headers:
        now_ms = self._clock.now_ns() // 1_000_000
        received_ms, received_at = self._received
        if now_ms != received_ms:
            # Many come within one millisecond. Put in place at once: samplers' threads take it too.
            received_at = (RECEIVED_AT, wire.format_time(now_ms * 1000).encode())
            self._received = (now_ms, received_at)
        return ((_MQTT_TOPIC, mqtt_topic.encode()), received_at)
