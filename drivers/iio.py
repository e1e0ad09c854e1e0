"""Sensors with a kernel driver (ads1015, bmp280, bme280, sht3x …), read through the kernel's IIO.

An attribute is either the quantity itself (``in_temp_input``) or a code with its scale and offset:
(raw + offset) · scale. Both are in IIO's units (mV, milli °C, milli %RH, kPa, % CO2); here they become V,
Cel, %RH, kPa and ppm, and then value = slope · that + offset. A read takes as long as the kernel's driver
needs and holds nothing but its own thread meanwhile.

Source: Linux, Documentation/ABI/testing/sysfs-bus-iio.
"""

from __future__ import annotations

import errno
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from drivers.driver_type import Claim, DriverType, EmulatedHardware, OptionError, Remove, refuse_sum
from drivers.interface import (
    Board,
    BoardError,
    Channel,
    FittedSensor,
    Iio,
    IioDevice,
    Located,
    Measurement,
    ReadError,
)
from drivers.option_docs import Figure, Meaning, MeasuredQuantity

_IIO_UNITS: Final[Mapping[str, tuple[float, str]]] = {
    "voltage": (1e-3, "V"),
    "current": (1e-3, "A"),
    "resistance": (1.0, "Ohm"),
    "temp": (1e-3, "Cel"),
    "humidityrelative": (1e-3, "%RH"),
    "pressure": (1.0, "kPa"),
    "concentration_co2": (1e4, "ppm"),
}
"""By the attribute's type: our unit, and IIO's in it."""

_STEM: Final = re.compile(rf"in_({'|'.join(_IIO_UNITS)})(\d+)?(-({'|'.join(_IIO_UNITS)})\d+)?")

_ADS1015_CODE: Final = 2047
"""A code at either end of this converter means that the voltage is beyond it."""
_ADS1015_SCALE_MV: Final = 3.0

_OVERLAYS: Final[Mapping[str, str]] = {
    "ads1015": "dtoverlay=ads1015,cha_enable,cha_gain=0",
    "bmp280": "dtoverlay=i2c-sensor,bmp280",
    "bme280": "dtoverlay=i2c-sensor,bme280",
}
"""What loads a driver on a Raspberry Pi (its overlays' README)."""

_OWN_DRIVERS: Final[Mapping[str, str]] = {
    "dht11": '"dht11"', "ads1115": '"analog", "bp20", "pyranometer" or "wind-vane"',
}  # fmt: skip
"""The drivers that read these chips themselves."""

_RANGE: Final = Meaning("the sensor's range; what occurs on Earth unless given", "the quantity's unit")


@dataclass(frozen=True, slots=True)
class IioChannel:
    """One quantity: the attribute behind it and its transfer function."""

    quantity: MeasuredQuantity
    attribute: Annotated[str, Meaning("the device's attribute, as in_temp or in_voltage0")]
    slope: Annotated[
        Figure | None,
        Meaning("value = slope · reading + offset; required where their units differ", "per V, Cel, …"),
    ] = None
    offset: Annotated[Figure, Meaning("of the transfer function", "the quantity's unit")] = 0.0
    min: Annotated[Figure | None, _RANGE] = None
    max: Annotated[Figure | None, _RANGE] = None


@dataclass(frozen=True, slots=True)
class IioOptions:
    """A device of the kernel's, and what is read from it."""

    device: Annotated[str, Meaning("the kernel's name of it, as in /sys/bus/iio/devices/*/name")]
    channels: Annotated[tuple[IioChannel, ...], Meaning("one table for each quantity")]
    where: Annotated[
        str | None,
        Meaning("which of several devices of that name: its label, chip (1-0048) or device tree node"),
    ] = None


@dataclass(frozen=True, slots=True)
class Stem:
    """An attribute without its suffix; its numbers times ``factor`` are in ``unit``."""

    name: str
    kind: str
    factor: float
    unit: str

    @classmethod
    def of(cls, attribute: str) -> Stem:
        """The stem of a config's word, with or without _raw or _input. Raises OptionError on another one."""
        name = attribute.removesuffix("_raw").removesuffix("_input")
        match = _STEM.fullmatch(name)
        if match is None:
            kinds = ", ".join(f"in_{kind}" for kind in _IIO_UNITS)
            raise OptionError(("attribute",), f"must be one of {kinds}, with its number if it has one")
        factor, unit = _IIO_UNITS[match[1]]
        kind = f"in_{match[1]}-{match[4]}" if match[3] else f"in_{match[1]}"
        return cls(name, kind, factor, unit)


