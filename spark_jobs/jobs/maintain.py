"""``jobs maintain``: keeps the tables small and quick, once or for ever, beside the jobs that write them."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import threading
from dataclasses import asdict
from types import FrameType
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from spark_jobs.maintenance.schedule import AGED_BY, Maintenance, MaintenanceOptions, Report
from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.session import running_session
from spark_jobs.platform.settings import Settings, duration_s
from spark_jobs.streaming.query import Timer

DESCRIPTION: Final = "join small files, cluster closed days, drop what is too old"

log = logging.getLogger("fieldgate.jobs.maintain")

_DAY_S: Final = 86_400.0
_KEPT_DAYS: Final = {"quarantine": 30}
_LEAST_VACUUM_S: Final = 3600.0
"""Files of a write under way are in no version yet, and a reader may be at those of the version before."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``jobs maintain``."""
    add = parser.add_argument
    every = "go on for ever, all of it every so often, e.g. 15m"
    unused = "how long files stay that are in no version any more: longer than any job is down (default 7d)"
    add("--every", type=duration_s, metavar="TIME", help=every)
    add("--dry-run", action="store_true", help="report what would be done")
    add("--json", action="store_true", help="one JSON object a round")
    for table in AGED_BY:
        default = _KEPT_DAYS.get(table)
        help = f"rows of {table}; default: {default or 'for ever'}"
        add(f"--keep-{table}", type=int, default=default, metavar="DAYS", help=help)
    add("--vacuum-after", type=duration_s, default="7d", metavar="TIME", help=unused)


def options_of(options: argparse.Namespace, settings: Settings) -> MaintenanceOptions:
    """The options of the rounds. Raises SettingsError."""
    keep_days = {table: getattr(options, f"keep_{table}") for table in AGED_BY}
    for table, days in keep_days.items():
        if days is not None and days < 1:
            raise SettingsError(f"--keep-{table} must be at least 1 day")
    if options.vacuum_after < _LEAST_VACUUM_S:
        raise SettingsError(
            "--vacuum-after must be at least 1h: vacuum would remove files of writes and queries under way"
        )
    return MaintenanceOptions(
        dry_run=options.dry_run,
        keep_days={table: days for table, days in keep_days.items() if days is not None},
        vacuum_days=options.vacuum_after / _DAY_S,
    )


def _print(report: Report, *, as_json: bool) -> None:
    print(json.dumps(asdict(report)) if as_json else report.text() or "nothing to do")


def main(options: argparse.Namespace, settings: Settings) -> None:
    """Does a round; with ``--every`` rounds until SIGTERM or SIGINT."""
    rounds = options_of(options, settings)
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    with running_session(settings, "fieldgate-maintain") as spark:
        signal.signal(signal.SIGINT, stop)
        maintenance = Maintenance(spark, settings, rounds)
        _print(maintenance.round(), as_json=options.json)
        daily = Timer(_DAY_S, at_once=False)
        while options.every is not None and not stopping.wait(options.every):
            try:
                _print(maintenance.round(daily=daily.due()), as_json=options.json)
            except (PySparkException, Py4JJavaError) as error:
                # A store that is away for a while: the next round may find it again.
                log.error("event=maintain.failed %s", str(error).strip().partition("\n")[0][:500])
