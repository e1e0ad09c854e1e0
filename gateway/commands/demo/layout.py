"""Where a demo keeps its files, and how its components are started."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

from cloud.command_line import CommandError, add_json, add_overrides, not_negative, positive
from cloud.errors import CloudError
from cloud.kafka.provision import provision_topics
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


log = logging.getLogger(__name__)


class State(StrEnum):
    """What a component is doing."""

    WAITING = "waiting"
    STARTING = "starting"
    UP = "up"
    DOWN = "down"
    STOPPED = "stopped"


class Program(LocalProgram):
    """Runs ``command()``; ``ready`` decides by what it logged since its start whether it is up.

    The command is requested at each start, so that a restart can differ from the first one.
    """

    def __init__(
        self,
        command: Callable[[], Sequence[str]],
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
            self._command(), self.log, environment=self._environment, parent_death_signal=signal.SIGTERM
        )

    def answers(self) -> bool:
        """True when it is up."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return self._ready(file.read().decode(errors="replace"))


@dataclass(slots=True)
class Part:
    """A component under supervision. ``prepare`` runs once, when it answers for the first time."""

    name: str
    component: LocalProgram
    needs: tuple[str, ...] = ()
    prepare: Callable[[], object] | None = None
    state: State = field(init=False, default=State.WAITING)
    restarts: int = field(init=False, default=0)
    changed_s: float = field(init=False, default=0.0)
    _prepared: bool = field(init=False, default=False)

    def enter(self, state: State, now_s: float) -> None:
        """Change the state."""
        self.state, self.changed_s = state, now_s

    def came_up(self, now_s: float) -> None:
        """It answers."""
        if self.prepare is not None and not self._prepared:
            self.prepare()
        self._prepared = True
        self.enter(State.UP, now_s)

    def died(self, why: str, now_s: float) -> None:
        """It ended by itself. Raises CommandError before it ever answered: then the setup is wrong."""
        if not self._prepared:
            raise CommandError(
                f"{self.name} {why}; the end of {self.component.log}:\n{last_lines(self.component.log)}"
            )
        log.warning("event=demo.component_died name=%s why=%s", self.name, why)
        self.enter(State.DOWN, now_s)