def iio_channels(options: IioOptions) -> tuple[Channel, ...]:
    """The channels of the configuration."""
    return tuple(_channel(each) for each in options.channels)


def _channel(chosen: IioChannel) -> Channel:
    return Channel.of(chosen.quantity, Stem.of(chosen.attribute).unit, chosen.min, chosen.max)


class IioSensor:
    """A device's attributes; it is found again where the kernel has renumbered it meanwhile."""

    accumulates = False

    def __init__(self, board: Board, options: IioOptions) -> None:
        self.channels = iio_channels(options)
        self._options = options
        self._stems = tuple(Stem.of(each.attribute) for each in options.channels)
        self._iio: Iio | None = None
        self._board = board
        self._node: str | None = None
        self._attributes: frozenset[str] = frozenset()

    def start(self) -> None:
        """Find the device and its attributes. Raises BoardError, which lists what is there."""
        self._iio = self._board.iio()
        self._find(self._iio)

    def read(self) -> tuple[Measurement, ...]:
        """Every channel, each measured now. Raises ReadError with the kernel's reason."""
        if self._iio is None:
            raise ReadError("the IIO device isn't started")
        if self._node is None:
            try:
                self._find(self._iio)
            except BoardError as error:
                raise ReadError(str(error)) from error
        return tuple(
            self._measure(self._iio, chosen, stem)
            for chosen, stem in zip(self._options.channels, self._stems, strict=True)
        )

    def stop(self) -> None:
        """Nothing is open between reads."""
        self._iio = self._node = None

    def _find(self, iio: Iio) -> None:
        found = find_device(iio, self._options.device, self._options.where)
        try:
            self._attributes = frozenset(iio.attributes(found.node))
        except OSError as error:
            raise BoardError(f"{found.node} has gone again: {error}") from error
        for stem in self._stems:
            if not self._attributes & {f"{stem.name}_raw", f"{stem.name}_input"}:
                there = sorted(
                    name
                    for name in self._attributes
                    if name.startswith("in_") and name.endswith(("_raw", "_input"))
                )
                raise BoardError(
                    f"{self._options.device} ({found.node}) has no {stem.name};"
                    f" there are {', '.join(there) or 'none'}"
                )
        self._node = found.node

    def _measure(self, iio: Iio, chosen: IioChannel, stem: Stem) -> Measurement:
        reasons: tuple[str, ...] = ()
        if f"{stem.name}_input" in self._attributes:
            reading = self._number(iio, f"{stem.name}_input")
        else:
            code = self._number(iio, f"{stem.name}_raw")
            reading = (code + self._shared(iio, stem, "offset", 0.0)) * self._shared(iio, stem, "scale", 1.0)
            if self._options.device == "ads1015" and not -_ADS1015_CODE <= code < _ADS1015_CODE:
                reasons = ("OVER_RANGE",) if code > 0 else ("UNDER_RANGE",)
        raw = reading * stem.factor
        slope = 1.0 if chosen.slope is None else chosen.slope
        return Measurement(chosen.quantity.name, slope * raw + chosen.offset, raw, reasons=reasons)

    def _shared(self, iio: Iio, stem: Stem, suffix: str, default: float) -> float:
        """The channel's own scale or offset, or the one for all of its kind."""
        for name in (f"{stem.name}_{suffix}", f"{stem.kind}_{suffix}"):
            if name in self._attributes:
                return self._number(iio, name)
        return default

    def _number(self, iio: Iio, attribute: str) -> float:
        node = self._node
        if node is None:
            raise ReadError("the device has gone")
        try:
            text = iio.read(node, attribute)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV):
                self._node = None
            raise ReadError(f"{self._options.device} {attribute}: {_reason(error)}") from error
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ReadError(f"{self._options.device} {attribute}: {text[:40]!r} is no number")
        return number


def find_device(iio: Iio, name: str, where: str | None) -> IioDevice:
    """The one device of a name. Raises BoardError, which lists what is there, where it is none or several."""
    devices = iio.devices()
    named = [device for device in devices if device.name == name]
    found = [device for device in named if where is None or where in device.places]
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(device.places[0] for device in found)
        raise BoardError(f"there are {len(found)} IIO devices named {name!r}: set where to one of {places}")
    if named:
        places = ", ".join(f"{device.name} at {' = '.join(device.places)}" for device in named)
        raise BoardError(f"no IIO device {name!r} is at {where!r}; there is {places}")
    there = ", ".join(sorted({device.name for device in devices})) or "no others"
    overlay = _OVERLAYS.get(name, f"its overlay, dtoverlay={name},")
    raise BoardError(
        f"the kernel has no IIO device named {name!r}; there are {there}:"
        f" on a Raspberry Pi {overlay} in config.txt loads its driver"
    )


