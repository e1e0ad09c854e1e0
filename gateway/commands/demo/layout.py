"""Where a demo keeps its files, and how its components are started."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

from cloud.command_line import CommandError, add_json, add_overrides, positive
from cloud.local.kafka_broker import LocalBroker
from cloud.local.process import Child, free_port, last_lines, listening
from cloud.local.server import LocalProgram
from cloud.values import interval_s
from gateway.commands.demo.mosquitto import LocalMosquitto

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


class State(StrEnum):
    """What a component is doing."""

    WAITING = "waiting"
    STARTING = "starting"
    UP = "up"
    DOWN = "down"


class Program(LocalProgram):
    """Runs a command; ``ready`` decides by what it logged since its start whether it is up."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        ready: Callable[[str], bool],
        environment: Mapping[str, str] | None = None,
        *,
        start_timeout_s: float = 60.0,
        stop_timeout_s: float = 15.0,
    ) -> None:
        super().__init__(log)
        self.start_timeout_s, self.stop_timeout_s = start_timeout_s, stop_timeout_s
        self._command = command
        self._ready = ready
        self._environment = environment
        self._log_start = 0

    def _spawn(self) -> Child:
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        # SIGTERM: when the demo is killed, the gateway still stores what is in memory.
        return Child(
            self._command, self.log, environment=self._environment, parent_death_signal=signal.SIGTERM
        )

    def answers(self) -> bool:
        """True when it is up."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return self._ready(file.read().decode(errors="replace"))


class Components:
    """The demo's programs by name. They are stopped in the reverse order; one that dies stays down."""

    def __init__(self, programs: Mapping[str, LocalProgram]) -> None:
        self.programs = dict(programs)
        self._launched_s: dict[str, float] = {}
        self._up: set[str] = set()

    def launch(self, *names: str) -> None:
        """Start these without waiting for them. Raises CloudError, CommandError."""
        for name in names:
            self.programs[name].launch()
            self._launched_s[name] = time.monotonic()

    def are_up(self, *names: str) -> bool:
        """Whether all of these have responded. Raises CommandError where one never will."""
        for name in names:
            if name in self._up:
                continue
            program, age_s = self.programs[name], time.monotonic() - self._launched_s[name]
            if program.exit_code is None and program.answers():
                self._up.add(name)
                continue
            if program.exit_code is None and age_s < program.start_timeout_s:
                return False
            code = program.exit_code
            why = f"was not up after {age_s:.0f} s" if code is None else f"ended with {code} while starting"
            raise CommandError(f"{name} {why}; the end of {program.log}:\n{last_lines(program.log)}")
        return True

    def states(self) -> dict[str, State]:
        """What each is doing now."""
        return {name: self._state(name, program) for name, program in self.programs.items()}

    def _state(self, name: str, program: LocalProgram) -> State:
        if program.pid is None:
            return State.WAITING
        if program.exit_code is not None:
            return State.DOWN
        return State.UP if name in self._up else State.STARTING

    def stop(self, *names: str) -> None:
        """Stop these, or all."""
        for name in names or tuple(reversed(self.programs)):
            self.programs[name].stop()

    def kill(self) -> None:
        """End everything by force."""
        for program in self.programs.values():
            program.kill()


PYTHON: Final = (sys.executable, "-P", "-m")
"""Runs a module of ours, whatever folders are where the demo is started."""
_ALERT_RULES: Final = Path(__file__).with_name("alerts.toml")
_QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss16m"
"""The JIT's first stage only: Spark is up after 16 instead of 28 CPU seconds (measured, two cores)."""
DASHBOARD: Final = "dashboard"