class Stack:
    """All parts of a demo. Launched in the order given, stopped in that of ``stop_order``."""

    def __init__(
        self,
        parts: Sequence[Part],
        stop_order: Sequence[str],
        restart_after_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.parts = {part.name: part for part in parts}
        self._stop_order = tuple(stop_order)
        self._restart_after_s = restart_after_s
        self._monotonic = monotonic

    @property
    def all_up(self) -> bool:
        """Whether every part answered the last time."""
        return all(part.state is State.UP for part in self.parts.values())

    def tick(self) -> bool:
        """Examine every part once; True when one changed. Raises CommandError where one can't be started."""
        before = [(part.state, part.component.pid) for part in self.parts.values()]
        for part in self.parts.values():
            self._supervise(part, self._monotonic())
        return before != [(part.state, part.component.pid) for part in self.parts.values()]

    def _supervise(self, part: Part, now_s: float) -> None:
        component, code = part.component, part.component.exit_code
        match part.state:
            case State.WAITING:
                if all(self.parts[name].state is State.UP for name in part.needs):
                    self._launch(part)
            case State.STARTING if code is not None:
                part.died(f"ended with {code} while starting", now_s)
            case State.STARTING:
                if component.answers():
                    part.came_up(now_s)
                elif now_s - part.changed_s > component.start_timeout_s:
                    component.stop()
                    part.died(f"was not up after {component.start_timeout_s:g} s", now_s)
            case State.UP if code is not None:
                part.died(f"ended with {code}", now_s)
            case State.DOWN if now_s - part.changed_s >= self._restart_after_s:
                part.restarts += 1
                self._launch(part)
            case _:
                pass

    def _launch(self, part: Part) -> None:
        try:
            part.component.launch()
        except (CloudError, CommandError) as error:
            part.died(f"can't be started: {error}", self._monotonic())
        else:
            part.enter(State.STARTING, self._monotonic())

    def stop(self, *names: str) -> None:
        """Stop the parts named, or all, in the stop order; they stay stopped."""
        for name in self._stop_order:
            part = self.parts[name]
            if (not names or name in names) and part.state is not State.STOPPED:
                part.enter(State.STOPPED, self._monotonic())
                part.component.stop()

    def kill(self) -> None:
        """End everything by force."""
        for part in self.parts.values():
            part.component.kill()


PYTHON: Final = (sys.executable, "-P", "-m")
"""Runs a module of ours, whatever folders are where the demo is started."""
_ALERT_RULES: Final = Path(__file__).with_name("alerts.toml")
_QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss16m"
"""The JIT's first stage only: Spark is up after 16 instead of 28 CPU seconds (measured, two cores)."""
_DASHBOARD: Final = "dashboard"
_STOP_ORDER: Final = (_DASHBOARD, "gateway", "jobs", "kafka", "mosquitto")
"""Against the flow of the data, so that nothing is produced for one that is gone."""


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

    def gateway_command(self, options: Options, seconds_left: Callable[[], float | None]) -> list[str]:
        """How the gateway is started now."""
        command = [*PYTHON, "gateway.cli", "run", "-c", str(options.config.absolute())]
        for key, value in self.gateway_overrides(options).items():
            command += ["--set", f"{key}={json.dumps(value, default=str)}"]
        seconds = seconds_left()
        return command if seconds is None else [*command, "--seconds", f"{seconds:.3f}"]

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
        # They refuse a lake that isn't there, which the jobs make a moment later.
        self.lake.mkdir(exist_ok=True)
        return [
            *(*PYTHON, "gateway.cli", "dashboard", "--lake", str(self.lake)),
            *("--bootstrap-servers", self.kafka.bootstrap_servers),
            *("--checkpoints", str(self.workdir / "checkpoints")),
            *("--listen", f"127.0.0.1:{self.pages_port}"),
        ]

    def stack(
        self, options: Options, topics: Collection[str], seconds_left: Callable[[], float | None]
    ) -> Stack:
        """The components under supervision: Spark first, it takes longest. ``topics`` are the config's."""
        jobs = Program(
            lambda: self.jobs_command(options),
            self.workdir / "jobs.log",
            # The other jobs read the tables that this one fills.
            lambda log: "event=query.start query=ingest " in log,
            {"JDK_JAVA_OPTIONS": _QUICK_JVM},
            start_timeout_s=180.0,
            stop_timeout_s=45.0,
        )
        gateway = Program(
            lambda: self.gateway_command(options, seconds_left),
            self.workdir / "gateway.log",
            lambda _log: listening(self.status_port),
        )
        provision = partial(
            provision_topics,
            self.kafka.bootstrap_servers,
            partitions=1,
            replication=1,
            others=topics,
            timeout_s=20.0,
        )
        # For people readings appear soon; unattended, all components are up while the mast is sampled.
        needs = ("mosquitto", "kafka", "jobs") if options.unattended else ("mosquitto", "kafka")
        parts = [
            Part("jobs", jobs),
            Part("mosquitto", self.mosquitto),
            Part("kafka", self.kafka, prepare=provision),
            Part("gateway", gateway, needs),
        ]
        if options.has_pages:
            pages = Program(
                self.dashboard_command,
                self.workdir / "dashboard.log",
                lambda _log: listening(self.pages_port),
            )
            # Last: until the jobs run there is nothing on them, and they take a core to start.
            parts.append(Part(_DASHBOARD, pages, ("kafka", "gateway", "jobs")))
        stop_order = [name for name in _STOP_ORDER if name in {part.name for part in parts}]
        return Stack(parts, stop_order, options.restart_after_s)

    def describe(self, stack: Stack, gateway: str, state: str) -> dict[str, Any]:
        """The content of demo.json."""
        parts: dict[str, dict[str, Any]] = {
            name: {
                "pid": part.component.pid if part.component.exit_code is None else None,
                "state": str(part.state),
                "restarts": part.restarts,
                "log": str(part.component.log),
            }
            for name, part in stack.parts.items()
        }
        parts["kafka"]["bootstrap_servers"] = self.kafka.bootstrap_servers
        parts["mosquitto"] |= {"host": self.mosquitto.host, "port": self.mosquitto.port}
        if _DASHBOARD in parts:
            parts[_DASHBOARD]["url"] = self.pages
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
