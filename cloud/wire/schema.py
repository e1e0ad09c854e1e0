"""The wire format: one reading, one dead letter; shared by the gateway and the Spark jobs.

Pure: no I/O, no clock, standard library only. ``parse_reading`` is the one place that decides whether bytes
are a reading, so the gateway and the pipeline can never disagree about it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cloud.wire.fields import Fields, InvalidFields, load_object
from cloud.wire.fields import format_time as format_time
from cloud.wire.fields import parse_time as parse_time

VERSION: Final = 1

UNITS: Final[Mapping[str, str]] = {
    "temperature": "Cel",
    "humidity": "%RH",
    "pressure": "kPa",
    "wind_speed": "m/s",
    "irradiance": "W/m2",
    "co2": "ppm",
    "location": "m",
}
"""Unit of each quantity we name (UCUM where it has one)."""

RAW_TOPIC: Final = "mqtt.raw"
DEAD_LETTER_TOPIC: Final = "gateway.dead-letter"
RUNS_TOPIC: Final = "gateway.runs"
EVENTS_TOPIC: Final = "gateway.events"
STATUS_TOPIC: Final = "gateway.status"
ALERTS_TOPIC: Final = "gateway.alerts"
COMMANDS_TOPIC: Final = "gateway.commands"
READING_TOPIC_PREFIX: Final = "mqtt."

GOOD, NOT_EVALUATED, SUSPECT, FAIL, MISSING = 1, 2, 3, 4, 9
"""QARTOD flags (US IOOS, Manual for Real-Time Quality Control)."""
_QUALITIES: Final = frozenset({GOOD, NOT_EVALUATED, SUSPECT, FAIL, MISSING})

SYNCED, UNSYNCED, REPAIRED = "synced", "unsynced", "repaired"
"""What a reading's ``clock`` says of its time: right, unknown, worked out afterwards (right too)."""
CLOCK_UNSYNCED: Final = "CLOCK_UNSYNCED"
"""The reason that goes with ``unsynced``."""

MAX_PAYLOAD_BYTES: Final = 1 << 20
"""Larger messages are refused unread: Kafka brokers refuse them by default too (message.max.bytes)."""
MAX_READING_BYTES: Final = 64 << 10
"""A reading is some 350 bytes; one with more unknown fields than fit here is a fault."""
DEAD_LETTER_PAYLOAD_BYTES: Final = 64 << 10
"""How much of a refused payload a dead letter carries."""

OLDEST_TIME_US: Final = 946_684_800_000_000
"""2000-01-01T00:00Z: anything earlier is a clock that was never set."""
MAX_AHEAD_US: Final = 600_000_000
"""A reading may be this far ahead of its receipt (10 minutes)."""

_MAX_INT64: Final = (1 << 63) - 1
_MAX_INT32: Final = (1 << 31) - 1
# Exact in every JSON reader.
_MAX_INT53: Final = (1 << 53) - 1
GATEWAY_ID: Final = re.compile(r"[a-z0-9-]{1,63}", re.ASCII)
CHANNEL_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}\.[a-z0-9_]{1,64}", re.ASCII)
RUN_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_BOOT: Final = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_REASON: Final = re.compile(r"[A-Z0-9_]{1,64}", re.ASCII)

InvalidReading = InvalidFields
"""What ``parse_reading`` raises."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Raw, value and quality of one channel over one period.

    ``time_us`` is the start of the period, microseconds since 1970-01-01T00:00Z. Where ``clock`` is
    "unsynced" it is by a clock that was never set, and ``boot`` (the kernel's boot id) and ``mono_ms``
    (milliseconds since that boot) say when it was; "repaired" was worked out from these. ``extra`` holds
    fields this version doesn't know. The identity is (gateway, channel, run, seq).
    """

    gateway: str
    channel: str
    quantity: str
    unit: str
    time_us: int
    period_ms: int
    value: float | None
    raw: float | None
    raw_unit: str | None
    quality: int
    reasons: tuple[str, ...]
    run: str
    seq: int
    clock: str
    cal: str | None
    latitude: float | None = None
    longitude: float | None = None
    altitude_m: float | None = None
    boot: str | None = None
    mono_ms: int | None = None
    extra: Mapping[str, Any] | None = None

    @property
    def identity(self) -> tuple[str, str, str, int]:
        """What makes a reading the same reading, however often it arrives."""
        return (self.gateway, self.channel, self.run, self.seq)