_REASONS: Final[Mapping[int, str]] = {
    errno.EIO: "the sensor's answer could not be decoded (Input/output error)",
    errno.ETIMEDOUT: "the sensor didn't answer (Connection timed out): check its wiring and pull-up",
    errno.EACCES: "this user may not read it: give the attribute's file to its group with a udev rule",
    errno.EBUSY: "another program has the device's buffer enabled",
    errno.ENOENT: "the device has gone: was its module unloaded?",
}
_SAME: Final = {errno.EPERM: errno.EACCES, errno.ENODEV: errno.ENOENT}


def _reason(error: OSError) -> str:
    number = error.errno or 0
    return _REASONS.get(_SAME.get(number, number), str(error.strerror or error))


def settle(options: IioOptions, _site: Located | None) -> IioOptions:
    """The options as they are. Raises OptionError where a channel can't be made of its attribute."""
    if options.device in _OWN_DRIVERS:
        raise OptionError(
            ("device",), f"a {options.device} is read by driver = {_OWN_DRIVERS[options.device]}"
        )
    if not options.channels:
        raise OptionError(("channels",), "must have one table for each quantity")
    seen: set[str] = set()
    for position, chosen in enumerate(options.channels):
        key = ("channels", position)
        try:
            stem = Stem.of(chosen.attribute)
        except OptionError as error:
            raise OptionError((*key, *error.key), error.message) from error
        quantity, unit = chosen.quantity.name, chosen.quantity.unit
        refuse_sum(chosen.quantity, (*key, "quantity"))
        if quantity in seen:
            raise OptionError((*key, "quantity"), f"there is another {quantity}: that is another sensor")
        seen.add(quantity)
        if chosen.slope is None and stem.unit != unit:
            raise OptionError(
                key, f"{chosen.attribute} is in {stem.unit}, {quantity} in {unit}: slope is required"
            )
        if chosen.slope == 0:
            raise OptionError((*key, "slope"), "must not be 0")
        channel = _channel(chosen)
        if channel.lower >= channel.upper:
            raise OptionError(
                (*key, "min" if chosen.min is not None else "max"),
                f"leaves no range: {channel.lower:g} to {channel.upper:g} {channel.unit}",
            )
    return options


def claims(options: IioOptions) -> Iterator[Claim]:
    """Each attribute: two sensors that read one would be the same quantity twice."""
    device = options.device if options.where is None else f"{options.device} at {options.where}"
    for chosen in options.channels:
        yield Claim(f"{Stem.of(chosen.attribute).name} of IIO device {device}", ("channels",))


def emulate(hardware: EmulatedHardware, sensor: FittedSensor) -> Remove:
    """Writes what the kernel's drivers have: a converter's (±6.144 V) code and scale, or the quantity."""
    options: IioOptions = sensor.options
    scale_mv = _ADS1015_SCALE_MV
    attributes: dict[str, Callable[[], str | None]] = {}

    def code(figure: float) -> str:
        return str(round(figure / scale_mv))

    for chosen in options.channels:
        stem = Stem.of(chosen.attribute)

        def text(form: Callable[[float], str], chosen: IioChannel = chosen, stem: Stem = stem) -> str | None:
            value = hardware.value(f"{sensor.name}.{chosen.quantity.name}")
            if value is None:
                return None
            return form((value - chosen.offset) / (chosen.slope or 1.0) / stem.factor)

        if stem.kind.startswith("in_voltage"):
            attributes[f"{stem.name}_raw"] = partial(text, code)
            attributes[f"{stem.name}_scale"] = partial(str, scale_mv)
        else:
            attributes[f"{stem.name}_input"] = partial(text, "{:.9f}".format)
    return hardware.add_iio(options.device, options.where, attributes)


TYPE = DriverType(
    "iio",
    IioOptions,
    iio_channels,
    0.1,
    IioSensor,
    claims,
    settle=settle,
    emulate=emulate,
    shaping=lambda options, quantity: [
        options,
        *(one for one in options.channels if one.quantity.name == quantity),
    ],
    # Which of several equal devices it is changes no value; the attribute may, in another unit.
    wiring=frozenset({"where", "channels", "quantity"}),
)
