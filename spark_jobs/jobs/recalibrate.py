"""``jobs recalibrate``: values of one channel and period computed again from raw by a later certificate."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, fields
from datetime import date
from functools import partial
from pathlib import Path
from typing import Final

from cloud.wire.channel_records import parse_channel
from spark_jobs.maintenance.recalibration import Certificate, Later, Wanted, recalibrate
from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.session import running_session
from spark_jobs.platform.settings import Settings, period

DESCRIPTION: Final = "compute a channel's values again from raw with a later certificate"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``jobs recalibrate``."""
    parser.add_argument("--gateway", required=True, metavar="ID")
    parser.add_argument("--channel", required=True, metavar="NAME", help="e.g. cup-50m-a.wind_speed")
    parser.add_argument("--from", required=True, dest="begin", metavar="TIME", help="by the readings' time")
    parser.add_argument("--to", required=True, dest="end", metavar="TIME", help="not included")
    parser.add_argument("--cal", metavar="CAL", help="only readings made with this calibration")
    parser.add_argument("--slope", type=float, help="of the later certificate, unit per raw unit")
    parser.add_argument("--offset", type=float, help="of the later certificate, in the unit")
    for name in ("certificate", "serial", "lab"):
        parser.add_argument(f"--{name}", help="as on the certificate")
    for name in ("calibrated", "expires"):
        parser.add_argument(f"--{name}", type=partial(_day, name), help="as on the certificate")
    parser.add_argument("--record", metavar="FILE", help="instead: the gateway's own record (JSON)")
    parser.add_argument("--original", action="store_true", help="instead: back to what the gateway sent")
    parser.add_argument("--dry-run", action="store_true", help="report how much would change")
    parser.add_argument("--json", action="store_true")


def wanted_of(options: argparse.Namespace) -> tuple[Wanted, Later]:
    """The readings, and what takes their calibration's place. Raises SettingsError."""
    begin, end = period(options.begin, options.end)
    return Wanted(options.gateway, options.channel, begin, end, options.cal), _later(options)


def _later(options: argparse.Namespace) -> Later:
    figures = options.slope is not None or options.offset is not None
    if figures + (options.record is not None) + options.original != 1:
        raise SettingsError("give one of: --slope and --offset, --record FILE, --original")
    if options.original:
        return None
    if options.record is not None:
        return _record(Path(options.record), options.channel)
    if options.slope is None or options.offset is None:
        raise SettingsError("--slope and --offset belong together: both stand on the certificate")
    return Certificate(**{each.name: getattr(options, each.name) for each in fields(Certificate)})


def _record(file: Path, channel: str) -> Later:
    """The record in a file: one JSON object, or what ``fieldgate calibrations --json`` prints."""
    try:
        given = json.loads(file.read_text())
        found = [each for each in given if each["channel"] == channel] if isinstance(given, list) else [given]
        if len(found) != 1:
            raise SettingsError(f"{file}: {len(found)} records of {channel}; leave one in the file")
        return parse_channel(json.dumps(found[0]).encode())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{file}: no calibration record: {error}") from error


def _day(name: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise SettingsError(f"--{name} {text!r} is no date such as 2026-11-02") from error


def main(options: argparse.Namespace, settings: Settings) -> None:
    """Recalibrates, and prints what that changed."""
    request = wanted_of(options)
    with running_session(settings, "fieldgate-recalibrate") as spark:
        outcome = recalibrate(spark, settings, *request, dry_run=options.dry_run)
    figures = {"dry_run": options.dry_run, **asdict(outcome)}
    print(json.dumps(figures) if options.json else "\n".join(f"{k:<16} {v}" for k, v in figures.items()))
