"""A mapping: which column of a logger's file is which channel, in which unit, and what its times mean.

TOML, as ``docs/examples/import.toml``. All its problems are found at once, each with its line and key.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping as Values
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from cloud.importing import times
from cloud.toml_models import Table
from cloud.toml_problems import ConfigError, KeyPath, nearest, quote, unknown_key
from cloud.toml_source import TomlSource
from cloud.values import duration_s, interval_s
from cloud.wire.channel_records import MAX_LABEL
from cloud.wire.quantities import QUANTITIES, Kind, Quantity, unit_problem
from cloud.wire.reading_records import GATEWAY_ID

FOLDER: Final = Path(__file__).with_name("preset_files")
_PLACE: Final = re.compile(r"\\\*|\\\{(\w+)\\\}")
_HEIGHT: Final = r"\d+(?:\.\d+)?"
_WORD: Final = r"[^_,()\[\] ]*"


def described() -> dict[str, str]:
    """What each preset is for, by its name."""
    return {
        path.stem: path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        for path in sorted(FOLDER.glob("*.toml"))
    }


def preset(name: str) -> dict[str, Any]:
    """A preset's mapping, as TOML has it. Raises OSError where there is none of that name."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def column_of(wanted: str, names: Collection[str]) -> str:
    """The column that is meant; ``wanted`` itself where none or several may be."""
    found = [] if wanted in names else [name for name in names if _pattern(wanted).fullmatch(name)]
    return found[0] if len(found) == 1 else wanted


def fitted(
    tables: Iterable[tuple[KeyPath, dict[str, Any]]], figures: Collection[str], names: Collection[str]
) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """The ``[[channel]]`` tables of a preset that a file with these columns has, by its own names."""
    for at, table in tables:
        main = str(table.get("avg", table.get("sum")))
        matches = [found for name in names if (found := _pattern(main).fullmatch(name))]
        for found in [None] if main in names else matches:
            words = {} if found is None else found.groupdict()
            made = dict(table)
            for key in ("sensor", *figures):
                for word, text in words.items():
                    given = re.sub(r"[^\w-]", "-", text, flags=re.ASCII) if key == "sensor" else text
                    made |= {key: made[key].replace(f"{{{word}}}", given)} if key in made else {}
            if "height" in words:
                made["height_m"] = float(words["height"])
            columns = {key: column_of(made[key], names) for key in figures if key in made}
            there = {key: name for key, name in columns.items() if name in names}
            if "*" not in main or len(matches) == 1 or words:
                yield at, {key: value for key, value in made.items() if key not in figures} | there


def _pattern(column: str) -> re.Pattern[str]:
    def place(found: re.Match[str]) -> str:
        word = found[1]
        return f"(?P<{word}>{_HEIGHT if word == 'height' else _WORD})" if word else ".*"

    return re.compile(_PLACE.sub(place, re.escape(column)))


Scale = tuple[float, float]
"""Slope and offset: a value in the lake's unit is slope · value + offset."""

_TO: Final[dict[str, dict[str, Scale]]] = {
    "m/s": {"km/h": (1 / 3.6, 0.0), "kn": (1852 / 3600, 0.0), "mph": (0.44704, 0.0)},
    "Cel": {
        "degC": (1.0, 0.0), "deg C": (1.0, 0.0), "°C": (1.0, 0.0), "C": (1.0, 0.0), "K": (1.0, -273.15),
        "degF": (5 / 9, -160 / 9), "°F": (5 / 9, -160 / 9),
    },
    "kPa": {
        "hPa": (0.1, 0.0), "mbar": (0.1, 0.0), "Pa": (0.001, 0.0), "bar": (100.0, 0.0),
        "mmHg": (0.133322387415, 0.0), "inHg": (3.386389, 0.0),
    },
    "%RH": {"%": (1.0, 0.0), "1": (100.0, 0.0)},
    "deg": {"°": (1.0, 0.0), "degree": (1.0, 0.0), "degrees": (1.0, 0.0)},
    "W/m2": {"W/m^2": (1.0, 0.0), "W/m²": (1.0, 0.0), "kW/m2": (1000.0, 0.0)},
    "mm": {"in": (25.4, 0.0), "inch": (25.4, 0.0)},
    "V": {"mV": (0.001, 0.0), "Volts": (1.0, 0.0)},
    "A": {"mA": (0.001, 0.0)},
    "W": {"kW": (1000.0, 0.0)},
    "kW.h": {"kWh": (1.0, 0.0), "Wh": (0.001, 0.0), "W.h": (0.001, 0.0), "MWh": (1000.0, 0.0)},
}  # fmt: skip
"""The scales by the lake's unit; both of two signs for one unit."""


