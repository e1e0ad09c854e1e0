"""``fieldgate commission``: every sensor with the installer, then the gateway, then a signed report."""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final, TextIO

from buffer.errors import OutboxError
from drivers.interface import DriverError
from gateway.commands.arguments import FAILED, INTERRUPTED, OK, CommandError, add_config, add_json, fail
from gateway.commands.commissioning.gateway_checks import gateway_checks, not_in_force, outbox_days
from gateway.commands.commissioning.report import EVENT, Report, Signed, event_fields, make_report, markdown
from gateway.commands.commissioning.session import GOOD, Result, Session
from gateway.commands.commissioning.sources import Source, Watch, open_source
from gateway.commands.commissioning.terminal import AnswersFile, Dialogue, NoAnswer, Terminal
from gateway.commands.commissioning.walkthrough import Walk
from gateway.commands.read import chosen_sensors
from gateway.config import Config, SensorConfig, load
from gateway.config.calibration import today
from gateway.reporting.event_spool import NotSpooled, spool_event
from gateway.status.client import NoStatus, daemon_status
from gateway.system.host import installed_version
from gateway.system.times import now_text

# Before that the machine's clock was never set, and it can't judge a date.
_CLOCK_WAS_SET: Final = date(2025, 1, 1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which sensors, and whose answers."""
    parser.description = (
        "Walks through each sensor with you: what to do, what is seen, whether it is right; then a report"
        " that you sign. Broken off, it goes on where it was."
    )
    add_config(parser)
    parser.add_argument(
        "--sensor",
        dest="sensors",
        action="append",
        default=[],
        metavar="NAME",
        help="this one only (repeatable)",
    )
    parser.add_argument("--restart", action="store_true", help="forget a session that was broken off")
    add_json(parser, "the report as JSON; the dialogue goes to stderr")
    parser.add_argument(
        "--answers", type=Path, metavar="FILE", help="answers of a TOML file in place of yours, for tests"
    )


def run(arguments: argparse.Namespace) -> int:
    """0 where all passed, 1 where faults were noted, 130 where it was broken off.

    Raises NoAnswer without a terminal, and ConfigError, CommandError, NoStatus, DriverError.
    """
    # What goes wrong shows in the readings.
    logging.getLogger("gateway").setLevel(logging.CRITICAL)
    logging.getLogger("drivers").setLevel(logging.CRITICAL)
    out = sys.stderr if arguments.json else sys.stdout
    dialogue = _dialogue(arguments.answers, out)
    config = load(arguments.config)
    sensors = chosen_sensors(config, arguments.sensors)
    source: Source | None = None
    session: Session | None = None
    try:
        session = Session(config, arguments.sensors)
        source = open_source(config)
        report = _walk(arguments, config, sensors, session, source, dialogue)
        if arguments.json:
            sys.stdout.write(report.content.decode())
        return OK if report.ok else FAILED
    except (EOFError, KeyboardInterrupt):
        return fail("broken off; what is done is kept: the same command goes on", INTERRUPTED)
    except NoAnswer as error:
        raise NoAnswer(f"{error}\nwhat is done is kept") from error
    except (NoStatus, DriverError) as error:
        raise CommandError(f"{error}\nwhat is done is kept: the same command goes on") from error
    except OSError as error:
        remedy = ": use sudo" if isinstance(error, PermissionError) else ""
        raise CommandError(
            f"what is found can't be kept: {error.filename}: {error.strerror}{remedy}"
        ) from error
    finally:
        if source is not None:
            source.close()
        if session is not None:
            session.close()


def _dialogue(answers: Path | None, out: TextIO) -> Dialogue:
    """Raises NoAnswer where there is nobody to ask."""
    if answers is not None:
        return AnswersFile(answers, out)
    if not (sys.stdin.isatty() and out.isatty()):
        raise NoAnswer("commission asks a person: run it on a terminal (ssh -t), or give --answers FILE")
    return Terminal(out)


def _walk(
    arguments: argparse.Namespace,
    config: Config,
    sensors: Sequence[SensorConfig],
    session: Session,
    source: Source,
    dialogue: Dialogue,
) -> Report:
    dialogue.tell(
        f"Commissioning {config.gateway.id}: {len(sensors)} sensors, readings from the {source.kind}. "
        "Ctrl-C breaks off; nothing is lost."
    )
    _resume(arguments, session, dialogue)
    Walk(config, session, Watch(source), dialogue, _day).go(sensors)
    gateway = _gateway(config, source, dialogue)
    found = [(sensor.name, session.of(sensor.name)) for sensor in sensors]
    faults = sum(each.outcome not in GOOD for _, checks in found for each in checks.values())
    faults += sum(each.outcome not in GOOD for each in gateway.values())
    dialogue.tell(f"\n{_count(faults)} noted." if faults else "\nAll passed.")
    name = ""
    while not name:
        name = dialogue.ask("To sign this, type your name.", "session.name")
    signed = Signed(
        name, now_text("seconds"), session.started, source.kind, installed_version() or "unknown",
        hashlib.sha256(arguments.config.read_bytes()).hexdigest(),
    )  # fmt: skip
    report = make_report(config, found, gateway, signed)
    _keep(config, session, report, dialogue)
    return report


def _resume(arguments: argparse.Namespace, session: Session, dialogue: Dialogue) -> None:
    earlier = session.earlier()
    if earlier is None or not earlier[1] or arguments.restart:
        return
    started, count = earlier
    question = f"A session of {started} was broken off after {count} checks. Go on with it? y/n"
    if dialogue.ask(question, "session.resume", ("y", "n")) == "y":
        session.resume()


def _day() -> date | None:
    day = today()
    return day if day >= _CLOCK_WAS_SET else None


def _gateway(config: Config, source: Source, dialogue: Dialogue) -> dict[str, Result]:
    dialogue.tell("\nThe gateway")
    status: dict[str, Any] | None = daemon_status(config) if source.kind == "daemon" else None
    days = None
    if status is not None:
        try:
            days = outbox_days(config, status)
        except (OutboxError, OSError) as error:
            dialogue.tell(f"How many days the outbox holds can't be measured: {error}")
    results = {}
    for check, result in gateway_checks(config, status, days, not_in_force(config)):
        results[check] = result
        dialogue.tell(f"{check}: {'ok' if result.outcome in GOOD else 'FAULT'}: {result.words}")
    return results


def _keep(config: Config, session: Session, report: Report, dialogue: Dialogue) -> None:
    """Report, readable report, event; then the session is over."""
    stem = str(report.fields["signed_at"]).replace(":", "").replace("-", "")
    path = session.directory / f"{stem}.json"
    session.write(path, report.content)
    session.write(path.with_suffix(".md"), markdown(report).encode())
    dialogue.tell(f"Report {path} and .md\nsha256 {report.sha256}")
    try:
        spool_event(config.outbox.path, EVENT, event_fields(report, path.name))
    except NotSpooled as error:
        dialogue.tell(f"No event for the cloud: {error}")
    else:
        dialogue.tell("The daemon sends it with the readings.")
    session.end()


def _count(faults: int) -> str:
    return "1 fault" if faults == 1 else f"{faults} faults"
