"""Settings of a run, from the command line, once."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cloud.wire.channel_records import CHANNELS_TOPIC
from cloud.wire.fields import parse_time
from cloud.wire.reading_records import DEAD_LETTER_TOPIC, RAW_TOPIC, RUNS_TOPIC, STATUS_TOPIC
from spark_jobs.errors import SettingsError
from spark_jobs.registry import COMMANDS, STREAMING, load

JOB_NAMES: Final = tuple(STREAMING)
"""In the order data flows, which is the order ``--once`` runs them in."""

TOPIC_PATTERN: Final = r"mqtt\.(?!raw$).+|" + re.escape(DEAD_LETTER_TOPIC)
"""Topics that hold readings, and the dead letters (a Java regular expression)."""

_RECORD_TOPICS: Final = {
    "raw-topic": RAW_TOPIC,
    "channels-topic": CHANNELS_TOPIC,
    "runs-topic": RUNS_TOPIC,
    "status-topic": STATUS_TOPIC,
}
"""Topics of what is no reading, one each."""

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DAY_S: Final = 86_400


@dataclass(frozen=True)
class Settings:
    """One run of one or more jobs.

    ``lake`` and ``checkpoints`` are directories or URIs Spark can write; ``interval_s`` divides a day;
    ``trigger_s`` is the least time between two batches of ``ingest``, in seconds; ``max_records`` bounds one
        batch; ``metrics`` is the HOST:PORT Prometheus finds the metrics at; ``quarantine_cap`` the rows that
    ``quarantine`` takes of one gateway in one hour of Kafka's time; ``silent_after_s`` how long a channel may
    go without a reading, where five periods are not longer; ``rules`` the file of ``alerts``, None for the
    packaged one.
    """

    jobs: tuple[str, ...]
    bootstrap_servers: str
    lake: str
    checkpoints: str
    interval_s: int = 600
    trigger_s: float = 2.0
    master: str = "local[2]"
    once: bool = False
    topic_pattern: str = TOPIC_PATTERN
    dead_letter_topic: str = DEAD_LETTER_TOPIC
    raw_topic: str = RAW_TOPIC
    channels_topic: str = CHANNELS_TOPIC
    runs_topic: str = RUNS_TOPIC
    status_topic: str = STATUS_TOPIC
    max_records: int = 500_000
    quarantine_cap: int = 10_000
    silent_after_s: float = 60.0
    fail_on_data_loss: bool = True
    rules: str | None = None
    ui: bool = False
    conf: tuple[tuple[str, str], ...] = ()
    metrics: str | None = None
    model_dir: str = ""

    @property
    def models(self) -> str:
        """Where trained models are."""
        return self.model_dir or f"{self.lake.rstrip('/')}-models"

    def table(self, name: str) -> str:
        """Location of a table."""
        return f"{self.lake.rstrip('/')}/{name}"

    def checkpoint(self, query: str, version: int = 1) -> str:
        """Location of a query's checkpoint; the version goes up when an older one can't be read on."""
        return f"{self.checkpoints.rstrip('/')}/{query}/v{version}"


def duration_s(text: str) -> float:
    """Seconds in ``500ms``, ``2s``, ``1m``, ``1h``, ``7d``. Raises SettingsError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text.strip())
    if match is None:
        raise SettingsError(f"{text!r} is not a duration such as 500ms, 2s, 10m, 1h or 7d")
    return float(match[1]) * _SECONDS[match[2]]


def moment_us(text: str) -> int:
    """Microseconds since the epoch of ``2026-05-28`` (midnight UTC) or RFC 3339. Raises SettingsError."""
    try:
        return parse_time(f"{text}T00:00:00Z" if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else text)
    except ValueError as error:
        raise SettingsError(
            f"{text!r} is no time such as 2026-05-28 or 2026-05-28T06:00:00Z: {error}"
        ) from error


def interval_s(text: str) -> int:
    """Whole seconds of a statistics interval, which divides a day. Raises SettingsError."""
    seconds = duration_s(text)
    if seconds < 1 or seconds != int(seconds) or _DAY_S % int(seconds):
        raise SettingsError(f"an interval of {text} does not divide a day into whole seconds")
    return int(seconds)


def _location(text: str) -> str:
    """Relative paths are made absolute: Spark's driver and workers may have other working directories.

    ``file:///a`` becomes ``/a``: Delta takes it and the ``file:/a`` that Hadoop makes of it for two places.
    """
    local = re.fullmatch(r"file:(?://)?(/.*)", text)
    if local is not None:
        return str(Path(local[1]))
    return text if "://" in text else str(Path(text).resolve())


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise SettingsError(f"--conf {text!r} is not KEY=VALUE")
    return key, value


