"""The record of a channel and its calibration (``gateway.channels``), for the gateway and its readers.

A reading names its record by ``cal``. What determines the value and its uncertainty (docs/analyse.md)
never changes under one ``cal``; what a record says beside it (interval, pair, what the sensor tells of
itself, when it was in force) is the latest, and the highest ``revision`` counts. Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Final

from cloud.wire.fields import Fields, InvalidFields, format_time, load_object, parse_time
from cloud.wire.schema import GATEWAY_ID, UNITS, VERSION

CHANNELS_TOPIC: Final = "gateway.channels"
MAX_LABEL: Final = 128
"""Characters of a model, a serial number, a laboratory, a certificate."""
MAX_RECORD_BYTES: Final = 256 << 10
"""A record is some 700 bytes, and 55 for each further period it was in force."""
MAX_PERIODS: Final = 1_000
MAX_SETTINGS: Final = 64

InvalidChannel = InvalidFields
"""What ``parse_channel`` raises."""

Setting = str | float | bool

_SENSOR: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_QUANTITY: Final = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)
_CAL: Final = re.compile(r"[0-9a-f]{8}", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MAX_INT53: Final = (1 << 53) - 1


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
    ``said`` is what the sensor tells of itself. ``extra`` holds fields this version doesn't know.
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


def encode_channel(record: ChannelRecord) -> bytes:
    """The JSON bytes of a record."""
    fields: dict[str, Any] = {
        "v": VERSION,
        "gateway": record.gateway,
        "channel": record.channel,
        "cal": record.cal,
        "revision": record.revision,
        "in_force": record.in_force,
        "valid_from": _time(record.valid_from_us),
        "valid_to": _time(record.valid_to_us),
        "periods": [[_time(period.begin_us), _time(period.end_us)] for period in record.periods],
        "sensor": record.sensor,
        "quantity": record.quantity,
        "unit": record.unit,
        "raw_unit": record.raw_unit,
        "driver": record.driver,
        "interval_s": record.interval_s,
        "slope": record.slope,
        "offset": record.offset,
        "settings": dict(record.settings),
        "range": list(record.range),
        "accuracy": record.accuracy,
        "accuracy_percent": record.accuracy_percent,
        "model": record.model,
        "serial": record.serial,
        "certificate": record.certificate,
        "lab": record.lab,
        "calibrated": None if record.calibrated is None else record.calibrated.isoformat(),
        "expires": None if record.expires is None else record.expires.isoformat(),
        "height_m": record.height_m,
        "boom_deg": record.boom_deg,
        "pair": record.pair,
        "said": dict(record.said),
    }
    fields.update(record.extra or {})
    return json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()


def parse_channel(payload: bytes) -> ChannelRecord:
    """The record in a payload. Raises InvalidChannel with the first problem found."""
    if len(payload) > MAX_RECORD_BYTES:
        raise InvalidChannel("TOO_LARGE", f"{len(payload)} bytes, at most {MAX_RECORD_BYTES}")
    fields = _Fields(load_object(payload))
    fields.integer("v", VERSION, VERSION)
    gateway = fields.text("gateway", GATEWAY_ID)
    sensor = fields.text("sensor", _SENSOR)
    quantity = fields.text("quantity", _QUANTITY)
    if fields.take("channel") != f"{sensor}.{quantity}":
        raise InvalidChannel("INCONSISTENT", f"channel must be {sensor}.{quantity}")
    unit = fields.label("unit")
    if not unit:
        raise InvalidChannel("MISSING_FIELD", "unit is missing")
    if UNITS.get(quantity, unit) != unit:
        raise InvalidChannel("WRONG_UNIT", f"{quantity} is in {UNITS[quantity]}, not {unit}")
    record = ChannelRecord(
        gateway=gateway,
        sensor=sensor,
        quantity=quantity,
        cal=fields.text("cal", _CAL),
        revision=fields.integer("revision", 1, _MAX_INT53),
        in_force=fields.truth("in_force"),
        periods=fields.periods(),
        unit=unit,
        driver=fields.required_label("driver"),
        interval_s=fields.positive("interval_s"),
        range=fields.span("range"),
        raw_unit=fields.label("raw_unit"),
        slope=fields.number("slope"),
        offset=fields.number("offset"),
        settings=fields.settings("settings"),
        accuracy=fields.number("accuracy"),
        accuracy_percent=fields.number("accuracy_percent"),
        model=fields.label("model", MAX_LABEL),
        serial=fields.label("serial", MAX_LABEL),
        certificate=fields.label("certificate", MAX_LABEL),
        lab=fields.label("lab", MAX_LABEL),
        calibrated=fields.date("calibrated"),
        expires=fields.date("expires"),
        height_m=fields.number("height_m"),
        boom_deg=fields.number("boom_deg"),
        pair=fields.label("pair"),
        said=fields.settings("said"),
    )
    valid_from, valid_to = fields.optional_time("valid_from"), fields.optional_time("valid_to")
    if (valid_from, valid_to) != (record.valid_from_us, record.valid_to_us):
        raise InvalidChannel("INCONSISTENT", "valid_from and valid_to must be those of the periods")
    if record.in_force and record.valid_to_us is not None:
        raise InvalidChannel("INCONSISTENT", "a record in force has no valid_to")
    # Last, when all that is known has been taken.
    return replace(record, extra=fields.rest())


class _Fields(Fields):
    """What only these records have."""

    def truth(self, name: str) -> bool:
        value = self.take(name)
        if not isinstance(value, bool):
            raise InvalidChannel("WRONG_TYPE", f"{name} must be true or false")
        return value

    def required_label(self, name: str) -> str:
        label = self.label(name)
        if not label:
            raise InvalidChannel("MISSING_FIELD", f"{name} is missing")
        return label

    def positive(self, name: str) -> float:
        number = self.number(name, required=True)
        if number is None or number <= 0:
            raise InvalidChannel("OUT_OF_RANGE", f"{name} must be above 0")
        return number

    def date(self, name: str) -> date | None:
        value = self.left.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, str):
            raise InvalidChannel("WRONG_TYPE", f"{name} must be a string")
        try:
            if _DATE.fullmatch(value) is None:
                raise ValueError(f"{value[:40]!r} is not a date such as 2026-03-12")
            return date.fromisoformat(value)
        except ValueError as error:
            raise InvalidChannel("BAD_TIME", f"{name}: {error}") from error

    def optional_time(self, name: str) -> int | None:
        return _parsed_time(name, self.left.pop(name, None))

    def span(self, name: str) -> tuple[float, float]:
        value = self.take(name)
        if not isinstance(value, list) or len(value) != 2:
            raise InvalidChannel("WRONG_TYPE", f"{name} must be two numbers")
        lower, upper = (Fields({name: end}).number(name, required=True) for end in value)
        if lower is None or upper is None or lower >= upper:
            raise InvalidChannel("OUT_OF_RANGE", f"{name} must be a lower and a higher number")
        return lower, upper

    def periods(self) -> tuple[Period, ...]:
        value = self.take("periods")
        if not isinstance(value, list) or not all(
            isinstance(each, list) and len(each) == 2 for each in value
        ):
            raise InvalidChannel("WRONG_TYPE", "periods must be a list of pairs of times")
        if not 1 <= len(value) <= MAX_PERIODS:
            raise InvalidChannel("OUT_OF_RANGE", f"there must be 1 to {MAX_PERIODS} periods")
        return tuple(
            Period(_parsed_time("periods", begin), _parsed_time("periods", end)) for begin, end in value
        )

    def settings(self, name: str) -> Mapping[str, Setting]:
        value = self.left.pop(name, None) or {}
        if not isinstance(value, dict) or len(value) > MAX_SETTINGS:
            raise InvalidChannel("WRONG_TYPE", f"{name} must be an object of at most {MAX_SETTINGS} fields")
        for key, setting in value.items():
            if not isinstance(setting, str | int | float):
                raise InvalidChannel("WRONG_TYPE", f"{name}.{key[:40]} must be a string, a number or a truth")
            if isinstance(setting, float) and not math.isfinite(setting):
                raise InvalidChannel("NOT_FINITE", f"{name}.{key[:40]} is not finite")
            for text in (key, setting):
                if isinstance(text, str) and (len(text) > MAX_LABEL or not text.isprintable()):
                    raise InvalidChannel(
                        "BAD_NAME", f"{name} must be of at most {MAX_LABEL} printable characters each"
                    )
        return value


def _parsed_time(name: str, value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidChannel("WRONG_TYPE", f"{name} must be a time or null")
    try:
        return parse_time(value)
    except (ValueError, OverflowError) as error:
        raise InvalidChannel("BAD_TIME", f"{name}: {error}") from error


def _time(time_us: int | None) -> str | None:
    return None if time_us is None else format_time(time_us)
