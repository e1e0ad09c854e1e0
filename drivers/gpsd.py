"""Position from gpsd: JSON lines on TCP 2947, ``?WATCH`` and TPV reports (gpsd_json(5)).

Only a report received since the previous reading counts, so a dead receiver's last fix is never read again.
Of several receivers the one is read that was read before, as long as it has a fix, or else one that has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, TypeGuard

from annotated_types import Ge, Le

from drivers.driver_type import Claim, DriverType, EmulatedHardware, OptionError, Remove
from drivers.interface import (
    Board,
    BoardError,
    Channel,
    FittedSensor,
    LineStream,
    Located,
    Measurement,
    Position,
    ReadError,
)
from drivers.option_docs import Meaning

EARTH_RADIUS_M: Final = 6_371_008.8
"""Mean radius R1 of GRS 80."""
CHANNEL = Channel("location", "m", "m", 0.0, math.ceil(math.pi * EARTH_RADIUS_M))

WATCH: Final = b'?WATCH={"enable":true,"json":true}\n'
_WAIT_S: Final = 2.5
"""Receivers report each second; two reports missing is a fault."""
_ROUND_S: Final = 1.2
"""Within it each of several receivers reports."""
_KEEP_OPEN_S: Final = 10.0
"""Read less often than this, the connection is closed between reads: gpsd would fill the socket meanwhile."""
_FROM: Final = Meaning("what distances count from; the gateway's unless given", "degrees (WGS 84)")


@dataclass(frozen=True, slots=True)
class GpsdOptions:
    """Where gpsd listens, and the position distances count from (the gateway's, unless given here)."""

    host: Annotated[str, Meaning("where gpsd listens: name or address")] = "127.0.0.1"
    port: Annotated[int, Ge(1), Le(65535), Meaning("gpsd's port")] = 2947
    receiver: Annotated[str | None, Meaning("which of several: gpsd's name of its device")] = None
    latitude: Annotated[Annotated[float, Ge(-90), Le(90)] | None, _FROM] = None
    longitude: Annotated[Annotated[float, Ge(-180), Le(180)] | None, _FROM] = None


def distance_m(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    """Great-circle distance in metres between two positions in degrees (haversine formula, mean radius)."""
    phi, other_phi = math.radians(latitude), math.radians(other_latitude)
    half_phi, half_lambda = (other_phi - phi) / 2, math.radians(other_longitude - longitude) / 2
    chord = math.sin(half_phi) ** 2 + math.cos(phi) * math.cos(other_phi) * math.sin(half_lambda) ** 2
    return 2 * EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(chord)))


def parse_report(line: bytes) -> Mapping[str, Any] | None:
    """The TPV report in a line, or None for gpsd's other classes. Raises ReadError on what isn't JSON."""
    try:
        report = json.loads(line)
    except ValueError as error:
        raise ReadError(f"gpsd sent a line that isn't JSON: {line[:60]!r}") from error
    return report if isinstance(report, dict) and report.get("class") == "TPV" else None


def has_fix(report: Mapping[str, Any]) -> bool:
    """Whether a TPV report has a position."""
    return report.get("mode") in (2, 3) and _is_number(report.get("lat")) and _is_number(report.get("lon"))


def report_position(report: Mapping[str, Any]) -> Position:
    """The position of a TPV report. Raises ReadError where the receiver has no fix (mode below 2)."""
    if not has_fix(report):
        raise ReadError("the receiver has no fix")
    altitude = report.get("altMSL", report.get("alt")) if report["mode"] == 3 else None
    return float(report["lat"]), float(report["lon"]), float(altitude) if _is_number(altitude) else None


def _is_number(field: object) -> TypeGuard[float]:
    return isinstance(field, int | float) and not isinstance(field, bool) and math.isfinite(field)


