"""``jobs maintain``: keeps the tables small and quick, once or for ever, beside the jobs that write them."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Final

from spark_jobs.errors import SettingsError
from spark_jobs.settings import Settings, duration_s

if TYPE_CHECKING:
    from spark_jobs.maintenance.schedule import Plan, Report

DESCRIPTION: Final = "join small files, cluster closed days, drop what is too old, back up checkpoints"

log = logging.getLogger("fieldgate.jobs.maintain")

_GLANCE_S: Final = 20.0
"""How often an endless run looks whether an open day has too many files."""
_DAY_S: Final = 86_400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``jobs maintain``."""
    parser.add_argument("--every", metavar="TIME", help="go on for ever, all of it every so often, e.g. 15m")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    parser.add_argument("--json", action="store_true", help="one JSON object a round")
    parser.add_argument("--keep-readings", type=int, metavar="DAYS", help="default: for ever")
    parser.add_argument("--keep-messages", type=int, metavar="DAYS", help="default: for ever")
    parser.add_argument("--keep-quarantine", type=int, default=30, metavar="DAYS", help="default: 30")
    parser.add_argument(
        "--vacuum-after",
        default="7d",
        metavar="TIME",
        help="how long files stay that are in no version any more: longer than any job is down (default 7d)",
    )
    parser.add_argument(
        "--backup", metavar="URI", help="where checkpoints are copied to (default: CHECKPOINTS-backup)"
    )
    parser.add_argument("--no-backup", action="store_true", help="copy no checkpoints")


def plan_of(options: argparse.Namespace, settings: Settings) -> Plan:
    """The plan that the options make. Raises SettingsError."""
    from spark_jobs.maintenance.schedule import Plan

    keep = {"readings": options.keep_readings, "messages": options.keep_messages}
    for name, days in (*keep.items(), ("quarantine", options.keep_quarantine)):
        if days is not None and days < 1:
            raise SettingsError(f"--keep-{name} must be at least 1 day")
    beside = f"{settings.checkpoints.rstrip('/')}-backup"
    return Plan(
        dry_run=options.dry_run,
        keep_days=tuple((name, days) for name, days in keep.items() if days is not None),
        quarantine_days=options.keep_quarantine,
        vacuum_days=duration_s(options.vacuum_after) / _DAY_S,
        backup=None if options.no_backup else options.backup or beside,
    )


def _say(report: Report, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"dry_run": report.dry_run, "tables": report.tables, "actions": report.actions}))
    else:
        print(report.text())


def main(options: argparse.Namespace, settings: Settings) -> None:
    """Does a round; with ``--every`` rounds and glances until SIGTERM or SIGINT."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from spark_jobs.maintenance.schedule import Upkeep
    from spark_jobs.session import spark_session

    plan = plan_of(options, settings)
    every_s = None if options.every is None else duration_s(options.every)
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    spark = spark_session(settings, app="fieldgate-maintain")
    signal.signal(signal.SIGINT, stop)
    try:
        upkeep = Upkeep(spark, settings, plan)
        _say(upkeep.round(), as_json=options.json)
        round_at = daily_at = time.monotonic()
        while every_s is not None and not stopping.wait(min(_GLANCE_S, every_s)):
            now_s = time.monotonic()
            try:
                if now_s - round_at < every_s:
                    upkeep.glance()
                    continue
                round_at = now_s
                daily = now_s - daily_at >= _DAY_S
                daily_at = now_s if daily else daily_at
                _say(upkeep.round(daily=daily), as_json=options.json)
            except (PySparkException, Py4JJavaError) as error:
                # A store that is away for a while: the next look may find it again.
                log.error("event=maintain.failed %s", str(error).strip().partition("\n")[0][:500])
    finally:
        spark.stop()