def into(unit: str, given: str) -> Scale | None:
    """Returns the scale from ``given`` to ``unit``; None where it isn't known."""
    return (1.0, 0.0) if given == unit else _TO.get(unit, {}).get(given)


def known(unit: str) -> list[str]:
    """The units that become this one."""
    return [unit, *_TO.get(unit, {})]


_OFFSET: Final = re.compile(r"([+-])(\d\d):(\d\d)")


def _offset_min(given: object) -> object:
    found = _OFFSET.fullmatch(given) if isinstance(given, str) else None
    if found is None or int(found[3]) > 59 or int(found[2]) > 14:
        raise ValueError(f'must be hours and minutes ahead of UTC such as "+05:45", not {given!r}')
    return (-1 if found[1] == "-" else 1) * (60 * int(found[2]) + int(found[3]))


def _duration(given: object) -> object:
    if not isinstance(given, str):
        raise ValueError(f'must be a time such as "10m", in quotes, not {given}')
    return duration_s(given)


def _gateway(name: str) -> str:
    if GATEWAY_ID.fullmatch(name) is None:
        raise ValueError(f"must be 1 to 63 of a-z, 0-9 and -, not {name!r}")
    return name


def _one_sign(text: str) -> str:
    if len(text) != 1 or text in '\r\n"':
        raise ValueError("must be a single character")
    return text


def printable(text: str) -> str:
    """Raises ValueError where a text is not to be shown."""
    if not text.isprintable():
        raise ValueError("must be printable characters")
    return text


Label = Annotated[str, Field(min_length=1, max_length=MAX_LABEL), AfterValidator(printable)]
Column = Annotated[str, Field(min_length=1, max_length=256)]
Seconds = Annotated[float, BeforeValidator(_duration), Field(gt=0)]
Offset = Annotated[int, BeforeValidator(_offset_min)]
Gateway = Annotated[str, AfterValidator(_gateway)]
Sign = Annotated[str, AfterValidator(_one_sign)]


MEASURED: Final = ("avg", "min", "max", "sd", "gust", "sum")
"""Keys that name a column of values, in a channel's unit."""
FIGURES: Final = (*MEASURED, "count")
"""Keys that name a column of the file."""
FIGURES_OF: Final[Values[Kind, tuple[str, ...]]] = {
    "linear": ("avg", "sd", "min", "max", "gust", "count"), "direction": ("avg", "sd", "count"),
    "accumulated": ("sum", "count"), "state": ("avg", "count"), "position": ("avg",),
}  # fmt: skip
"""Those that each kind of quantity has; the first one it must have, and has alone of single samples."""
DRIVER: Final = "import"
"""``driver`` of an imported channel's record."""
SHORT_S: Final = 10.0
"""Rows that come so often, or oftener, are readings; others are statistics."""


