"""``fieldgate demo``: exit 0 when all is accounted for, 1 when not or when something can't be started.

The main thread runs all of it: startup, main loop, shutdown, in that order.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from cloud.command_line import FAILED, INTERRUPTED, OK, CommandError
from cloud.errors import CloudError
from cloud.kafka.provision import provision_topics
from cloud.kafka.topic_scan import EndOffsets
from cloud.local.kafka_broker import jar_directory
from cloud.local.process import Child
from cloud.values import interval_s
from cloud.wire.reading_records import DEAD_LETTER_TOPIC
from gateway.commands.demo.accounting import Lake, Observer, kafka_records, missing, waiting_and_lost
from gateway.commands.demo.layout import DASHBOARD, MAST, PYTHON, Layout, Options, add_arguments
from gateway.commands.demo.view import LineView, LiveView, Picture, View
from gateway.config import Config, ConfigError, load
from gateway.config.kafka import wanted_topics
from gateway.system.atomic_file import write_atomic

log = logging.getLogger(__name__)

TOPIC: Final = "devices/cabinet/temperature"
_PERIOD_S: Final = 1.0
_CYCLE_S: Final = 30.0
_FLEET: Final = ("--gateways", "6", "--days", "2", "--period", "60", "--rate", "2000")
_GRACE_S: Final = 10.0


class CabinetThermometer:
    """Publishes at each ``tick``, once a second, between ``start`` and ``stop``."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._client = Client(CallbackAPIVersion.VERSION2)
        self._client.reconnect_delay_set(1, 1)
        self._next_s = 0.0

    def start(self) -> None:
        """Connect, now or as soon as the broker is there."""
        self._client.connect_async(*self._address)
        self._client.loop_start()

    def stop(self) -> None:
        """Disconnect; safe to call twice, and without a start."""
        self._client.disconnect()
        self._client.loop_stop()

    def tick(self) -> None:
        """Publish when that is due. Without a connection it is lost, as a simple device's readings are."""
        now_s = time.time()
        if now_s >= self._next_s and self._client.is_connected():
            self._next_s = now_s + _PERIOD_S
            self._client.publish(TOPIC, f"{cabinet_temperature(now_s):.1f}", qos=1)


def cabinet_temperature(time_s: float) -> float:
    """The temperature in Cel at a time in seconds: 24 to 48."""
    return 36 + 12 * math.sin(2 * math.pi * time_s / _CYCLE_S)


_TICK_S: Final = 0.1
_LAST_RECORD_S: Final = 30.0
"""How long the jobs may take to store the record of a run that has stopped."""