class Gpsd:
    """A receiver behind gpsd; value and raw are metres from the configured position."""

    channels = (CHANNEL,)
    accumulates = False

    def __init__(self, board: Board, options: GpsdOptions) -> None:
        self._board = board
        self._options = options
        self._stream: LineStream | None = None
        self._read_at: float | None = None
        self._read_from: str | None = None

    def start(self) -> None:
        """Check the configured position; gpsd is connected at the first read. Raises BoardError."""
        if self._options.latitude is None or self._options.longitude is None:
            raise BoardError("gpsd needs a position to measure from: set latitude and longitude")

    def read(self) -> tuple[Measurement, ...]:
        """The newest fix since the previous read, waiting for one if need be. Raises ReadError."""
        latitude, longitude = self._options.latitude, self._options.longitude
        if latitude is None or longitude is None:
            raise ReadError("no position is configured")
        now = self._board.monotonic()
        seldom = self._read_at is not None and now - self._read_at > _KEEP_OPEN_S
        self._read_at = now
        try:
            if seldom:
                self.stop()
            position = report_position(self._newest_report(self._connected()))
        except OSError as error:
            self.stop()
            raise ReadError(f"gpsd at {self._options.host}:{self._options.port}: {error}") from error
        if seldom:
            self.stop()
        metres = distance_m(latitude, longitude, position[0], position[1])
        return (Measurement(CHANNEL.quantity, metres, metres, position),)

    def stop(self) -> None:
        """Close the connection."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _connected(self) -> LineStream:
        if self._stream is None:
            self._stream = self._board.connect_gpsd(self._options.host, self._options.port)
            self._stream.write(WATCH)
        return self._stream

    def _newest_report(self, stream: LineStream) -> Mapping[str, Any]:
        newest: dict[str, Mapping[str, Any]] = {}
        others: set[str] = set()
        begin_s, wanted = self._board.monotonic(), self._options.receiver
        while True:
            name = next(iter(sorted(newest, key=lambda each: self._rank(each, newest[each]))), None)
            settled = name is not None and self._rank(name, newest[name]) == (False, False)
            end_s = begin_s + (_WAIT_S if name is None else _ROUND_S)
            try:
                line = stream.readline(0.0 if settled else max(0.0, end_s - self._board.monotonic()))
            except TimeoutError as error:
                if name is not None:
                    self._read_from = name if has_fix(newest[name]) else self._read_from
                    return newest[name]
                which = f" of {wanted}, but of {', '.join(sorted(others))}" if others else ""
                raise ReadError(f"gpsd has no new report{which}: is a receiver connected?") from error
            if not line:
                self.stop()
                raise ReadError("gpsd closed the connection")
            report = parse_report(line)
            device = "" if report is None else str(report.get("device", ""))
            if report is None or wanted not in (None, device):
                others |= {device} - {""}
            else:
                newest[device] = report

    def _rank(self, device: str, report: Mapping[str, Any]) -> tuple[bool, bool]:
        """The lowest is read: one with a fix, and of these the one that was read before."""
        return not has_fix(report), self._read_from not in (None, device)


def settle(options: GpsdOptions, site: Located | None) -> GpsdOptions:
    """The gateway's position where the sensor has none of its own. Raises OptionError without either."""
    if options.latitude is not None and options.longitude is not None:
        return options
    if (options.latitude is None) != (options.longitude is None):
        given, absent = ("longitude", "latitude") if options.latitude is None else ("latitude", "longitude")
        raise OptionError((given,), f"needs {absent} too")
    if site is None:
        return options
    if site.latitude is None:
        raise OptionError(
            ("driver",), "gpsd needs a position to measure from: set latitude and longitude in [gateway]"
        )
    return replace(options, latitude=site.latitude, longitude=site.longitude)


def emulate(hardware: EmulatedHardware, sensor: FittedSensor) -> Remove:
    """A receiver north of the configured position by the environment's metres."""
    options: GpsdOptions = sensor.options

    def locate(time_ns: int) -> Position | None:
        metres = hardware.value(f"{sensor.name}.location", time_ns)
        if metres is None or options.latitude is None or options.longitude is None:
            return None
        return options.latitude + math.degrees(metres / EARTH_RADIUS_M), options.longitude, None

    return hardware.add_receiver(options.host, options.port, locate)


# Resolving gpsd's name may take most of that.
TYPE = DriverType(
    "gpsd",
    GpsdOptions,
    (CHANNEL,),
    1.0,
    Gpsd,
    lambda options: [Claim(f"gpsd at {options.host}:{options.port}", ("driver",))],
    settle=settle,
    emulate=emulate,
    longest_read_s=40.0,
)