class File(Table):
    """``[file]``: how the files are written, and what their times mean."""

    gateway: Gateway
    format: Literal["csv", "toa5"]
    interval: Seconds
    stamps: Literal["start", "within", "end"]
    utc_offset: Offset
    scan: Seconds | None = None
    time: Column | list[Column] | None = None
    time_format: Label | None = None
    missing: list[Annotated[str, Field(max_length=64)]] = Field(default_factory=lambda: ["", "NAN", "NaN"])
    delimiter: Sign = ","
    decimal: Literal[".", ","] = "."
    thousands: Literal[",", ".", "'", " "] | None = None
    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    skip_lines: Annotated[int, Field(ge=0, le=1000)] = 0
    names: list[Column] | None = None

    @property
    def times(self) -> list[str]:
        """The columns that together are a row's time."""
        return self.time if isinstance(self.time, list) else [self.time or "TIMESTAMP"]

    @property
    def length_us(self) -> int:
        """From row to row, in microseconds."""
        return round(self.interval * 1e6)

    @property
    def phase_us(self) -> int:
        """How long after a whole interval from midnight UTC the logger's begin, counted from its midnight."""
        return -self.utc_offset * 60_000_000 % self.length_us

    @property
    def has_readings(self) -> bool:
        """Whether a row is a reading of each channel, and no statistics."""
        return self.interval <= SHORT_S

    @property
    def period_ms(self) -> int:
        """Between two samples of the logger."""
        return round(1000 * (self.interval if self.scan is None else self.scan))


class Site(Table):
    """``[site]``: where the mast stood."""

    latitude: Annotated[float, Field(ge=-90, le=90)]
    longitude: Annotated[float, Field(ge=-180, le=180)]
    elevation_m: Annotated[float, Field(ge=-500, le=9000)] | None = None
    utc_offset: Offset | None = None
    name: Label | None = None
    owner: Label | None = None


class Channel(Table):
    """``[[channel]]``: a sensor's quantity, and the columns that are its figures.

    A value in ``unit`` is ``scale`` · column + ``offset``; the lake's is in the quantity's own unit.
    """

    sensor: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    quantity: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,64}$")]
    unit: Annotated[str, Field(min_length=1, max_length=64), AfterValidator(printable)] | None = None
    kind: Literal["linear", "direction", "accumulated", "state"] | None = None
    scale: float = 1.0
    offset: float = 0.0
    avg: Column | None = None
    min: Column | None = None
    max: Column | None = None
    sd: Column | None = None
    gust: Column | None = None
    sum: Column | None = None
    count: Column | None = None
    height_m: Annotated[float, Field(ge=0, le=1000)] | None = None
    boom_deg: Annotated[float, Field(ge=0, lt=360)] | None = None
    tilt_deg: Annotated[float, Field(ge=0, le=180)] | None = None
    azimuth_deg: Annotated[float, Field(ge=0, lt=360)] | None = None
    pair: Label | None = None
    model: Label | None = None
    serial: Label | None = None
    certificate: Label | None = None
    lab: Label | None = None

    @cached_property
    def name(self) -> str:
        """``{sensor}.{quantity}``, as in the lake."""
        return f"{self.sensor}.{self.quantity}"

    @cached_property
    def of(self) -> Quantity:
        """What it measures, in the unit the lake has."""
        unbounded = Quantity(self.quantity, self.unit or "", self.kind or "linear", -math.inf, math.inf)
        return QUANTITIES.get(self.quantity, unbounded)

    @cached_property
    def is_a(self) -> Kind:
        """How its values are put together."""
        return self.of.kind

    @cached_property
    def to_lake(self) -> Scale:
        """The scale from the column's unit to the lake's."""
        slope, offset = into(self.of.unit, self.unit or self.of.unit) or (1.0, 0.0)
        return slope * self.scale, slope * self.offset + offset

    @cached_property
    def cal(self) -> str:
        """The name of its record: of what determines its values."""
        given = (self.name, self.of.unit, *self.to_lake, self.height_m, self.boom_deg, self.model,
                 self.serial, self.certificate, self.lab, *self.plane.items())  # fmt: skip
        return f"{DRIVER}-{hashlib.sha256(repr(given).encode()).hexdigest()[:8]}"

    @property
    def plane(self) -> dict[str, float]:
        """Which way a pyranometer faces, as far as it is known."""
        given = {"tilt_deg": self.tilt_deg, "azimuth_deg": self.azimuth_deg}
        return {name: value for name, value in given.items() if value is not None}

    def columns(self) -> dict[str, str]:
        """The columns of the file by figure."""
        return {name: column for name in FIGURES if (column := getattr(self, name)) is not None}


