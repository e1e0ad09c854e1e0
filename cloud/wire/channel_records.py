"""The record of a channel and its calibration (``gateway.channels``), for the gateway and its readers.

A reading names its record by ``cal``. What determines the value and its uncertainty (docs/numbers.md) never
changes under one ``cal``; of the rest the highest ``revision`` counts. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from cloud.wire.bounds import Degrees, HeightM, IntervalS, Number, Revision, is_day, is_within
from cloud.wire.fields import InvalidFields, check_label, convert, format_time, split_object, time_of, to_json
from cloud.wire.quantities import unit_problem
from cloud.wire.reading_records import VERSION, GatewayId, Version

CHANNELS_TOPIC: Final = "gateway.channels"
MAX_LABEL: Final = 128
"""Characters of a model, a serial number, a laboratory, a certificate."""
MAX_RECORD_BYTES: Final = 256 << 10
"""A record is some 700 bytes, and 55 for each further period it was in force."""
MAX_PERIODS: Final = 1_000
MAX_SETTINGS: Final = 64

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

    ``range`` is the sensor's own, in ``unit``; ``kind`` is the quantity's.
    ``settings`` are the driver's options that shape the value, ``reported`` is what the sensor reports.
    ``extra`` holds fields that this version doesn't have.
    """

    gateway: GatewayId
    sensor: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
    quantity: Annotated[str, Meta(pattern=r"^[a-z0-9_]{1,64}\Z")]
    cal: Annotated[str, Meta(pattern=r"^[0-9a-f]{8}\Z")]
    revision: Revision
    in_force: bool
    periods: tuple[Period, ...]
    unit: Annotated[str, Meta(min_length=1)]
    driver: Annotated[str, Meta(min_length=1)]
    interval_s: IntervalS
    range: tuple[Number, Number]
    kind: str
    raw_unit: str | None = None
    slope: Number | None = None
    offset: Number | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict)
    accuracy: Number | None = None
    accuracy_percent: Number | None = None
    model: str | None = None
    serial: str | None = None
    certificate: str | None = None
    lab: str | None = None
    calibrated: date | None = None
    expires: date | None = None
    height_m: HeightM | None = None
    boom_deg: Degrees | None = None
    pair: str | None = None
    reported: Mapping[str, Setting] = field(default_factory=dict)
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


class _Written(msgspec.Struct):
    """What is written of a record beside its own fields, or in another form."""

    v: Version
    channel: str
    periods: list[tuple[str | None, str | None]]
    valid_from: str | None = None
    valid_to: str | None = None


_NAMES: Final = (
    *("v", "gateway", "channel", "cal", "revision", "in_force", "valid_from", "valid_to", "periods"),
    *("sensor", "quantity", "unit", "kind", "raw_unit", "driver", "interval_s", "slope", "offset"),
    *("settings", "range", "accuracy", "accuracy_percent", "model", "serial", "certificate", "lab"),
    *("calibrated", "expires", "height_m", "boom_deg", "pair", "reported"),
)
"""A record's fields in the order in which they are written."""
_LABELS: Final = ("unit", "kind", "driver", "raw_unit", "pair", *sorted(_LONG))


def encode_channel(record: ChannelRecord) -> bytes:
    """The JSON bytes of a record."""
    periods = [[_time(period.begin_us), _time(period.end_us)] for period in record.periods]
    written = {
        "v": VERSION,
        "valid_from": periods[0][0],
        "valid_to": periods[-1][1],
        "periods": periods,
        "settings": dict(record.settings),
        "reported": dict(record.reported),
    }
    known = {name: written.get(name, getattr(record, name, None)) for name in _NAMES}
    return to_json(known | dict(record.extra or {}))


def parse_channel(payload: bytes) -> ChannelRecord:
    """The record in a payload. Raises InvalidFields with the first problem found."""
    fields, extra = split_object(payload, MAX_RECORD_BYTES, _NAMES)
    given = {name: value for name, value in fields.items() if value is not None}
    periods = _periods(convert(given, _Written))
    record = convert({**given, "periods": periods, "extra": extra}, ChannelRecord)
    if given["channel"] != record.channel:
        raise InvalidFields("INCONSISTENT", f"channel must be {record.channel}")
    for name in _LABELS:
        check_label(name, getattr(record, name), MAX_LABEL if name in _LONG else MAX_LABEL // 2)
    if problem := unit_problem(record.quantity, record.unit):
        raise InvalidFields("WRONG_UNIT", problem)
    if record.range[0] >= record.range[1]:
        raise InvalidFields("OUT_OF_RANGE", "range must be a lower and a higher number")
    if not (is_day(record.calibrated) and is_day(record.expires)):
        raise InvalidFields("OUT_OF_RANGE", "calibrated and expires must be days of our time")
    _check_settings("settings", record.settings)
    _check_settings("reported", record.reported)
    if record.in_force and record.valid_to_us is not None:
        raise InvalidFields("INCONSISTENT", "a record in force has no valid_to")
    return record


def _periods(written: _Written) -> list[dict[str, int | None]]:
    """The periods as those of a ChannelRecord."""
    if not 1 <= len(written.periods) <= MAX_PERIODS:
        raise InvalidFields("OUT_OF_RANGE", f"there must be 1 to {MAX_PERIODS} periods")
    periods = [tuple(_parsed("periods", end) for end in period) for period in written.periods]
    bounds = _parsed("valid_from", written.valid_from), _parsed("valid_to", written.valid_to)
    if bounds != (periods[0][0], periods[-1][1]):
        raise InvalidFields("INCONSISTENT", "valid_from and valid_to must be those of the periods")
    return [{"begin_us": begin_us, "end_us": end_us} for begin_us, end_us in periods]


def _check_settings(name: str, settings: Mapping[str, Setting]) -> None:
    if len(settings) > MAX_SETTINGS:
        raise InvalidFields("WRONG_TYPE", f"{name} must be an object of at most {MAX_SETTINGS} fields")
    for key, setting in settings.items():
        check_label(name, key, MAX_LABEL)
        if isinstance(setting, str):
            check_label(f"{name}.{key}", setting, MAX_LABEL)
        elif not is_within(setting):
            raise InvalidFields("OUT_OF_RANGE", f"{name}.{key} is beyond all bounds")


def _parsed(name: str, text: str | None) -> int | None:
    return None if text is None else time_of(name, text)


def _time(time_us: int | None) -> str | None:
    return None if time_us is None else format_time(time_us)
