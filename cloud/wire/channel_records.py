"""The record of a channel and its calibration (``gateway.channels``), for the gateway and its readers.

A reading names its record by ``cal``. What determines the value and its uncertainty (docs/analyse.md) never
changes under one ``cal``; of the rest the highest ``revision`` counts. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from cloud.wire.fields import MAX_INT53, Decoder, InvalidFields, check_label, format_time, time_of, to_json
from cloud.wire.reading_records import UNITS, VERSION, GatewayId, Version

CHANNELS_TOPIC: Final = "gateway.channels"
MAX_LABEL: Final = 128
"""Characters of a model, a serial number, a laboratory, a certificate."""
MAX_RECORD_BYTES: Final = 256 << 10
"""A record is some 700 bytes, and 55 for each further period it was in force."""
MAX_PERIODS: Final = 1_000
MAX_SETTINGS: Final = 64

InvalidChannel = InvalidFields
"""What ``parse_channel`` raises."""

Setting = str | int | float | bool

_LONG: Final = {"certificate", "lab", "model", "serial"}
"""Labels of up to ``MAX_LABEL`` characters."""


@dataclass(frozen=True, slots=True)
class Period:
    """A time in force: ``begin_us`` included, ``end_us`` not; microseconds since the epoch.

    None is unknown (the clock was not set then), and as the end of a record in force that there is none yet.
    """

    begin_us: int | None
    end_us: int | None = None


@dataclass(frozen=True, slots=True)
class ChannelRecord:
    """One channel with one calibration. Accuracy is ±(``accuracy`` in ``unit`` + ``accuracy_percent`` of it).

    ``range`` is the sensor's own, in ``unit``. ``settings`` are the driver's options that shape the value,
    ``said`` is what the sensor reports of itself. ``extra`` holds fields that this version doesn't have.
    """

    gateway: str
    sensor: str
    quantity: str
    cal: str
    revision: int
    in_force: bool
    periods: tuple[Period, ...]
    unit: str
    driver: str
    interval_s: float
    range: tuple[float, float]
    raw_unit: str | None = None
    slope: float | None = None
    offset: float | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict)
    accuracy: float | None = None
    accuracy_percent: float | None = None
    model: str | None = None
    serial: str | None = None
    certificate: str | None = None
    lab: str | None = None
    calibrated: date | None = None
    expires: date | None = None
    height_m: float | None = None
    boom_deg: float | None = None
    pair: str | None = None
    said: Mapping[str, Setting] = field(default_factory=dict)
    extra: Mapping[str, Any] | None = None

    @property
    def channel(self) -> str:
        """``{sensor}.{quantity}``."""
        return f"{self.sensor}.{self.quantity}"

    @property
    def valid_from_us(self) -> int | None:
        """When it was first in force."""
        return self.periods[0].begin_us

    @property
    def valid_to_us(self) -> int | None:
        """When it was last in force; None while it is."""
        return self.periods[-1].end_us


def channel_key(gateway: str, channel: str, cal: str) -> bytes:
    """Kafka key: of each record its topic keeps the last."""
    return f"{gateway}/{channel}/{cal}".encode()


class _Fields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A record's fields by type, in the order in which they are written."""

    v: Version
    gateway: GatewayId
    channel: str
    cal: Annotated[str, Meta(pattern=r"^[0-9a-f]{8}\Z")]
    revision: Annotated[int, Meta(ge=1, le=MAX_INT53)]
    in_force: bool
    valid_from: str | None = None
    valid_to: str | None = None
    periods: list[tuple[str | None, str | None]]
    sensor: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
    quantity: Annotated[str, Meta(pattern=r"^[a-z0-9_]{1,64}\Z")]
    unit: str | None = None
    raw_unit: str | None = None
    driver: str | None = None
    interval_s: float | None
    slope: float | None = None
    offset: float | None = None
    settings: dict[str, Setting] | None = None
    range: tuple[float, float]
    accuracy: float | None = None
    accuracy_percent: float | None = None
    model: str | None = None
    serial: str | None = None
    certificate: str | None = None
    lab: str | None = None
    calibrated: date | None = None
    expires: date | None = None
    height_m: float | None = None
    boom_deg: float | None = None
    pair: str | None = None
    said: dict[str, Setting] | None = None


