"""gpsd's line stream over an emulated receiver, which reports once a second of event time (gpsd_json(5))."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

from drivers.emulation.environment import SECOND_NS
from drivers.interface import Position

Locate = Callable[[int], Position | None]
"""Where the receiver is at an instant; None without a fix."""


class EmulatedGpsd:
    """One client's connection. Event time waits with its reader, so a wait for more times out at once."""

    def __init__(self, now_ns: Callable[[], int], locate: Locate) -> None:
        self._now_ns = now_ns
        self._locate = locate
        self._lines = [_line({"class": "VERSION", "release": "3.25", "proto_major": 3, "proto_minor": 15})]
        self._watching = False
        self._reported_ns = -1

    def write(self, line: bytes) -> None:
        """Take a request; ``?WATCH`` starts or ends the reports."""
        if line.startswith(b"?WATCH="):
            self._watching = bool(json.loads(line.removeprefix(b"?WATCH=")).get("enable", True))
            self._lines.append(
                _line({"class": "DEVICES", "devices": [{"class": "DEVICE", "path": "/dev/gps0"}]})
            )
            self._lines.append(_line({"class": "WATCH", "enable": self._watching, "json": True}))

    def readline(self, timeout_s: float) -> bytes:
        """The next line. Raises TimeoutError at once where there is none."""
        second_ns = self._now_ns() // SECOND_NS * SECOND_NS
        if not self._lines and self._watching and second_ns != self._reported_ns:
            self._reported_ns = second_ns
            self._lines.append(_report(second_ns, self._locate(second_ns)))
        if not self._lines:
            raise TimeoutError(f"nothing new within {timeout_s} s")
        return self._lines.pop(0)

    def close(self) -> None:
        """End the connection."""
        self._watching = False


def _report(time_ns: int, position: Position | None) -> bytes:
    time = datetime.fromtimestamp(time_ns // SECOND_NS, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    report: dict[str, object] = {"class": "TPV", "device": "/dev/gps0", "time": time}
    if position is None:
        return _line({**report, "mode": 1})
    latitude, longitude, altitude_m = position
    report |= {"mode": 2 if altitude_m is None else 3, "lat": latitude, "lon": longitude}
    if altitude_m is not None:
        report["altMSL"] = altitude_m
    return _line(report)


def _line(report: dict[str, object]) -> bytes:
    return json.dumps(report, separators=(",", ":")).encode() + b"\n"
