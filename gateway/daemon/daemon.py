"""The daemon wires the parts that ``assembly`` builds. Startup, main loop, shutdown stand in that order."""

from __future__ import annotations

import faulthandler
import json
import logging
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from buffer.drops import Drop
from buffer.errors import OutboxError
from cloud.errors import CloudError
from cloud.wire.schema import Reading
from drivers.interface import BoardError
from gateway.calibration.history import CalibrationHistory, channel_records, history_path
from gateway.clock.manual_time import ManualTime
from gateway.clock.sync import open_clock
from gateway.clock.system_clock import Machine
from gateway.config import Config, ConfigError, load
from gateway.daemon.reload import Reloading, Running
from gateway.daemon.restart_budget import EXIT_CODE, RestartBudget
from gateway.daemon.snapshot import DaemonStatus, Life
from gateway.forwarding.forwarder import Forwarder
from gateway.forwarding.outbox_writer import OutboxWriter, open_outbox
from gateway.forwarding.sinks import kafka_sink
from gateway.forwarding.spill import batch_s
from gateway.mqtt import home_assistant, topics
from gateway.mqtt.broker_drops import BrokerDrops
from gateway.mqtt.intake import Intake
from gateway.mqtt.session import MqttSession
from gateway.mqtt.topics import Topics, filters
from gateway.ports import Ack
from gateway.reporting.event_spool import EventSpool
from gateway.reporting.gateway_status import GatewayStatus
from gateway.reporting.previous_runs import PreviousRuns, lost_at_most_s
from gateway.reporting.reporter import ClockVerdicts, Reporter
from gateway.reporting.run_ledger import RunLedger, State
from gateway.sampling import sensors
from gateway.sampling.last_readings import LastReadings
from gateway.sampling.run_context import Mast
from gateway.sampling.sensors import samplers
from gateway.sampling.supervisor import Supervisor
from gateway.sequences import Sequences, new_run
from gateway.status import Answers, PhoneControl, StatusPage
from gateway.status.control_socket import ControlSocket
from gateway.system import logs
from gateway.system.host import installed_version
from gateway.system.systemd import notify, watchdog_period_s
from gateway.system.watchdog import DEFAULT_PERIOD_S, Shown, Watch, Watchdog

log = logging.getLogger(__name__)

_TICK_S: Final = 1.0
_KAFKA_GRACE_S: Final = 5.0
# Poll threads come round ten times a second, and stand still a little when a producer is replaced.
_SINK_PERIODS: Final = 0.5
# A reload waits for samplers that end, half a minute at most.
_MAIN_PERIODS: Final = 1.0
HUNG_DRIVERS: Final = "HUNG_DRIVERS"
"""Why a run stopped itself; a run record and an event say so."""


def run(path: Path, overrides: Mapping[str, object], seconds: float | None) -> int:
    """Run until SIGTERM or SIGINT; the exit code. ``seconds`` ends the sampling, not the forwarding."""
    # What every thread is doing when the watchdog ends this process (SIGABRT), or a library crashes it.
    faulthandler.enable()
    with logs.set_up():
        try:
            config = load(path, overrides)
            daemon = Daemon(config, path, overrides)
        except ConfigError as error:
            for problem in error.problems:
                log.error("event=config.refused problem=%s", problem)
            return 1
        except (BoardError, CloudError, OutboxError) as error:
            log.error("event=daemon.cannot_start error=%s", error)
            return 1
        return daemon.run(seconds)