def _add_place(parser: argparse.ArgumentParser) -> None:
    """What every command needs: where the data is, and which Spark works on it."""
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092", metavar="HOST:PORT")
    parser.add_argument("--lake", default="./lake", metavar="URI", help="root of the tables")
    parser.add_argument("--checkpoints", metavar="URI", help="default: LAKE with -checkpoints appended")
    parser.add_argument(
        "--model-dir", metavar="URI", help="trained models; default: LAKE with -models appended"
    )
    parser.add_argument("--interval", default="10m", help="interval of the statistics, e.g. 1m")
    parser.add_argument("--master", default="local[2]", help="Spark master")
    parser.add_argument("--topics", default=TOPIC_PATTERN, metavar="REGEX", help="Kafka topics to ingest")
    parser.add_argument("--dead-letter-topic", default=DEAD_LETTER_TOPIC, metavar="NAME")
    for option, topic in _RECORD_TOPICS.items():
        parser.add_argument(f"--{option}", default=topic, metavar="NAME")
    parser.add_argument("--ui", action="store_true", help="Spark's web interface")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="Spark configuration"
    )


def _run_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fieldgate jobs run",
        description="Runs jobs until SIGTERM, or until nothing is left.",
    )
    parser.add_argument("jobs", nargs="+", metavar="NAME", help=f"{', '.join(JOB_NAMES)} or all")
    _add_place(parser)
    parser.add_argument("--trigger", default="2s", help="least time between two batches")
    parser.add_argument("--once", action="store_true", help="process what is there, then exit")
    parser.add_argument(
        "--max-records", type=int, default=500_000, metavar="N", help="records in one batch, at most"
    )
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics here (default: not)")
    parser.add_argument(
        "--quarantine-cap",
        type=int,
        default=10_000,
        metavar="N",
        help="rows of quarantine per gateway and hour; more are counted, not stored",
    )
    parser.add_argument(
        "--silent-after",
        default="60s",
        metavar="DURATION",
        help="a channel is silent after so long without a reading, or five of its periods",
    )
    parser.add_argument(
        "--accept-data-loss",
        action="store_true",
        help="go on when Kafka no longer has what the checkpoint expects (default: fail and say so)",
    )
    parser.add_argument("--rules", metavar="FILE", help="rules of `alerts`; default: those for a met mast")
    return parser


def _settings(options: argparse.Namespace, jobs: tuple[str, ...]) -> Settings:
    """Settings of the options that all commands have."""
    lake = _location(options.lake)
    return Settings(
        jobs=jobs,
        bootstrap_servers=options.bootstrap_servers,
        lake=lake,
        checkpoints=_location(options.checkpoints)
        if options.checkpoints
        else f"{lake.rstrip('/')}-checkpoints",
        interval_s=interval_s(options.interval),
        model_dir=_location(options.model_dir) if options.model_dir else "",
        master=options.master,
        topic_pattern=options.topics,
        dead_letter_topic=options.dead_letter_topic,
        raw_topic=options.raw_topic,
        channels_topic=options.channels_topic,
        runs_topic=options.runs_topic,
        status_topic=options.status_topic,
        ui=options.ui,
        conf=tuple(_pair(text) for text in options.conf),
    )


def parse_run(argv: Sequence[str]) -> Settings:
    """Settings of ``jobs run``. Raises SettingsError; argparse exits on unknown options."""
    options = _run_parser().parse_args(argv)
    names = JOB_NAMES if "all" in options.jobs else tuple(dict.fromkeys(options.jobs))
    unknown = [name for name in names if name not in JOB_NAMES]
    if unknown:
        raise SettingsError(f"no job is named {unknown[0]!r}; there are {', '.join(JOB_NAMES)} and all")
    if options.max_records < 1:
        raise SettingsError("--max-records must be at least 1")
    if options.quarantine_cap < 0:
        raise SettingsError("--quarantine-cap must be at least 0")
    if options.rules is not None:
        # Here already: Spark takes seconds to start. Imported only now: other jobs need no pydantic.
        from spark_jobs.alerting.rules_file import load_rules

        load_rules(Path(options.rules))
    return replace(
        _settings(options, tuple(name for name in JOB_NAMES if name in names)),
        trigger_s=duration_s(options.trigger),
        once=options.once,
        max_records=options.max_records,
        quarantine_cap=options.quarantine_cap,
        silent_after_s=duration_s(options.silent_after),
        fail_on_data_loss=not options.accept_data_loss,
        metrics=options.metrics,
        rules=None if options.rules is None else str(Path(options.rules).resolve()),
    )


def parse_command(name: str, argv: Sequence[str]) -> tuple[argparse.Namespace, Settings]:
    """Options and settings of another command of COMMANDS. Raises SettingsError."""
    command = load(COMMANDS[name])
    parser = argparse.ArgumentParser(prog=f"fieldgate jobs {name}", description=command.DESCRIPTION)
    command.add_arguments(parser)
    _add_place(parser)
    options = parser.parse_args(argv)
    return options, _settings(options, ())