class _Source(TomlSource):
    missing: ClassVar = "docs/examples/import.toml is one to begin with"
    empty: ClassVar = "docs/examples/import.toml is one to begin with"
    named: ClassVar = "channel"

    def names(self) -> tuple[str | None, ...]:
        """Channels have no name: a sensor may have several."""
        return ()


@dataclass(frozen=True)
class Mapping:
    """A whole mapping; ``digest`` names its content."""

    file: File
    channels: tuple[Channel, ...]
    site: Site | None
    digest: str
    source: _Source

    def check_columns(self, file: str, there: Collection[str]) -> None:
        """Raises ConfigError where a file lacks columns that the mapping names, or has one of them twice."""
        wanted: list[tuple[KeyPath, str]] = [(("file", "time"), column) for column in self.file.times]
        for number, channel in enumerate(self.channels):
            wanted += [(("channel", number, name), column) for name, column in channel.columns().items()]
        before = len(self.source.problems)
        for at, column in wanted:
            if column not in there:
                guess = nearest(column, there)
                hint = "" if guess is not None else f"; it has {', '.join(there)[:200] or 'none'}"
                self.source.error(at, f"{quote(column)} is no column of {file}{hint}", guess)
            elif list(there).count(column) > 1:
                self.source.error(at, f"{quote(column)} is the name of several columns of {file}")
        if problems := self.source.problems[before:]:
            del self.source.problems[before:]
            raise ConfigError(tuple(problems))


def load_mapping(
    path: Path,
    columns: Callable[[File], Collection[str]] = lambda file: (),
    options: Values[str, str] = MappingProxyType({}),
) -> Mapping:
    """The mapping of a file. Raises ConfigError with all its problems, and what ``columns`` raises.

    ``columns`` are those of the file that is imported, by which a preset is fitted; ``options`` are values of
    ``[file]`` from the command line.
    """
    source = _Source(path)
    if not source.usable:
        raise ConfigError(tuple(source.problems))
    known = preset(path.stem) if path.parent == FOLDER else _with_preset(source)
    for name in source.raw:
        if name not in ("file", "site", "channel"):
            source.error((name,), *unknown_key(name, ("file", "site", "channel"), what="section"))
    given = source.table("file")
    file = None if given is None else source.model(File, {**given, **options}, ("file",))
    site = None
    if "site" in source.raw and (table := source.table("site")) is not None:
        site = source.model(Site, table, ("site",))
    tables = source.tables("channel")
    names: Collection[str] = ()
    if known and file is not None:
        names = columns(file)
        file = file.model_copy(update={"time": [column_of(each, names) for each in file.times]})
    if known and source.raw["channel"] == known["channel"]:
        tables = list(fitted(tables, FIGURES, names))
    found = [(at, source.model(Channel, table, at)) for at, table in tables]
    channels = [(at, channel) for at, channel in found if channel is not None]
    if not tables and not source.errors():
        source.error((), "has no [[channel]] of this file: nothing would be imported")
    if file is not None:
        _check_file(source, file)
    for at, channel in channels:
        _check_channel(source, at, channel, file)
    _check_together(source, channels)
    if source.errors() or file is None:
        raise ConfigError(source.in_order())
    by = [known, *sorted(each for each in options.items() if each[0] != "gateway")]
    digest = hashlib.sha256(path.read_bytes() + json.dumps(by).encode() * any(by)).hexdigest()
    return Mapping(file, tuple(channel for _, channel in channels), site, digest, source)


def _with_preset(source: _Source) -> dict[str, Any]:
    """Puts a mapping's own keys over those of the preset it names, which is returned."""
    own = source.raw.get("file")
    if not isinstance(own, dict) or "preset" not in own:
        return {}
    name = own.pop("preset")
    if name not in (there := list(described())):
        source.error(("file", "preset"), *unknown_key(str(name), there, what="preset"))
        return {}
    known = preset(name)
    source.raw["file"] = known["file"] | own
    source.raw.setdefault("channel", known["channel"])
    return known