class Daemon:
    """One run of the gateway."""

    def __init__(
        self,
        config: Config,
        path: Path,
        overrides: Mapping[str, object],
        machine: Machine | None = None,
    ) -> None:
        machine = machine or Machine()
        self._run_id = new_run()
        self._reload_asked = threading.Event()
        self._last = LastReadings()
        self._sequences = Sequences()
        machine_clock, timekeeper = open_clock(config, machine)
        # Drops are told by the outbox writer's thread, or while the outbox is opened.
        drops: SimpleQueue[Drop] = SimpleQueue()
        outbox = open_outbox(config, drops.put)
        try:
            self._board = sensors.open_fitted_board(config)
        except BoardError:
            outbox.close()
            raise
        self._clock = self._board.clock or machine_clock
        holdback = timekeeper.holdback()
        self._topics = Topics.of(config)
        self._intake = Intake(
            config.gateway.id,
            self._run_id,
            self._sequences,
            config.kafka.topic,
            machine_clock,
            topics.routes(config),
            sensors.sensor_names(config),
            machine.boot,
        )
        broker_drops = BrokerDrops(self._run_id)
        announced = GatewayStatus(
            config.gateway.id,
            self._run_id,
            machine_clock.now_ns,
            lambda: self._clock.synced,
            lambda: self._forwarder.uplink,
            installed_version(),
        )
        self._link = MqttSession(
            config.mqtt.host,
            config.mqtt.port,
            f"fieldgate-{config.gateway.id}",
            filters(config),
            (self._topics.run, self._topics.status),
            self._arrived,
            (self._topics.status, announced.will),
            config.mqtt.keepalive_s,
            broker_drops,
            lambda: self._forwarder.session_lost(),
            config.mqtt.login,
        )
        self._live, self._backlog = (kafka_sink(config, role) for role in ("live", "backlog"))
        self._forwarder = Forwarder(
            self._intake,
            self._live,
            self._backlog,
            lambda report: OutboxWriter(outbox, report),
            self._link.acknowledge,
            config.outbox.commit_interval_s,
            hold=self._link.hold,
            batch_s=batch_s(config),
            holdback=holdback,
            on_drop=drops.put,
            longest_delivery_s=lambda: self._backlog.delivery_timeout_s,
        )
        self._state_file = PreviousRuns(
            config.outbox.path.with_name(config.outbox.path.name + ".run"),
            self._run_id,
            lost_at_most_s(config),
        )
        self._runs = RunLedger(
            config.gateway.id,
            self._run_id,
            machine.boot,
            self._state_file.begin(),
            lambda: self._told.counts(),
        )
        mast = Mast(config.gateway.id, self._run_id, self._clock, self._sequences, self._emit, machine.boot)
        self._supervisor = Supervisor(
            samplers(config.sensors, self._board, mast),
            self._clock,
            again=lambda sensor: samplers([sensor], self._board, mast)[0],
        )
        self._hang_restarts = RestartBudget(
            config.outbox.path.with_name(config.outbox.path.name + ".restarts"), machine.boot, machine.boot_ns
        )
        self._calibrations = CalibrationHistory(
            history_path(config), machine.boot, self._clock, self._forwarder.announce
        )
        self._notices = EventSpool(
            config.outbox.path,
            self._runs.event,
            self._forwarder.announce,
            lambda: self._forwarder.outbox_in_memory.problem is None and not self._watchdog.stuck,
        )
        clock_gifts = ManualTime(machine.boot_ns)
        self._verdicts = ClockVerdicts(clock_gifts, timekeeper, holdback, self._forwarder, self._runs)
        self._announcements = Reporter(
            self._runs, announced, self._topics, self._forwarder, self._link, drops, broker_drops
        )
        self._status = StatusPage(
            Answers(
                lambda: self._told.status(),
                self._last.recent,
                self._supervisor.pulses,
                clock_gifts if self._board.clock is None else None,
            )
        )
        self._control = ControlSocket(config.outbox.path, PhoneControl(self._status))
        self._discovery = home_assistant.Discovery(
            home_assistant.discovery_path(config), self._link.keep, self._link.ready.is_set
        )
        self._life = Life()
        self._thread = threading.get_native_id()
        self._watchdog = Watchdog(Watch(self._shown, watchdog_period_s() or DEFAULT_PERIOD_S))
        running = Running(
            self._board,
            mast,
            self._supervisor,
            self._intake,
            self._forwarder,
            self._link,
            {"live": self._live, "backlog": self._backlog},
            self._status,
            self._last,
            self._state_file,
            self._calibrations,
        )
        self._reloading = Reloading(config, path, overrides, running)
        self._told = DaemonStatus(
            self._run_id,
            self._life,
            running,
            self._reloading,
            self._clock,
            timekeeper,
            holdback,
            self._runs,
            broker_drops,
            self._hang_restarts,
            self._watchdog,
        )

    def run(self, seconds: float | None) -> int:
        """Startup, main loop, shutdown."""
        self._thread = threading.get_native_id()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._life.stop.set())
        signal.signal(signal.SIGHUP, lambda *_: self._reload_asked.set())
        self._startup()
        failed = self._main_loop(None if seconds is None else time.monotonic() + seconds)
        lost = self._shutdown()
        return 1 if failed or lost else EXIT_CODE if self._life.stop_reason else 0

    def _startup(self) -> None:
        log.info("event=daemon.start gateway=%s run=%s", self._reloading.config.gateway.id, self._run_id)
        # Before the forwarder looks at the outbox: what is in there of these is older.
        self._calibrations.begin(channel_records(self._reloading.config))
        self._forwarder.start()
        self._announcements.tell_status()
        self._discover()
        self._link.start()
        self._open_status()
        self._supervisor.start()
        self._announcements.begin_run()
        self._watchdog.start()
        notify(f"READY=1\nSTATUS={self._told.line()}")

    def _main_loop(self, sample_until_s: float | None) -> bool:
        """Until told to stop; True when a thread died, which only a new process can mend."""
        while not self._life.stop.wait(_TICK_S):
            dead = [
                name
                for name, part in (
                    ("forwarder", self._forwarder),
                    ("mqtt", self._link),
                    ("kafka-live", self._live),
                    ("kafka-backlog", self._backlog),
                )
                if not part.is_alive()
            ]
            if dead:
                log.critical("event=thread.died threads=%s remedy=restart", ",".join(dead))
                return True
            now_s = self._life.turn()
            if sample_until_s is not None and now_s >= sample_until_s:
                sample_until_s = None
                self._supervisor.stop()
            if self._check_samplers():
                return False
            self._announcements.tell_disk()
            self._verdicts.check()
            self._status.phone.check()
            self._announcements.tell_status()
            self._calibrations.check(self._supervisor.descriptions)
            self._discovery.tend()
            if self._reload_asked.is_set():
                self._reload()
            self._notices.check()
            self._announcements.tell_drops()
            state: State = "ended" if self._supervisor.ended else "running"
            self._announcements.tell_run(state, now_s)
            if not self._watchdog.stuck:
                notify(f"STATUS={self._told.line()}")
        return False

    def _shutdown(self) -> int:
        """Ends in the order of the data's way; how many messages neither Kafka nor the disk would take."""
        self._watchdog.stop()
        notify("STOPPING=1\nSTATUS=stopping: what Kafka hasn't confirmed goes to the outbox")
        self._supervisor.stop()
        self._announcements.tell_drops(at_once=True)
        farewell = self._announcements.farewell()
        left = self._forwarder.stop(_KAFKA_GRACE_S, lambda: self._runs.record("stopped"))
        lost = self._announcements.note_lost(left)
        if not lost:
            self._state_file.end()
            self._notices.settle()
        self._link.publish(self._topics.run, self._runs.payload("stopped"), retain=True)
        self._link.stop(farewell=(self._topics.status, farewell.value))
        self._live.close()
        self._backlog.close()
        self._control.stop()
        self._status.stop()
        self._board.close()
        log.info("event=daemon.stop run=%s outbox_records=%d", self._run_id, self._forwarder.outbox_records)
        return lost

    def _check_samplers(self) -> bool:
        """Replace what has died or hangs; True where only a new process can help, and one is allowed."""
        for hang in self._supervisor.check():
            self._forwarder.announce(
                self._runs.event(
                    "sampler-abandoned", sensor=hang.sensor, after_s=round(hang.after_s, 1), total=hang.total
                )
            )
        if not self._supervisor.needs_new_process or not self._hang_restarts.take():
            return False
        hung = ",".join(self._supervisor.hung)
        log.critical("event=daemon.restarts reason=%s sensors=%s", HUNG_DRIVERS, hung)
        self._life.stop_reason = HUNG_DRIVERS
        self._forwarder.announce(
            self._runs.event("restarting", reason=HUNG_DRIVERS, sensors=list(self._supervisor.hung))
        )
        return True

    def _reload(self) -> None:
        """Take the file over as it is now, or go on with the config there is."""
        self._reload_asked.clear()
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        plan = self._reloading.reload()
        if plan is not None:
            self._discover()
            log.info("event=daemon.reloaded changes=%s", json.dumps(plan.told()))
            self._forwarder.announce(self._runs.event("reloaded", **plan.told()))
            self._forwarder.announce(self._runs.record("ended" if self._supervisor.ended else "running"))
        notify("READY=1")

    def _shown(self) -> list[Shown]:
        """What each part shows the watchdog, called by its thread."""
        sinks = (("kafka-live", self._live), ("kafka-backlog", self._backlog))
        return [
            Shown("main-loop", self._life.turns, _MAIN_PERIODS, thread=self._thread),
            *self._supervisor.shown(),
            *self._forwarder.shown(),
            self._link.shown(),
            *(Shown(name, sink.polls, _SINK_PERIODS, thread=sink.thread) for name, sink in sinks),
        ]

    def _discover(self) -> None:
        self._discovery.adopt(home_assistant.messages(self._reloading.config, installed_version()))

    def _open_status(self) -> None:
        config = self._reloading.config.status
        try:
            self._status.listen(config)
        except OSError as error:
            # A taken port is no reason not to sample.
            log.error("event=status.unavailable listen=%s error=%s", config.listen, error)
        try:
            self._control.start()
        except OSError as error:
            log.error("event=control.unavailable error=%s", error)

    def _arrived(self, topic: str, payload: bytes, ack: Ack | None, retained: bool, repeated: bool) -> None:
        """Called by the broker's network thread: an earlier run's last word, or a message to forward."""
        if topic not in (self._topics.run, self._topics.status):
            self._forwarder.arrived(topic, payload, ack, retained=retained, repeated=repeated)
            return
        self._announcements.left_by_another(topic, payload)
        if ack is not None:
            self._link.acknowledge(ack)

    def _emit(self, reading: Reading, sensor: str) -> None:
        """The ledger first: what the broker loses, the ledger still has."""
        topic = self._topics.reading.format(sensor=sensor, quantity=reading.quantity)
        record = self._intake.own(reading, topic)
        self._forwarder.sampled(record)
        self._link.publish(topic, record.value)
        self._last.note(reading)
