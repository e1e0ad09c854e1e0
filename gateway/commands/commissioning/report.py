"""The signed-off report: JSON for programs, Markdown for people, one hash for both. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from gateway.commands.commissioning.session import GOOD, Result
from gateway.config import Config, SensorConfig

VERSION: Final = 1
EVENT: Final = "commissioned"

Found = tuple[str, Mapping[str, Result]]
"""A sensor's name and its results by check."""


@dataclass(frozen=True, slots=True)
class Signed:
    """Who signs, when, and how. ``source``: whose readings they were, the daemon's or the board's own."""

    by: str
    at: str
    started: str
    source: str
    version: str
    config_sha256: str


@dataclass(frozen=True, slots=True)
class Report:
    """What was found, signed. ``sha256`` is that of ``content``, the JSON file's bytes."""

    fields: Mapping[str, Any]
    content: bytes
    sha256: str

    @property
    def ok(self) -> bool:
        """Nothing is wrong, and nothing was left out of what was asked for."""
        return bool(self.fields["ok"])


def make_report(
    config: Config, sensors: Iterable[Found], gateway: Mapping[str, Result], signed: Signed
) -> Report:
    """The report of these sensors; ``complete`` where they are all of the config's."""
    found = list(sensors)
    by_name = {sensor.name: sensor for sensor in config.sensors}
    everything = [*found, ("gateway", gateway)]
    fields = {
        "v": VERSION,
        "gateway": config.gateway.id,
        "ok": all(each.outcome in GOOD for _, checks in everything for each in checks.values()),
        "complete": {name for name, _ in found} == set(by_name),
        "signed_by": signed.by,
        "signed_at": signed.at,
        "started": signed.started,
        "readings_from": signed.source,
        "board": config.board.kind,
        "version": signed.version,
        "config_sha256": signed.config_sha256,
        "latitude": config.gateway.latitude,
        "longitude": config.gateway.longitude,
        "elevation_m": config.gateway.elevation_m,
        "faults": [
            f"{name}: {check}: {_said(each)}"
            for name, checks in everything
            for check, each in checks.items()
            if each.outcome not in GOOD
        ],
        "sensors": [{**_plate(by_name[name]), "checks": _checks(checks)} for name, checks in found],
        "gateway_checks": _checks(gateway),
    }
    content = (json.dumps(fields, indent=1, ensure_ascii=False) + "\n").encode()
    return Report(fields, content, hashlib.sha256(content).hexdigest())


def _plate(sensor: SensorConfig) -> dict[str, Any]:
    told = {
        "name": sensor.name,
        "driver": sensor.driver,
        **{
            key: getattr(sensor, key)
            for key in ("model", "serial", "certificate", "lab", "height_m", "boom_deg")
        },
        "calibrated": None if sensor.calibrated is None else str(sensor.calibrated),
        **{key: getattr(sensor.options, key, None) for key in ("pin", "slope", "offset")},
    }
    return {key: value for key, value in told.items() if value is not None}


def _checks(checks: Mapping[str, Result]) -> list[dict[str, Any]]:
    return [{"check": check, **asdict(each)} for check, each in checks.items()]


def _said(result: Result) -> str:
    return "; ".join(filter(None, (result.note, result.words)))


def markdown(report: Report) -> str:
    """For people, and for a printer."""
    told = report.fields
    lines = [
        f"# Commissioning of {told['gateway']}",
        "",
        f"**{'All passed' if report.ok else 'Faults noted'}**"
        + ("" if told["complete"] else ", not all sensors"),
        "",
        f"Signed by {_plain(told['signed_by'])}, {told['signed_at']} (begun {told['started']}).",
        f"Readings from the {told['readings_from']}, board {told['board']}, fieldgate {told['version']}.",
    ]
    if told["faults"]:
        lines += ["", "## Faults", "", *(f"- {_plain(each)}" for each in told["faults"])]
    for sensor in told["sensors"]:
        plate = ", ".join(f"{key} {value}" for key, value in sensor.items() if key not in ("name", "checks"))
        lines += ["", f"## {sensor['name']}", "", _plain(plate), "", *_rows(sensor["checks"])]
    lines += ["", "## Gateway", "", *_rows(told["gateway_checks"])]
    lines += [
        "",
        f"sha256 of the JSON: {report.sha256}",
        f"sha256 of the config: {told['config_sha256']}",
        "",
    ]
    return "\n".join(lines)


def _rows(checks: Iterable[Mapping[str, Any]]) -> list[str]:
    return [
        f"- {each['check']}: **{each['outcome']}**, {_plain(each['words'])}"
        + (f"; note: {_plain(each['note'])}" if each["note"] else "")
        for each in checks
    ]


def _plain(text: str) -> str:
    """What somebody typed, on one line and without Markdown's signs."""
    return "".join(f"\\{char}" if char in "\\`*_<>[]|#" else char for char in " ".join(text.split()))


def event_fields(report: Report, file: str) -> dict[str, Any]:
    """What the cloud is told: the outcome at a glance, and the whole report."""
    told = report.fields
    return {
        "ok": told["ok"],
        "complete": told["complete"],
        "signed_by": told["signed_by"],
        "faults": told["faults"],
        "file": file,
        "sha256": report.sha256,
        "report": told,
    }
