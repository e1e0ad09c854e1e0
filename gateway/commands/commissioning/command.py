"""``fieldgate commission``: every sensor with the installer, then the gateway, then a signed report.

The checks of the gateway are the running daemon's own findings. The report is JSON, an entry a line.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from cloud.command_line import (
    FAILED,
    INTERRUPTED,
    OK,
    USAGE,
    CommandError,
    add_config,
    add_list,
    fail,
    os_problem,
    without_logs,
)
from drivers.interface import DriverError
from gateway.calibration.history import UnreadableHistory, channel_records, history_path, read_history
from gateway.commands.calibrations import standing
from gateway.commands.commissioning.checks import GOOD, Result
from gateway.commands.commissioning.session import Session
from gateway.commands.commissioning.walkthrough import Terminal, Walk
from gateway.commands.read import Source, chosen_sensors, open_source
from gateway.config import Config, SensorConfig, load
from gateway.config.calibration import today
from gateway.reporting.event_spool import NotSpooled, spool_event
from gateway.status.client import NoStatus, daemon_status
from gateway.status.findings import RELOAD
from gateway.status.status import Finding, Status
from gateway.system.host import installed_version
from gateway.system.times import now_text

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


def event_fields(report: Report, file: str) -> dict[str, Any]:
    """The event for the cloud: the outcome at a glance, and the whole report."""
    glance = {key: report.fields[key] for key in ("ok", "complete", "signed_by", "faults")}
    return {**glance, "file": file, "sha256": report.sha256, "report": report.fields}


def gateway_checks(status: Status | None, stale: Sequence[str]) -> dict[str, Result]:
    """The daemon's findings by area: passed, or a fault where one isn't well. Pure.

    ``stale`` are channels that the daemon measures with other figures than the config's.
    """
    if status is None:
        return {"daemon": Result("fault", "the daemon doesn't run: sudo systemctl enable --now fieldgate")}
    by_area: dict[str, list[Finding]] = {}
    for finding in status.findings:
        by_area.setdefault(finding.area, []).append(finding)
    results = {}
    for area, found in by_area.items():
        wrong = [each for each in found if each.severity != "ok"]
        words = "; ".join(each.what for each in wrong or found)
        results[area] = Result("fault" if wrong else "passed", words)
    if stale:
        words = f"the daemon has other figures for {', '.join(stale)}: {RELOAD}"
        results["calibrations"] = Result("fault", words)
    else:
        results["calibrations"] = Result("passed", "the daemon measures with the config's")
    return results


def not_in_force(config: Config) -> list[str]:
    """Channels whose calibration the daemon hasn't taken over, by its own history."""
    try:
        known = standing(read_history(history_path(config)), channel_records(config))
    except UnreadableHistory:
        return ["every sensor"]
    return list(dict.fromkeys(each.record.channel for each in known if "reload" in each.state))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which sensors."""
    parser.description = (
        "Walks through each sensor with you: what to do, what is seen, whether it is right; then a report"
        " that you sign. Broken off, it goes on where it was."
    )
    add_config(parser)
    add_list(parser, "--sensor", "sensors", "NAME", "this one only")


def run(arguments: argparse.Namespace) -> int:
    """0 where all passed, 1 where faults were noted, 130 where it was broken off.

    2 without a terminal. Raises ConfigError, CommandError.
    """
    # What goes wrong shows in the readings.
    without_logs("gateway", "drivers")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return fail("commission needs a person: run it on a terminal (ssh -t)", USAGE)
    config = load(arguments.config)
    sensors = chosen_sensors(config, arguments.sensors)
    try:
        with (
            closing(Session(config, arguments.sensors)) as session,
            open_source(config, config.sensors) as source,
        ):
            report = _walk(arguments, config, sensors, session, source, Terminal(sys.stdout))
    except (EOFError, KeyboardInterrupt):
        return fail("broken off; what is done is kept: the same command goes on", INTERRUPTED)
    except (NoStatus, DriverError) as error:
        raise CommandError(f"{error}\nwhat is done is kept: the same command goes on") from error
    except OSError as error:
        raise CommandError(f"what is found can't be kept: {os_problem(error)}") from error
    return OK if report.ok else FAILED


def _walk(
    arguments: argparse.Namespace,
    config: Config,
    sensors: Sequence[SensorConfig],
    session: Session,
    source: Source,
    terminal: Terminal,
) -> Report:
    terminal.show(
        f"Commissioning {config.gateway.id}: {len(sensors)} sensors, readings from the {source.kind}. "
        "Ctrl-C breaks off; nothing is lost."
    )
    earlier = session.earlier()
    if earlier is not None and earlier[1]:
        question = f"A session of {earlier[0]} was broken off after {earlier[1]} checks. Go on with it? y/n"
        if terminal.prompt(question, ("y", "n")) == "y":
            session.resume()
    Walk(config, session, source, terminal, today()).go(sensors)
    gateway = _gateway(config, source, terminal)
    found = [(sensor.name, session.of(sensor.name)) for sensor in sensors]
    faults = len(faults_of([*found, ("gateway", gateway)]))
    terminal.show(f"\n{faults} fault{'' if faults == 1 else 's'} noted." if faults else "\nAll passed.")
    name = ""
    while not name:
        name = terminal.prompt("To sign this, type your name.")
    signed = {
        "signed_by": name,
        "signed_at": now_text("seconds"),
        "started": session.started,
        "readings_from": source.kind,
        "version": installed_version() or "unknown",
        "config_sha256": hashlib.sha256(arguments.config.read_bytes()).hexdigest(),
    }
    report = make_report(config, found, gateway, signed)
    _store(config, session, report, terminal)
    return report


def _gateway(config: Config, source: Source, terminal: Terminal) -> dict[str, Result]:
    terminal.show("\nThe gateway")
    status = daemon_status(config) if source.kind == "daemon" else None
    results = gateway_checks(status, not_in_force(config))
    for check, result in results.items():
        terminal.show(f"{check}: {'ok' if result.outcome in GOOD else 'FAULT'}: {result.words}")
    return results


def _store(config: Config, session: Session, report: Report, terminal: Terminal) -> None:
    """Report and event; then the session is over."""
    stem = str(report.fields["signed_at"]).replace(":", "").replace("-", "")
    path = session.directory / f"{stem}.json"
    session.write(path, report.content)
    terminal.show(f"Report {path}\nsha256 {report.sha256}")
    try:
        spool_event(config.outbox.path, EVENT, event_fields(report, path.name))
    except NotSpooled as error:
        terminal.show(f"No event for the cloud: {error}")
    else:
        terminal.show("The daemon sends it with the readings.")
    session.end()
