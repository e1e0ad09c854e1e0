"""What a demo is to do, from the command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from cloud.command_line import add_json, add_overrides, not_negative, positive
from cloud.values import interval_s

MAST: Final = Path(__file__).with_name("mast.toml")
"""The simulated mast that is shown when no config is named."""

JOBS: Final = ("ingest", "statistics", "mast", "presence", "alerts")
"""All Spark jobs that need no trained model; in this order their queries start."""
_FLEET_INTERVAL: Final = "10m"
"""A reading a minute has no standard deviation in an interval of a minute, and no turbulence."""
_COUNTED: Final = JOBS[:2]
"""Fill the tables that a demo waits for at its end."""


@dataclass(frozen=True, slots=True)
class Options:
    """One demo. ``workdir`` None: a fresh directory. ``interval`` as given. Seconds are real ones."""

    config: Path
    overrides: Mapping[str, object]
    workdir: Path | None
    seconds: float | None
    interval: str
    jobs: tuple[str, ...]
    json: bool
    drain_timeout_s: float
    resume: bool
    restart_after_s: float
    fleet: bool = False

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Self:
        """Reads the command line."""
        interval = arguments.interval or (_FLEET_INTERVAL if arguments.fleet else "1m")
        return cls(**{**vars(arguments), "overrides": dict(arguments.overrides), "interval": interval})

    @property
    def unattended(self) -> bool:
        """Whether it ends by itself."""
        return self.json or self.seconds is not None

    @property
    def has_pages(self) -> bool:
        """Whether the dashboard is started: for people, where its extra is installed."""
        return not self.unattended and find_spec("nicegui") is not None


def _interval(text: str) -> str:
    """``30s``, ``1m``, ``1h``. Raises ArgumentTypeError unless it divides a day."""
    try:
        interval_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _jobs(text: str) -> tuple[str, ...]:
    """``ingest,statistics,mast``, in the order in which they start. Raises ArgumentTypeError."""
    named = {name.strip() for name in text.split(",")}
    if unknown := sorted(named.difference(JOBS)):
        raise argparse.ArgumentTypeError(f"no job of the demo is named {unknown[0]!r}: {', '.join(JOBS)}")
    if not named.issuperset(_COUNTED):
        raise argparse.ArgumentTypeError(f"{' and '.join(_COUNTED)} are needed: the demo counts their tables")
    return tuple(name for name in JOBS if name in named)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The mast, where its data goes, and for how long."""
    parser.description = (
        "Kafka, Mosquitto, a gateway and the Spark jobs on this machine. Ctrl-C stops all of it."
    )
    add = parser.add_argument
    add("-c", "--config", type=Path, default=MAST, metavar="FILE", help="default: a simulated mast")
    add_overrides(parser)
    add(
        "--workdir",
        type=Path,
        metavar="DIR",
        help="where all data goes; default: a fresh temporary directory",
    )
    add("--seconds", type=positive, metavar="N", help="stop sampling after N seconds, drain, end")
    add("--interval", type=_interval, metavar="T",
        help=f"of the statistics (default: 1m; with --fleet {_FLEET_INTERVAL})")  # fmt: skip
    add("--jobs", type=_jobs, default=JOBS, metavar="J,J", help=f"of {', '.join(JOBS)} (default: all)")
    add_json(parser, "no live view; end by itself with one JSON object")
    add("--drain-timeout", dest="drain_timeout_s", type=positive, default=120.0, metavar="S",
        help="how long the tables may take to catch up at the end (default: 120)")  # fmt: skip
    add(
        "--fleet",
        action="store_true",
        help="beside it two days of six masts (fieldgate simulate); not counted",
    )
    add("--resume", action="store_true", help="go on in a DIR that an earlier demo left")
    add("--restart-after", dest="restart_after_s", type=not_negative, default=1.0, metavar="S",
        help="how long a component that died stays down, to try outages (default: 1)")  # fmt: skip