def reading_topic(template: str, quantity: str) -> str:
    """Kafka topic of a quantity, e.g. ``mqtt.wind_speed`` from ``mqtt.{quantity}``."""
    return template.replace("{quantity}", quantity)


def reading_key(gateway: str, channel: str) -> bytes:
    """Kafka key: one channel's readings stay in one partition."""
    return f"{gateway}/{channel}".encode()


def encode_reading(reading: Reading) -> bytes:
    """The JSON bytes of a reading, the same on MQTT and Kafka."""
    fields: dict[str, Any] = {
        "v": VERSION,
        "gateway": reading.gateway,
        "channel": reading.channel,
        "quantity": reading.quantity,
        "unit": reading.unit,
        "time": format_time(reading.time_us),
        "period_ms": reading.period_ms,
        "value": reading.value,
        "raw": reading.raw,
        "raw_unit": reading.raw_unit,
        "quality": reading.quality,
        "reasons": reading.reasons,
        "run": reading.run,
        "seq": reading.seq,
        "clock": reading.clock,
        "cal": reading.cal,
    }
    for name in ("latitude", "longitude", "altitude_m", "boot", "mono_ms"):
        present = getattr(reading, name)
        if present is not None:
            fields[name] = present
    if reading.extra:
        fields.update(reading.extra)
    return json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()


class _Fields(Fields):
    """What only readings have."""

    def since_boot(self) -> tuple[str | None, int | None]:
        """The boot id and the milliseconds since that boot, each where it is there."""
        boot = self.text("boot", _BOOT) if "boot" in self.left else None
        return boot, self.integer("mono_ms", 0, _MAX_INT53) if "mono_ms" in self.left else None

    def reasons(self) -> tuple[str, ...]:
        value = self.take("reasons")
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise InvalidReading("WRONG_TYPE", "reasons must be a list of words")
        if len(value) > 32 or not all(_REASON.fullmatch(word) for word in value):
            raise InvalidReading("BAD_NAME", f"reasons must be at most 32 words matching {_REASON.pattern}")
        return tuple(value)

    def tells_since_boot(self) -> bool:
        """Whether the reading can be repaired: its time is not what it will be."""
        return self.left.get("clock") == UNSYNCED and {"boot", "mono_ms"} <= self.left.keys()


def _check_time(time_us: int, received_us: int | None) -> None:
    if time_us < OLDEST_TIME_US:
        raise InvalidReading("TIME_TOO_OLD", f"{format_time(time_us)} is before 2000")
    if received_us is not None and time_us > received_us + MAX_AHEAD_US:
        raise InvalidReading(
            "TIME_IN_FUTURE", f"{format_time(time_us)} is over 10 minutes ahead of its receipt"
        )