class Demo:
    """Everything on this machine, until the end of sampling or a signal."""

    def __init__(self, options: Options, config: Config, layout: Layout, view: View) -> None:
        self._options = options
        self._layout = layout
        self._view = view
        self._gateway = config.gateway.id
        self._live_time = config.board.kind != "replay"
        self._topics = wanted_topics(config)
        self._components = layout.components(options)
        self._offsets = EndOffsets(layout.kafka.bootstrap_servers)
        self._lake = Lake(layout.lake, self._gateway, interval_s(options.interval))
        self._observer = Observer(layout.listen, self._offsets, self._lake)
        self._device = CabinetThermometer(layout.mosquitto.host, layout.mosquitto.port)
        self._fleet: Child | None = None
        pages = (
            f"{layout.pages}   # the dashboard"
            if options.has_pages
            else f"{sys.argv[0]} dashboard --lake {layout.lake}   # then http://127.0.0.1:8090/"
        )
        self._hints = (
            f"{sys.argv[0]} query --lake {layout.lake} "
            '"FROM statistics ORDER BY interval_start DESC LIMIT 9"',
            "Other tables: readings, mast, presence, alerts, sites, runs, quarantine",
            f"Addresses and logs: {layout.workdir / 'demo.json'}",
            pages,
        )
        self.interrupted = threading.Event()
        """Set by a signal."""
        self._started_s = time.monotonic()
        self._is_up = False
        self._phase = "starting"

    def run(self) -> dict[str, Any]:
        """The final counts; ``missing`` names what wasn't where it belongs. Raises CommandError."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        try:
            self._start()
            return self._settle(self._main_loop())
        finally:
            self._shutdown()

    def _start(self) -> None:
        """Start everything: Spark first, it takes longest, and the pages, which take a core, last."""
        self._components.launch("jobs", "mosquitto", "kafka")
        self._observer.start()
        if self._options.config == MAST:
            self._device.start()
        # People see readings soon; unattended, all components are up while the mast is sampled.
        first = ("mosquitto", "kafka", "jobs") if self._options.unattended else ("mosquitto", "kafka")
        if not self._wait_for(*first):
            return
        provision_topics(
            self._layout.kafka.bootstrap_servers,
            partitions=1,
            replication=1,
            others=self._topics,
            timeout_s=20.0,
        )
        self._components.launch("gateway")
        if not self._wait_for("gateway", "jobs"):
            return
        if self._options.has_pages:
            # They refuse a lake that isn't there, which the jobs make a moment later.
            self._layout.lake.mkdir(exist_ok=True)
            self._components.launch(DASHBOARD)
            if not self._wait_for(DASHBOARD):
                return
        self._is_up = True
        self._enter("sampling")
        if self._options.fleet:
            self._fleet = self._simulate_fleet()

    def _wait_for(self, *names: str) -> bool:
        """Whether these are up, and no signal came before."""
        while not self._components.are_up(*names):
            if self._tick():
                return False
        return not self.interrupted.is_set()

    def _tick(self) -> bool:
        """Show the present, and wait a moment: whether a signal has come."""
        self._device.tick()
        self._view.show(self._picture())
        return self.interrupted.wait(_TICK_S)

    def _main_loop(self) -> list[str]:
        """Until all is where it belongs, the drain timeout or a signal; what is missing then."""
        drain_until_s: float | None = None
        while not self._tick():
            if (code := self._components.programs["gateway"].exit_code) is not None:
                return [f"the gateway ended with {code}"]
            status = self._observer.latest.status
            ended = status is not None and status.state == "ended"
            if not (self._options.unattended and ended):
                continue
            now_s = time.monotonic()
            if drain_until_s is None:
                self._enter("draining")
                self._device.stop()
                self._observer.exact = True
                drain_until_s = now_s + self._options.drain_timeout_s
            left = missing(self._observer.latest)
            if not left or now_s >= drain_until_s:
                return left
        return ["interrupted"]

    def _settle(self, missing: list[str]) -> dict[str, Any]:
        """Stop what moves data, then count."""
        self._enter("stopping")
        self._view.show(self._picture())
        self._observer.stop()
        self._components.stop("gateway")
        if self.interrupted.is_set() and not self._options.json:
            self._components.stop("jobs")
            return {"missing": missing}
        status, jobs = self._observer.latest.status, self._components.programs["jobs"]
        run = None if status is None else status.run
        until_s = time.monotonic() + _LAST_RECORD_S
        while time.monotonic() < until_s and jobs.exit_code is None and not self._has_stopped(run):
            time.sleep(_TICK_S)
        self._components.stop("jobs")
        return self._count(missing)

    def _shutdown(self) -> None:
        if self._fleet is not None:
            self._fleet.stop(_GRACE_S)
        self._device.stop()
        self._observer.stop()
        self._components.stop()
        if self._is_up:
            self._enter("stopped")

    def _simulate_fleet(self) -> Child:
        """Send two days of six masts to Kafka, behind all else that computes here."""
        kafka = self._layout.kafka.bootstrap_servers
        command = (*PYTHON, "gateway.cli", "simulate", "--bootstrap-servers", kafka, *_FLEET)
        fleet = Child(command, self._layout.workdir / "fleet.log", parent_death_signal=signal.SIGTERM)
        os.setpriority(os.PRIO_PROCESS, fleet.pid, 10)
        return fleet

    def _has_stopped(self, run: str | None) -> bool:
        """Returns whether the run's last record is in the lake."""
        return any(each.run == run and each.state == "stopped" for each in self._lake.count().runs or ())

    def _count(self, missing: list[str]) -> dict[str, Any]:
        try:
            ends = self._offsets.by_topic()
        except CloudError as error:
            if not self.interrupted.is_set():
                raise
            log.warning("event=demo.uncounted error=%s", error)
            ends = {}
        counts = self._lake.count()
        runs, rows = counts.runs or (), counts.rows_per_channel
        waiting, lost = waiting_and_lost(runs)
        issued: Counter[str] = Counter()
        for run in runs:
            issued.update(run.sampled)
        return {
            "gateway": self._gateway,
            "sampled": issued.total(),
            "kafka_records": kafka_records(ends),
            "table_rows": counts.rows,
            "duplicates": counts.rows - counts.distinct_rows,
            # Announced as dropped is lost all the same.
            "unaccounted": lost,
            "quarantined": counts.quarantined,
            "dead_letters": ends.get(DEAD_LETTER_TOPIC, 0),
            "outbox_records": waiting,
            "statistics_rows": counts.statistics_rows,
            "alerts": counts.alerts,
            "seconds": round(time.monotonic() - self._started_s, 1),
            "missing": missing,
            "channels": {
                name: {"sampled": issued[name], "table_rows": rows.get(name, 0)}
                for name in sorted({*rows, *issued})
            },
            "runs": [
                {"run": run.run, "state": run.state, "sampled": sum(run.sampled.values())} for run in runs
            ],
            "interval": self._options.interval,
            "lake": str(self._layout.lake),
        }

    def _picture(self) -> Picture:
        return Picture(
            gateway=self._gateway,
            phase=self._phase,
            elapsed_s=time.monotonic() - self._started_s,
            states=self._components.states(),
            seen=self._observer.latest,
            live_time=self._live_time,
            hints=self._hints,
        )

    def _enter(self, phase: str) -> None:
        self._phase = phase
        log.info("event=demo.%s", phase)
        if self._is_up:
            self._describe()

    def _describe(self) -> None:
        described = self._layout.describe(self._components, self._gateway, self._phase)
        write_atomic(self._layout.workdir / "demo.json", json.dumps(described, indent=2) + "\n")

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.interrupted.is_set():
            # A second Ctrl-C: end without waiting.
            self._components.kill()
        self.interrupted.set()


