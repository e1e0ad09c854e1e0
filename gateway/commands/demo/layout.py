"""Where a demo keeps its files, and how its components are started."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, Final

from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.local.process import free_port, listening
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.commands.demo.options import Options
from gateway.commands.demo.supervision import Part, Program, Stack

_PYTHON: Final = (sys.executable, "-P", "-m")
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
        command = [*_PYTHON, "gateway.cli", "run", "-c", str(options.config.absolute())]
        for key, value in self.gateway_overrides(options).items():
            command += ["--set", f"{key}={json.dumps(value, default=str)}"]
        seconds = seconds_left()
        return command if seconds is None else [*command, "--seconds", f"{seconds:.3f}"]

    def jobs_command(self, options: Options) -> list[str]:
        """How the Spark jobs are started."""
        return [
            *(*_PYTHON, "spark_jobs", "run", *options.jobs),
            *("--bootstrap-servers", self.kafka.bootstrap_servers),
            *("--lake", str(self.lake), "--checkpoints", str(self.workdir / "checkpoints")),
            *("--interval", options.interval, "--open-every", "5s", "--rules", str(_ALERT_RULES)),
        ]

    def dashboard_command(self) -> list[str]:
        """How the pages are started."""
        # They refuse a lake that isn't there, which the jobs make a moment later.
        self.lake.mkdir(exist_ok=True)
        return [
            *(*_PYTHON, "gateway.cli", "dashboard", "--lake", str(self.lake)),
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