_DECODER: Final = Decoder(_Fields, MAX_RECORD_BYTES)
_AS_THEY_ARE: Final = {field.name for field in fields(ChannelRecord)} - {
    "periods",
    "settings",
    "said",
    "extra",
}
_LABELS: Final = ("unit", "driver", "raw_unit", "pair", *sorted(_LONG))


def encode_channel(record: ChannelRecord) -> bytes:
    """The JSON bytes of a record."""
    periods = [[_time(period.begin_us), _time(period.end_us)] for period in record.periods]
    written = {
        "v": VERSION,
        "valid_from": periods[0][0],
        "valid_to": periods[-1][1],
        "periods": periods,
        "settings": dict(record.settings),
        "said": dict(record.said),
    }
    known = {name: written.get(name, getattr(record, name, None)) for name in _Fields.__struct_fields__}
    return to_json(known | dict(record.extra or {}))


def parse_channel(payload: bytes) -> ChannelRecord:
    """The record in a payload. Raises InvalidChannel with the first problem found."""
    found, extra = _DECODER.decode(payload)
    if found.channel != f"{found.sensor}.{found.quantity}":
        raise InvalidChannel("INCONSISTENT", f"channel must be {found.sensor}.{found.quantity}")
    for name in _LABELS:
        check_label(name, getattr(found, name), MAX_LABEL if name in _LONG else MAX_LABEL // 2)
    for name in ("unit", "driver"):
        if not getattr(found, name):
            raise InvalidChannel("MISSING_FIELD", f"{name} is missing")
    if UNITS.get(found.quantity, found.unit) != found.unit:
        raise InvalidChannel(
            "WRONG_UNIT", f"{found.quantity} is in {UNITS[found.quantity]}, not {found.unit}"
        )
    if found.interval_s is None or found.interval_s <= 0:
        raise InvalidChannel("OUT_OF_RANGE", "interval_s must be above 0")
    if found.range[0] >= found.range[1]:
        raise InvalidChannel("OUT_OF_RANGE", "range must be a lower and a higher number")
    record = ChannelRecord(
        **{name: getattr(found, name) for name in _AS_THEY_ARE},
        periods=_periods(found),
        settings=_settings("settings", found.settings),
        said=_settings("said", found.said),
        extra=extra,
    )
    if record.in_force and record.valid_to_us is not None:
        raise InvalidChannel("INCONSISTENT", "a record in force has no valid_to")
    return record


def _periods(found: _Fields) -> tuple[Period, ...]:
    if not 1 <= len(found.periods) <= MAX_PERIODS:
        raise InvalidChannel("OUT_OF_RANGE", f"there must be 1 to {MAX_PERIODS} periods")
    periods = tuple(Period(*(_parsed("periods", end) for end in period)) for period in found.periods)
    bounds = _parsed("valid_from", found.valid_from), _parsed("valid_to", found.valid_to)
    if bounds != (periods[0].begin_us, periods[-1].end_us):
        raise InvalidChannel("INCONSISTENT", "valid_from and valid_to must be those of the periods")
    return periods


def _settings(name: str, settings: Mapping[str, Setting] | None) -> Mapping[str, Setting]:
    settings = settings or {}
    if len(settings) > MAX_SETTINGS:
        raise InvalidChannel("WRONG_TYPE", f"{name} must be an object of at most {MAX_SETTINGS} fields")
    for key, setting in settings.items():
        check_label(name, key, MAX_LABEL)
        if isinstance(setting, str):
            check_label(f"{name}.{key}", setting, MAX_LABEL)
    return settings


def _parsed(name: str, text: str | None) -> int | None:
    return None if text is None else time_of(name, text)


def _time(time_us: int | None) -> str | None:
    return None if time_us is None else format_time(time_us)