def open_workdir(workdir: Path, *, resume: bool) -> Path:
    """Make the directory. Raises CommandError where there is one, not empty and not to be resumed."""
    workdir = workdir.absolute()
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        occupied = any(workdir.iterdir())
    except OSError as error:
        raise CommandError(f"{workdir}: {error.strerror}") from error
    if occupied and not resume:
        raise CommandError(f"{workdir} is not empty: name another --workdir, or go on in it with --resume")
    return workdir


__all__ = ["add_arguments", "run"]

_SHOWN: Final = (
    "sampled", "kafka_records", "table_rows", "duplicates", "unaccounted", "quarantined", "alerts", "seconds",
)  # fmt: skip
_FORMAT: Final = "%(asctime)s level=%(levelname)s %(name)s %(message)s"


def run(arguments: argparse.Namespace) -> int:
    """Run a demo; the exit code. Raises ConfigError, CommandError, CloudError."""
    options = Options.of(arguments)
    for name in ("kafka", "spark"):
        # Raises BrokerError: better now than after a minute.
        jar_directory(name)
    workdir = open_workdir(
        options.workdir or Path(tempfile.mkdtemp(prefix="fieldgate-demo-")), resume=options.resume
    )
    layout = Layout(workdir)
    try:
        config: Config = load(options.config, layout.gateway_overrides(options))
    except ConfigError:
        if options.workdir is None:
            workdir.rmdir()
        raise
    logging.basicConfig(filename=workdir / "demo.log", level=logging.INFO, format=_FORMAT, force=True)
    sys.stderr.write(f"fieldgate: demo in {workdir}\n")
    view: View = LiveView() if sys.stdout.isatty() and not options.json else LineView()
    demo = Demo(options, config, layout, view)
    with view.screen:
        result = demo.run()
    return _print_result(options, demo, result, workdir)


def _print_result(options: Options, demo: Demo, result: Mapping[str, Any], workdir: Path) -> int:
    if options.json:
        print(json.dumps(result))
    elif "sampled" in result:
        print("  ".join(f"{name} {result[name]}" for name in _SHOWN))
    if demo.interrupted.is_set():
        sys.stderr.write(f"fieldgate: stopped; the data stay in {workdir}\n")
        return INTERRUPTED if options.unattended else OK
    for what in result["missing"]:
        sys.stderr.write(f"fieldgate: missing after {options.drain_timeout_s:g} s: {what}\n")
    complete = not result["missing"] and result["unaccounted"] == 0 and result["duplicates"] == 0
    return OK if complete else FAILED