def parse_reading(payload: bytes, received_us: int | None = None, *, unrepaired: bool = False) -> Reading:
    """The reading in a payload.

    ``received_us`` is when it was received, microseconds since the epoch (Kafka's timestamp in the pipeline);
    without it the future isn't checked. With ``unrepaired`` a reading that has ``boot`` and ``mono_ms`` may
    be of any time, for it will be another. Raises InvalidReading with the first problem found.
    """
    if len(payload) > MAX_READING_BYTES:
        raise InvalidReading("TOO_LARGE", f"{len(payload)} bytes, at most {MAX_READING_BYTES}")
    fields = _Fields(load_object(payload))
    fields.integer("v", VERSION, VERSION)
    gateway = fields.text("gateway", GATEWAY_ID)
    channel = fields.text("channel", CHANNEL_ID)
    quantity = channel.partition(".")[2]
    if fields.label("quantity") != quantity:
        raise InvalidReading("INCONSISTENT", f"quantity must be {quantity!r}, the end of channel {channel!r}")
    unit = fields.label("unit")
    if not unit:
        raise InvalidReading("MISSING_FIELD", "unit is missing")
    if UNITS.get(quantity, unit) != unit:
        raise InvalidReading("WRONG_UNIT", f"{quantity} is in {UNITS[quantity]}, not {unit}")
    time_us = fields.time()
    if not (unrepaired and fields.tells_since_boot()):
        _check_time(time_us, received_us)
    period_ms = fields.integer("period_ms", 1, _MAX_INT32)
    value = fields.number("value", required=True)
    raw = fields.number("raw")
    raw_unit = fields.label("raw_unit")
    quality = fields.integer("quality", GOOD, MISSING)
    if quality not in _QUALITIES:
        raise InvalidReading("OUT_OF_RANGE", f"quality {quality} is not a QARTOD flag (1, 2, 3, 4, 9)")
    if (value is None) != (quality == MISSING):
        raise InvalidReading("INCONSISTENT", "value is null exactly when quality is 9 (missing)")
    reasons = fields.reasons()
    run = fields.text("run", RUN_ID)
    seq = fields.integer("seq", 1, _MAX_INT64)
    clock = fields.label("clock")
    if clock not in (SYNCED, UNSYNCED, REPAIRED):
        raise InvalidReading("BAD_NAME", f"clock must be {SYNCED!r}, {UNSYNCED!r} or {REPAIRED!r}")
    cal = fields.label("cal")
    latitude, longitude = fields.number("latitude"), fields.number("longitude")
    if abs(latitude or 0.0) > 90 or abs(longitude or 0.0) > 180:
        raise InvalidReading("OUT_OF_RANGE", f"no place on Earth is at {latitude}, {longitude}")
    altitude_m = fields.number("altitude_m")
    # With a clock that is right they are fields like any other that this version doesn't know.
    boot, mono_ms = fields.since_boot() if clock == UNSYNCED else (None, None)
    return Reading(
        gateway,
        channel,
        quantity,
        unit,
        time_us,
        period_ms,
        value,
        raw,
        raw_unit,
        quality,
        reasons,
        run,
        seq,
        clock,
        cal,
        latitude,
        longitude,
        altitude_m,
        boot,
        mono_ms,
        fields.rest(),
    )


def claimed_identity(payload: bytes) -> tuple[str, str, str, int] | None:
    """Which reading a payload claims to be, whether or not it is one; None where it doesn't say."""
    if len(payload) > MAX_READING_BYTES:
        return None
    try:
        fields = Fields(load_object(payload))
        return (
            fields.text("gateway", GATEWAY_ID),
            fields.text("channel", CHANNEL_ID),
            fields.text("run", RUN_ID),
            fields.integer("seq", 1, _MAX_INT64),
        )
    except InvalidFields:
        return None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that can't be forwarded as what it claims to be, kept with its reason.

    ``payload`` is the first 64 KiB; ``payload_bytes`` and ``sha256`` (hex) are of the whole.
    """

    gateway: str
    reason: str
    detail: str
    source: str
    received_us: int
    payload: bytes
    payload_bytes: int
    sha256: str
    run: str
    seq: int


def dead_letter(
    gateway: str, run: str, seq: int, reason: str, detail: str, source: str, received_us: int, payload: bytes
) -> DeadLetter:
    """The dead letter of a whole payload; ``source`` is its MQTT topic."""
    return DeadLetter(
        gateway,
        reason,
        detail,
        source,
        received_us,
        payload[:DEAD_LETTER_PAYLOAD_BYTES],
        len(payload),
        hashlib.sha256(payload).hexdigest(),
        run,
        seq,
    )


def encode_dead_letter(letter: DeadLetter) -> bytes:
    """JSON with the payload in base64: it may be any bytes at all."""
    fields = {
        "v": VERSION,
        "gateway": letter.gateway,
        "reason": letter.reason,
        "detail": letter.detail,
        "source": letter.source,
        "received_at": format_time(letter.received_us),
        "payload": base64.b64encode(letter.payload).decode(),
        "payload_bytes": letter.payload_bytes,
        "sha256": letter.sha256,
        "run": letter.run,
        "seq": letter.seq,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def parse_dead_letter(value: bytes) -> DeadLetter:
    """The dead letter in a Kafka record. Raises InvalidReading."""
    fields = load_object(value)
    try:
        return DeadLetter(
            gateway=str(fields["gateway"]),
            reason=str(fields["reason"]),
            detail=str(fields["detail"]),
            source=str(fields["source"]),
            received_us=parse_time(fields["received_at"]),
            payload=base64.b64decode(fields["payload"], validate=True),
            payload_bytes=int(fields["payload_bytes"]),
            sha256=str(fields["sha256"]),
            run=str(fields["run"]),
            seq=int(fields["seq"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidReading("BAD_DEAD_LETTER", f"{type(error).__name__}: {error}") from error
