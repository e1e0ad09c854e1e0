"""The wire format: one reading, one dead letter; shared by the gateway and the Spark jobs.

Pure: no I/O, no clock. ``parse_reading`` is the one place that decides whether bytes are a reading, so the
gateway and the pipeline can never disagree about it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from cloud.wire.bounds import MAX_MONO_MS, Count, HeightM, Number, PeriodMs, Seq
from cloud.wire.fields import (
    UNDECODABLE,
    InvalidFields,
    check_label,
    check_name,
    convert,
    format_time as format_time,
    parse_time as parse_time,
    split_object,
    time_of,
    to_json,
)
from cloud.wire.quantities import unit_problem

VERSION: Final = 1

RAW_TOPIC: Final = "mqtt.raw"
DEAD_LETTER_TOPIC: Final = "gateway.dead-letter"
RUNS_TOPIC: Final = "gateway.runs"
EVENTS_TOPIC: Final = "gateway.events"
STATUS_TOPIC: Final = "gateway.status"
ALERTS_TOPIC: Final = "gateway.alerts"
COMMANDS_TOPIC: Final = "gateway.commands"
COMMAND_RESULTS_TOPIC: Final = "gateway.command-results"
READING_TOPIC_PREFIX: Final = "mqtt."

GOOD, NOT_EVALUATED, SUSPECT, FAIL, MISSING = 1, 2, 3, 4, 9
"""QARTOD flags (US IOOS, Manual for Real-Time Quality Control)."""
QUALITIES: Final[Mapping[int, str]] = {
    GOOD: "good",
    NOT_EVALUATED: "not evaluated",
    SUSPECT: "suspect",
    FAIL: "fail",
    MISSING: "missing",
}
"""Their names."""

SYNCED, UNSYNCED, REPAIRED = "synced", "unsynced", "repaired"
"""A reading's ``clock``, how far its time can be trusted: right, unknown, worked out later (right too)."""
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

GATEWAY_ID: Final = re.compile(r"[a-z0-9-]{1,63}", re.ASCII)
CHANNEL_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}\.[a-z0-9_]{1,64}", re.ASCII)
RUN_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
IMPORT_RUN: Final = "import-"
"""How ``run`` of readings begins that another logger's file has brought into the lake: no gateway's does."""
_REASON: Final = re.compile(r"[A-Z0-9_]{1,64}", re.ASCII)

_MAX_REASONS: Final = 32
_LABELS: Final = ("quantity", "unit", "raw_unit", "clock", "cal")

InvalidReading = InvalidFields
"""What ``parse_reading`` raises."""

Version = Annotated[int, Meta(ge=VERSION, le=VERSION)]
"""The field ``v`` of every record."""
GatewayId = Annotated[str, Meta(pattern=f"^{GATEWAY_ID.pattern}\\Z")]
ChannelId = Annotated[str, Meta(pattern=f"^{CHANNEL_ID.pattern}\\Z")]
RunId = Annotated[str, Meta(pattern=f"^{RUN_ID.pattern}\\Z")]


