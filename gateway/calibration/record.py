"""A channel's calibration as the config has it: its record, its name and its expiry. Pure.

The name (``cal``) is a digest of what determines a value and its uncertainty, as configured. The program's
own assumptions (an option's default, a datasheet's range) are not in it, so another version of the daemon
derives the same name; slope and offset always are, configured or not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from datetime import date
from itertools import chain
from typing import Any, Final

from cloud.wire.channel_records import MAX_LABEL, ChannelRecord, Period, Setting
from cloud.wire.quantities import Quantity
from drivers.interface import Channel
from drivers.registry import driver_type
from gateway.config.calibration import expiry_date, of_channel
from gateway.config.model import SensorConfig

CALIBRATION_EXPIRED: Final = "CALIBRATION_EXPIRED"
"""The reason of a reading made after its calibration's last day."""

EXPIRES: Final = "cal_expires"
"""Field of a reading that waits for its time: the last day of its calibration."""

_DETERMINING: Final = (
    *("driver", "quantity", "slope", "offset", "model", "serial", "certificate", "lab"),
    *("calibrated", "expires", "height_m", "boom_deg"),
)
"""Fields of a record that are part of its name, besides what is configured of options, range and accuracy."""

_DAY_US: Final = 86_400_000_000
_EPOCH: Final = date(1970, 1, 1).toordinal()


def configured(gateway: str, sensor: SensorConfig, channels: Iterable[Channel]) -> tuple[ChannelRecord, ...]:
    """The record of each of a sensor's channels, in force since an unknown time."""
    return tuple(_record(gateway, sensor, channel) for channel in channels)


def expiry_reasons(expires: date | None, time_us: int) -> tuple[str, ...]:
    """Why a reading of this time is suspect: the last day of its calibration is over, in UTC."""
    over = expires is not None and time_us >= (expires.toordinal() + 1 - _EPOCH) * _DAY_US
    return (CALIBRATION_EXPIRED,) if over else ()


def in_range(channel: Channel, record: ChannelRecord) -> Channel:
    """The channel with its record's range, which may be narrower or wider than the datasheet's."""
    lower, upper = record.range
    return replace(channel, lower=lower, upper=upper)


def expiry_field(record: ChannelRecord) -> dict[str, str]:
    """The extra field of a reading of unknown time, for its expiry once the time is known."""
    return {} if record.expires is None else {EXPIRES: record.expires.isoformat()}


def field_expiry_reasons(extra: Mapping[str, Any] | None, time_us: int) -> tuple[str, ...]:
    """The reasons of a reading whose time has become known, by that extra field."""
    try:
        return expiry_reasons(date.fromisoformat((extra or {})[EXPIRES]), time_us)
    except (KeyError, TypeError, ValueError):
        return ()


def calibration_id(determining: dict[str, object]) -> str:
    """Name of a calibration: 8 hexadecimal digits that change when anything in it does."""
    text = json.dumps(determining, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _record(gateway: str, sensor: SensorConfig, channel: Channel) -> ChannelRecord:
    kind = driver_type(sensor.driver)
    shaping = chain.from_iterable(map(_options, kind.shaping(sensor.options, channel.quantity)))
    options = [each for each in shaping if each[0] not in kind.wiring and each[1] is not None]
    function = {name: float(value) for name, value, _ in options if name in ("slope", "offset")}
    settings = {name: _setting(value) for name, value, _ in options if name not in function}
    chosen = {name: settings[name] for name, _, is_default in options if name in settings and not is_default}
    accuracy = of_channel(sensor.accuracy, channel.quantity)
    limits = of_channel(sensor.range, channel.quantity)
    own = sensor.own.get(channel.quantity)
    record = ChannelRecord(
        gateway=gateway,
        sensor=sensor.name,
        quantity=channel.quantity,
        cal="",
        revision=1,
        in_force=True,
        periods=(Period(None),),
        unit=channel.unit,
        kind=sensor.kind_of(channel.quantity),
        driver=sensor.driver,
        interval_s=float(sensor.interval_s),
        range=limits if limits is not None else (float(channel.lower), float(channel.upper)),
        raw_unit=channel.raw_unit,
        slope=function.get("slope"),
        offset=function.get("offset"),
        settings=settings,
        accuracy=channel.accuracy if accuracy is None else accuracy.absolute,
        accuracy_percent=None if accuracy is None else accuracy.percent,
        model=sensor.model,
        serial=sensor.serial,
        certificate=sensor.certificate,
        lab=sensor.lab,
        calibrated=sensor.calibrated,
        expires=expiry_date(sensor),
        height_m=sensor.height_m,
        boom_deg=sensor.boom_deg,
        pair=sensor.pair,
    )
    determining = {
        **{name: getattr(record, name) for name in _DETERMINING},
        "options": chosen,
        "range": limits,
        # Those built in never change.
        "measured": None if own is None else (own.unit, own.kind, own.lower, own.upper),
        "accuracy": None if accuracy is None else (accuracy.absolute, accuracy.percent),
    }
    # Configured keys only: a key of a later version changes no name.
    configured = {name: value for name, value in determining.items() if value not in (None, {})}
    return replace(record, cal=calibration_id(configured))


def _options(options: Any) -> Iterator[tuple[str, Any, bool]]:
    """Each of a driver's options with its dotted name, and whether it has its default."""
    for field in fields(options):
        value = getattr(options, field.name)
        if isinstance(value, Quantity):
            # The record has it itself.
            continue
        if is_dataclass(value):
            for name, inner, is_default in _options(value):
                yield f"{field.name}.{name}", inner, is_default
            continue
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        yield field.name, value, value == default


def _setting(value: Any) -> Setting:
    """An option as the record has it. Whole numbers and others are the same: 1 is 1.0."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return float(value)
    return _label(value if isinstance(value, str) else json.dumps(value, default=str))


def _label(text: str) -> str:
    """A text that a record can have; one that is too long or can't be printed becomes a digest."""
    if len(text) <= MAX_LABEL and text.isprintable():
        return text
    return f"sha256:{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:16]}"
