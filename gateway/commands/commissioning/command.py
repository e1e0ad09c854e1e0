"""``fieldgate commission``: every sensor with the installer, then the gateway, then a signed report."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from contextlib import closing

from drivers.interface import DriverError
from gateway.commands.arguments import (
    FAILED,
    INTERRUPTED,
    OK,
    USAGE,
    CommandError,
    add_config,
    add_json,
    add_list,
    fail,
    os_problem,
    without_logs,
)
from gateway.commands.commissioning.checks import GOOD, Result
from gateway.commands.commissioning.gateway_checks import gateway_checks, not_in_force
from gateway.commands.commissioning.report import (
    EVENT,
    Report,
    event_fields,
    faults_of,
    make_report,
    markdown,
)
from gateway.commands.commissioning.session import Session
from gateway.commands.commissioning.terminal import Terminal
from gateway.commands.commissioning.walkthrough import Walk
from gateway.commands.live_readings import Source, open_source
from gateway.commands.read import chosen_sensors
from gateway.config import Config, SensorConfig, load
from gateway.config.calibration import today
from gateway.reporting.event_spool import NotSpooled, spool_event
from gateway.status.client import NoStatus, daemon_status
from gateway.system.host import installed_version
from gateway.system.times import now_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which sensors."""
    parser.description = (
        "Walks through each sensor with you: what to do, what is seen, whether it is right; then a report"
        " that you sign. Broken off, it goes on where it was."
    )
    add_config(parser)
    add_list(parser, "--sensor", "sensors", "NAME", "this one only")
    parser.add_argument("--restart", action="store_true", help="forget a session that was broken off")
    add_json(parser, "the report as JSON; the dialogue goes to stderr")


def run(arguments: argparse.Namespace) -> int:
    """0 where all passed, 1 where faults were noted, 130 where it was broken off.

    2 without a terminal. Raises ConfigError, CommandError.
    """
    # What goes wrong shows in the readings.
    without_logs("gateway", "drivers")
    out = sys.stderr if arguments.json else sys.stdout
    if not (sys.stdin.isatty() and out.isatty()):
        return fail("commission needs a person: run it on a terminal (ssh -t)", USAGE)
    config = load(arguments.config)
    sensors = chosen_sensors(config, arguments.sensors)
    try:
        with (
            closing(Session(config, arguments.sensors)) as session,
            open_source(config, config.sensors) as source,
        ):
            report = _walk(arguments, config, sensors, session, source, Terminal(out))
    except (EOFError, KeyboardInterrupt):
        return fail("broken off; what is done is kept: the same command goes on", INTERRUPTED)
    except (NoStatus, DriverError) as error:
        raise CommandError(f"{error}\nwhat is done is kept: the same command goes on") from error
    except OSError as error:
        raise CommandError(f"what is found can't be kept: {os_problem(error)}") from error
    if arguments.json:
        sys.stdout.write(report.content.decode())
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
    if earlier is not None and earlier[1] and not arguments.restart:
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
    results = dict(gateway_checks(config, status, not_in_force(config)))
    for check, result in results.items():
        terminal.show(f"{check}: {'ok' if result.outcome in GOOD else 'FAULT'}: {result.words}")
    return results


def _store(config: Config, session: Session, report: Report, terminal: Terminal) -> None:
    """Report, readable report, event; then the session is over."""
    stem = str(report.fields["signed_at"]).replace(":", "").replace("-", "")
    path = session.directory / f"{stem}.json"
    session.write(path, report.content)
    session.write(path.with_suffix(".md"), markdown(report).encode())
    terminal.show(f"Report {path} and .md\nsha256 {report.sha256}")
    try:
        spool_event(config.outbox.path, EVENT, event_fields(report, path.name))
    except NotSpooled as error:
        terminal.show(f"No event for the cloud: {error}")
    else:
        terminal.show("The daemon sends it with the readings.")
    session.end()