class ReadingFields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A reading's fields by type, in the order in which they are written.

    ``boot`` and ``mono_ms`` are not among them: they mean something in an unsynced reading alone.
    """

    v: Version
    gateway: str
    channel: str
    quantity: str | None = None
    unit: str | None = None
    time: str
    period_ms: PeriodMs
    value: Number | None
    raw: Number | None = None
    raw_unit: str | None = None
    quality: Literal[1, 2, 3, 4, 9]
    reasons: tuple[str, ...]
    run: str
    seq: Seq
    clock: str | None = None
    cal: str | None = None
    latitude: Annotated[float, Meta(ge=-90, le=90)] | None = None
    longitude: Annotated[float, Meta(ge=-180, le=180)] | None = None
    altitude_m: HeightM | None = None


class _SinceBoot(msgspec.Struct):
    boot: Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]{1,64}\Z")] | msgspec.UnsetType = msgspec.UNSET
    mono_ms: Annotated[int, Meta(ge=0, le=MAX_MONO_MS)] | msgspec.UnsetType = msgspec.UNSET


class _Claimed(msgspec.Struct):
    gateway: GatewayId
    channel: ChannelId
    run: RunId
    seq: Seq


decode_known: Final = msgspec.json.Decoder(ReadingFields).decode
"""The fields of a reading that has no others; raises what msgspec raises, whatever the bytes."""
_CLAIMED_DECODER: Final = msgspec.json.Decoder(_Claimed)


@dataclass(frozen=True, slots=True)
class Reading:
    """Raw, value and quality of one channel over one period.

    ``time_us`` is the start of the period, microseconds since 1970-01-01T00:00Z. Where ``clock`` is
    "unsynced" it is by a clock that was never set, and ``boot`` (the kernel's boot id) and ``mono_ms``
    (milliseconds since that boot) give its time; "repaired" was worked out from these. ``extra`` holds
    fields this version doesn't have. The identity is (gateway, channel, run, seq).
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
    return to_json(fields)


def check_constants(fields: ReadingFields) -> None:
    """Refuse names, texts and units that no reading has. These change seldom from one reading to the next."""
    check_name("gateway", fields.gateway, GATEWAY_ID)
    check_name("channel", fields.channel, CHANNEL_ID)
    check_name("run", fields.run, RUN_ID)
    for name in _LABELS:
        check_label(name, getattr(fields, name))
    quantity = fields.channel.partition(".")[2]
    if fields.quantity != quantity:
        raise InvalidReading(
            "INCONSISTENT", f"quantity must be {quantity!r}, the end of channel {fields.channel!r}"
        )
    if not fields.unit:
        raise InvalidReading("MISSING_FIELD", "unit is missing")
    if problem := unit_problem(quantity, fields.unit):
        raise InvalidReading("WRONG_UNIT", problem)
    if len(fields.reasons) > _MAX_REASONS or not all(map(_REASON.fullmatch, fields.reasons)):
        raise InvalidReading(
            "BAD_NAME", f"reasons must be at most {_MAX_REASONS} words matching {_REASON.pattern}"
        )
    if fields.clock not in (SYNCED, UNSYNCED, REPAIRED):
        raise InvalidReading("BAD_NAME", f"clock must be {SYNCED!r}, {UNSYNCED!r} or {REPAIRED!r}")


def _since_boot(unknown: dict[str, Any]) -> tuple[str | None, int | None]:
    """The boot id and the milliseconds since that boot, taken out of an unsynced reading's other fields."""
    fields = convert({name: unknown.pop(name) for name in ("boot", "mono_ms") if name in unknown}, _SinceBoot)
    boot = None if fields.boot is msgspec.UNSET else fields.boot
    return boot, None if fields.mono_ms is msgspec.UNSET else fields.mono_ms


def decode_fields(payload: bytes) -> tuple[ReadingFields, dict[str, Any] | None]:
    """A reading's fields, and those that this version doesn't have. Raises InvalidReading."""
    if len(payload) <= MAX_READING_BYTES:
        try:
            return decode_known(payload), None
        except UNDECODABLE:
            # It has other fields too, or is none.
            pass
    known, extra = split_object(payload, MAX_READING_BYTES, ReadingFields.__struct_fields__)
    return convert(known, ReadingFields), extra


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
    without it the future isn't checked. An ``unrepaired`` reading that has ``boot`` and ``mono_ms`` may
    be of any time, for it will be another. Raises InvalidReading with the first problem found.
    """
    fields, extra = decode_fields(payload)
    check_constants(fields)
    if (fields.value is None) != (fields.quality == MISSING):
        raise InvalidReading("INCONSISTENT", "value is null exactly when quality is 9 (missing)")
    # They are fields like any other that this version doesn't have where the clock is right.
    boot, mono_ms = _since_boot(extra) if extra and fields.clock == UNSYNCED else (None, None)
    time_us = time_of("time", fields.time)
    if not unrepaired or boot is None or mono_ms is None:
        _check_time(time_us, received_us)
    _, gateway, channel, quantity, unit, _, *rest = msgspec.structs.astuple(fields)
    rest += [boot, mono_ms, extra or None]
    return Reading(gateway, channel, quantity, unit, time_us, *rest)


def claimed_identity(payload: bytes) -> tuple[str, str, str, int] | None:
    """Which reading a payload claims to be, whether or not it is one; None where it names none."""
    if len(payload) > MAX_READING_BYTES:
        return None
    try:
        claimed = _CLAIMED_DECODER.decode(payload)
    except UNDECODABLE:
        return None
    return claimed.gateway, claimed.channel, claimed.run, claimed.seq


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that can't be forwarded as what it claims to be, kept with its reason.

    ``payload`` is the first 64 KiB, on the wire in base64; ``payload_bytes`` and ``sha256`` (hex) are of the
    whole. ``received_at`` is RFC 3339.
    """

    v: int = VERSION
    gateway: str
    reason: Annotated[str, Meta(pattern=f"^{_REASON.pattern}\\Z")]
    detail: str
    source: str
    received_at: str
    payload: bytes
    payload_bytes: Count
    sha256: str
    run: str
    seq: Count


_LETTER_DECODER: Final = msgspec.json.Decoder(DeadLetter)


def dead_letter(
    gateway: str, run: str, seq: int, reason: str, detail: str, source: str, received_us: int, payload: bytes
) -> DeadLetter:
    """The dead letter of a whole payload; ``source`` is its MQTT topic."""
    return DeadLetter(
        gateway=gateway,
        reason=reason,
        detail=detail,
        source=source,
        received_at=format_time(received_us),
        payload=payload[:DEAD_LETTER_PAYLOAD_BYTES],
        payload_bytes=len(payload),
        sha256=hashlib.sha256(payload).hexdigest(),
        run=run,
        seq=seq,
    )


def encode_dead_letter(letter: DeadLetter) -> bytes:
    """The JSON bytes of a dead letter."""
    return msgspec.json.encode(letter)


def parse_dead_letter(value: bytes) -> DeadLetter:
    """The dead letter in a Kafka record; unknown fields are ignored. Raises InvalidReading."""
    try:
        letter = _LETTER_DECODER.decode(value)
        parse_time(letter.received_at)
    except (*UNDECODABLE, ValueError) as error:
        raise InvalidReading("BAD_DEAD_LETTER", f"{type(error).__name__}: {error}") from error
    return letter
