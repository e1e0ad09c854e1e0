"""The signed-off report: JSON for programs, Markdown for people, one hash for both. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from gateway.commands.commissioning.checks import GOOD, Result
from gateway.config import Config, SensorConfig

VERSION: Final = 1
EVENT: Final = "commissioned"
_PLATE: Final = ("name", "driver", "model", "serial", "certificate", "lab", "height_m", "boom_deg")

Found = tuple[str, Mapping[str, Result]]
"""A sensor's name and its results by check."""


class Report(NamedTuple):
    """What was found, signed. ``sha256`` is that of ``content``, the JSON file's bytes.

    ``ok``: nothing is wrong, and nothing requested was left out.
    """

    ok: bool
    fields: Mapping[str, Any]
    content: bytes
    sha256: str


def faults_of(found: Iterable[Found]) -> list[str]:
    """What isn't well, one sentence each."""
    return [
        f"{name}: {check}: {'; '.join(filter(None, (each.note, each.words)))}"
        for name, checks in found
        for check, each in checks.items()
        if each.outcome not in GOOD
    ]


def make_report(
    config: Config, sensors: Iterable[Found], gateway: Mapping[str, Result], signed: Mapping[str, str]
) -> Report:
    """The report of these sensors; ``complete`` where they are all of the config's.

    ``signed``: signed_by, signed_at, started, readings_from (the daemon or the board itself), version and
    config_sha256.
    """
    found = list(sensors)
    by_name = {sensor.name: sensor for sensor in config.sensors}
    faults = faults_of([*found, ("gateway", gateway)])
    fields = {
        "v": VERSION,
        "gateway": config.gateway.id,
        "ok": not faults,
        "complete": {name for name, _ in found} == set(by_name),
        **signed,
        "board": config.board.kind,
        "latitude": config.gateway.latitude,
        "longitude": config.gateway.longitude,
        "elevation_m": config.gateway.elevation_m,
        "faults": faults,
        "sensors": [{**_plate(by_name[name]), "checks": _checks(checks)} for name, checks in found],
        "gateway_checks": _checks(gateway),
    }
    content = (json.dumps(fields, indent=1, ensure_ascii=False) + "\n").encode()
    return Report(not faults, fields, content, hashlib.sha256(content).hexdigest())


def _plate(sensor: SensorConfig) -> dict[str, Any]:
    plate = {
        **{key: getattr(sensor, key) for key in _PLATE},
        "calibrated": None if sensor.calibrated is None else str(sensor.calibrated),
        **{key: getattr(sensor.options, key, None) for key in ("pin", "slope", "offset")},
    }
    return {key: value for key, value in plate.items() if value is not None}


def _checks(checks: Mapping[str, Result]) -> list[dict[str, Any]]:
    return [{"check": check, **asdict(each)} for check, each in checks.items()]


def markdown(report: Report) -> str:
    """For people, and for a printer."""
    fields = report.fields
    lines = [
        f"# Commissioning of {fields['gateway']}",
        "",
        f"**{'All passed' if report.ok else 'Faults noted'}**"
        + ("" if fields["complete"] else ", not all sensors"),
        "",
        f"Signed by {_plain(fields['signed_by'])}, {fields['signed_at']} (begun {fields['started']}).",
        f"Readings from the {fields['readings_from']}, board {fields['board']}, "
        f"fieldgate {fields['version']}.",
    ]
    if fields["faults"]:
        lines += ["", "## Faults", "", *(f"- {_plain(each)}" for each in fields["faults"])]
    for sensor in fields["sensors"]:
        plate = ", ".join(f"{key} {value}" for key, value in sensor.items() if key not in ("name", "checks"))
        lines += ["", f"## {sensor['name']}", "", _plain(plate), "", *_rows(sensor["checks"])]
    lines += ["", "## Gateway", "", *_rows(fields["gateway_checks"])]
    lines += [
        "",
        f"sha256 of the JSON: {report.sha256}",
        f"sha256 of the config: {fields['config_sha256']}",
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
    """What a person typed, on one line and without Markdown's signs."""
    return "".join(f"\\{char}" if char in "\\`*_<>[]|#" else char for char in " ".join(text.split()))


def event_fields(report: Report, file: str) -> dict[str, Any]:
    """The event for the cloud: the outcome at a glance, and the whole report."""
    glance = {key: report.fields[key] for key in ("ok", "complete", "signed_by", "faults")}
    return {**glance, "file": file, "sha256": report.sha256, "report": report.fields}