def _check_file(source: _Source, file: File) -> None:
    at = ("file", "interval")
    if not file.has_readings:
        try:
            length = interval_s(f"{file.interval:.9g}s")
        except ValueError:
            source.error(at, "must divide a day into whole seconds, such as 10m")
            return
        if file.scan is None:
            source.error(
                ("file", "scan"),
                "is missing: how often the logger samples, by which a row's samples are counted",
            )
        elif file.scan > length:
            source.error(("file", "scan"), "must not be longer than interval")
    else:
        if file.scan is not None:
            source.error(("file", "scan"), "has no effect: rows as frequent as these are samples themselves")
        if round(file.interval * 1000) < 1 or file.interval * 1000 % 1:
            source.error(at, "must be whole milliseconds")
    try:
        times.reader(file.time_format)
    except ValueError as error:
        source.error(("file", "time_format"), str(error))
    if file.decimal == file.delimiter:
        source.error(("file", "decimal"), "is the delimiter too")
    if file.decimal == file.thousands:
        source.error(("file", "thousands"), "is the decimal sign too")
    own = (file.delimiter, file.decimal, file.skip_lines, file.names)
    if file.format == "toa5" and own != (",", ".", 0, None):
        source.error(
            ("file", "format"), "toa5 has its own delimiter, decimal and header lines: leave them out"
        )


def _check_channel(source: _Source, at: KeyPath, channel: Channel, file: File | None) -> None:
    given = set(channel.columns())
    builtin = QUANTITIES.get(channel.quantity)
    if channel.is_a == "position":
        source.error((*at, "quantity"), "positions can't be imported; a mast's is in [site]")
    if builtin is None:
        if channel.unit is None:
            source.error((*at, "unit"), f"is missing: {channel.quantity} is not a quantity that is built in")
    else:
        if channel.kind not in (None, builtin.kind):
            source.error((*at, "kind"), f"of {channel.quantity} is {builtin.kind}")
        if channel.unit is not None and into(builtin.unit, channel.unit) is None:
            problem = unit_problem(channel.quantity, channel.unit)
            units = ", ".join(known(builtin.unit))
            source.error(
                (*at, "unit"), f"{problem}; known are {units}; or leave it out and give scale and offset"
            )
    if channel.scale == 0:
        source.error((*at, "scale"), "must not be 0")
    is_sampled = file is not None and file.has_readings
    allowed = FIGURES_OF[channel.is_a][:1] if is_sampled else FIGURES_OF[channel.is_a]
    if allowed[0] not in given:
        source.error((*at, allowed[0]), f"is missing: the column of {_MEANING[allowed[0]]}")
    why = "in a file of single samples" if is_sampled else f"of {channel.quantity} ({channel.is_a})"
    for wrong in (name for name in FIGURES if name in given and name not in allowed):
        source.error((*at, wrong), f"has no meaning {why}")
    if file is not None and not is_sampled and channel.is_a == "accumulated" and channel.offset:
        source.error((*at, "offset"), "of sums must be 0")


_MEANING: Final = {"avg": "the means, or of samples the values", "sum": "what was added"}


def _check_together(source: _Source, channels: list[tuple[KeyPath, Channel]]) -> None:
    first: dict[str, KeyPath] = {}
    sensors = {channel.sensor for _, channel in channels}
    for at, channel in channels:
        known_at = first.get(channel.name)
        first.setdefault(channel.name, at)
        if known_at is not None:
            there = source.line((*known_at, "sensor"))
            source.error((*at, "sensor"), f"{channel.name} is mapped twice (the first: line {there})")
        if channel.pair is not None and channel.pair not in sensors - {channel.sensor}:
            source.error((*at, "pair"), f"{channel.pair} is not the sensor of another channel")