class Layout:
    """Paths and addresses of one demo, on ports that are free."""

    def __init__(self, workdir: Path) -> None:
        self.workdir = workdir
        self.lake = workdir / "lake"
        self.outbox = workdir / "outbox.db"
        self.kafka = LocalBroker(workdir / "kafka")
        self.mosquitto = LocalMosquitto(workdir / "mosquitto")
        self.status_port = free_port()
        self.listen = f"127.0.0.1:{self.status_port}"
        self.pages_port = free_port()
        self.pages = f"http://127.0.0.1:{self.pages_port}/"
        """Where the dashboard is, if it is started."""

    def gateway_overrides(self, options: Options) -> dict[str, object]:
        """What the demo puts over the config: the user's own, and the demo's addresses over those."""
        return {
            **options.overrides,
            "mqtt.host": self.mosquitto.host,
            "mqtt.port": self.mosquitto.port,
            "kafka.bootstrap_servers": self.kafka.bootstrap_servers,
            "kafka.prefix": "",
            # A registry isn't among what the demo starts.
            "kafka.format": "json",
            "outbox.path": str(self.outbox),
            "status.listen": self.listen,
        }

    def gateway_command(self, options: Options) -> list[str]:
        """How the gateway is started."""
        command = [*PYTHON, "gateway.cli", "run", "-c", str(options.config.absolute())]
        for key, value in self.gateway_overrides(options).items():
            command += ["--set", f"{key}={json.dumps(value, default=str)}"]
        return command if options.seconds is None else [*command, "--seconds", f"{options.seconds:g}"]

    def jobs_command(self, options: Options) -> list[str]:
        """How the Spark jobs are started."""
        return [
            *(*PYTHON, "spark_jobs", "run", *options.jobs),
            *("--bootstrap-servers", self.kafka.bootstrap_servers),
            *("--lake", str(self.lake), "--checkpoints", str(self.workdir / "checkpoints")),
            *("--interval", options.interval, "--open-every", "5s", "--rules", str(_ALERT_RULES)),
        ]

    def dashboard_command(self) -> list[str]:
        """How the pages are started."""
        return [
            *(*PYTHON, "gateway.cli", "dashboard", "--lake", str(self.lake)),
            *("--bootstrap-servers", self.kafka.bootstrap_servers),
            *("--checkpoints", str(self.workdir / "checkpoints")),
            *("--listen", f"127.0.0.1:{self.pages_port}"),
        ]

    def components(self, options: Options) -> Components:
        """Everything that a demo runs, in the direction of the data, so that the last is stopped first."""
        programs: dict[str, LocalProgram] = {
            "mosquitto": self.mosquitto,
            "kafka": self.kafka,
            "jobs": Program(
                self.jobs_command(options),
                self.workdir / "jobs.log",
                # The other jobs read the tables that this one fills.
                lambda log: "event=query.start query=ingest " in log,
                {"JDK_JAVA_OPTIONS": _QUICK_JVM},
                start_timeout_s=180.0,
                stop_timeout_s=45.0,
            ),
            "gateway": Program(
                self.gateway_command(options),
                self.workdir / "gateway.log",
                lambda _log: listening(self.status_port),
            ),
        }
        if options.has_pages:
            programs[DASHBOARD] = Program(
                self.dashboard_command(),
                self.workdir / "dashboard.log",
                lambda _log: listening(self.pages_port),
            )
        return Components(programs)

    def describe(self, components: Components, gateway: str, state: str) -> dict[str, Any]:
        """The content of demo.json."""
        states = components.states()
        parts: dict[str, dict[str, Any]] = {
            name: {
                "pid": program.pid if program.exit_code is None else None,
                "state": str(states[name]),
                "log": str(program.log),
            }
            for name, program in components.programs.items()
        }
        parts["kafka"]["bootstrap_servers"] = self.kafka.bootstrap_servers
        parts["mosquitto"] |= {"host": self.mosquitto.host, "port": self.mosquitto.port}
        if DASHBOARD in parts:
            parts[DASHBOARD]["url"] = self.pages
        parts["gateway"]["status"] = f"http://{self.listen}/api/status"
        return {
            "v": 1,
            "state": state,
            "gateway_id": gateway,
            "workdir": str(self.workdir),
            "lake": str(self.lake),
            "outbox": str(self.outbox),
            **parts,
            "pid": os.getpid(),
        }
