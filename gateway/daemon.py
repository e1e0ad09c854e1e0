"""The daemon wires the parts that ``assembly`` builds. Startup, main loop, shutdown stand in that order."""

from __future__ import annotations

import faulthandler
import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from buffer.drops import NOT_STORED, Drop
from buffer.errors import OutboxError
from cloud.errors import CloudError
from cloud.schema import SYNCED, UNSYNCED, Reading, format_time
from drivers.interface import BoardError
from gateway import assembly, home_assistant, logs
from gateway.announced_status import AnnouncedStatus, installed_version
from gateway.broker_drops import BrokerDrops
from gateway.calibration_history import CalibrationHistory
from gateway.clock import Machine
from gateway.clock_gifts import ClockGifts
from gateway.config import Config, ConfigError, load
from gateway.forecast import Forecast
from gateway.forwarder import Forwarder
from gateway.hang_restarts import EXIT_CODE, HangRestarts
from gateway.identity import Sequences, new_run
from gateway.intake import Intake
from gateway.last_readings import LastReadings
from gateway.ledger import Ack
from gateway.local_control import ControlServer
from gateway.mast import Mast
from gateway.mqtt import MqttLink
from gateway.notices import Notices
from gateway.notify import notify, watchdog_period_s
from gateway.outbox_writer import OutboxWriter
from gateway.reloading import Reloading, Running
from gateway.run_ledger import ANNOUNCE_EVERY_S, RunLedger, State
from gateway.state_file import StateFile
from gateway.status import Answers, PhoneControl, StatusPage
from gateway.status.vitals import vitals
from gateway.status_line import status_line
from gateway.summaries import joined, summarise
from gateway.supervisor import Supervisor
from gateway.timekeeper import open_clock
from gateway.untold_drops import UntoldDrops
from gateway.watchdog import DEFAULT_PERIOD_S, Shown, Watch, Watchdog

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
    bounded = logs.set_up()
    # What every thread is doing when the watchdog ends this process (SIGABRT), or a library crashes it.
    faulthandler.enable()
    try:
        config = load(path, overrides)
        daemon = Daemon(config, path, overrides, log_overdue=bounded.tell_overdue)
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
        log_overdue: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._log_overdue = log_overdue
        machine = machine or Machine()
        self._run_id = new_run()
        self._stop = threading.Event()
        self._reload_asked = threading.Event()
        self._last = LastReadings()
        self._sequences = Sequences()
        machine_clock, self._timekeeper = open_clock(config, machine)
        # Drops are told by the outbox writer's thread, or while the outbox is opened.
        self._drops: SimpleQueue[Drop] = SimpleQueue()
        self._disk_works = True
        outbox = assembly.open_outbox(config, self._drops.put)
        try:
            self._board = assembly.open_fitted_board(config)
        except BoardError:
            outbox.close()
            raise
        self._clock = self._board.clock or machine_clock
        self._holdback = self._timekeeper.holdback()
        self._topics = assembly.Topics.of(config)
        self._intake = Intake(
            config.gateway.id,
            self._run_id,
            self._sequences,
            config.kafka.topic,
            machine_clock,
            assembly.routes(config),
            assembly.sensor_names(config),
            machine.boot,
        )
        self._untold = UntoldDrops()
        self._broker_drops = BrokerDrops(self._run_id)
        self._announced = AnnouncedStatus(
            config.gateway.id,
            self._run_id,
            machine_clock.now_ns,
            lambda: self._clock.synced,
            lambda: self._forwarder.uplink,
            installed_version(),
        )
        self._link = MqttLink(
            config.mqtt.host,
            config.mqtt.port,
            f"fieldgate-{config.gateway.id}",
            assembly.filters(config),
            (self._topics.run, self._topics.status),
            self._arrived,
            (self._topics.status, self._announced.will),
            config.mqtt.keepalive_s,
            self._broker_drops,
            lambda: self._forwarder.session_lost(),
            config.mqtt.login,
        )
        self._live, self._backlog = (assembly.kafka_sink(config, role) for role in ("live", "backlog"))
        self._forwarder = Forwarder(
            self._intake,
            self._live,
            self._backlog,
            lambda report: OutboxWriter(outbox, report),
            self._link.acknowledge,
            config.outbox.commit_interval_s,
            hold=self._link.hold,
            batch_s=assembly.batch_s(config),
            holdback=self._holdback,
            on_drop=self._drops.put,
            longest_delivery_s=lambda: self._backlog.delivery_timeout_s,
        )
        self._state_file = StateFile(
            config.outbox.path.with_name(config.outbox.path.name + ".run"),
            self._run_id,
            assembly.lost_at_most_s(config),
        )
        self._runs = RunLedger(
            config.gateway.id,
            self._run_id,
            machine.boot,
            self._state_file.begin(),
            self._counts,
        )
        mast = Mast(config.gateway.id, self._run_id, self._clock, self._sequences, self._emit, machine.boot)
        self._supervisor = Supervisor(
            assembly.samplers(config.sensors, self._board, mast),
            self._clock,
            again=lambda sensor: assembly.samplers([sensor], self._board, mast)[0],
        )
        self._sensor_retries = mast.retries
        self._hang_restarts = HangRestarts(
            config.outbox.path.with_name(config.outbox.path.name + ".restarts"), machine.boot, machine.boot_ns
        )
        self._stop_reason: str | None = None
        self._calibrations = CalibrationHistory(
            assembly.calibration_history_path(config), machine.boot, self._clock, self._forwarder.announce
        )
        self._notices = Notices(
            config.outbox.path,
            self._runs.event,
            self._forwarder.announce,
            lambda: self._forwarder.outbox_in_memory.problem is None and not self._watchdog.stuck,
        )
        self._forecast = Forecast()
        self._clock_gifts = ClockGifts(machine.boot_ns)
        self._status = StatusPage(
            Answers(
                self._snapshot,
                self._last.recent,
                self._supervisor.pulses,
                self._clock_gifts if self._board.clock is None else None,
            )
        )
        self._control = ControlServer(config.outbox.path, PhoneControl(self._status))
        self._discovery = home_assistant.Discovery(
            assembly.discovery_path(config), self._link.keep, self._link.ready.is_set
        )
        self._started_s = self._turned_s = time.monotonic()
        self._turns = 0
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

    def run(self, seconds: float | None) -> int:
        """Startup, main loop, shutdown."""
        self._thread = threading.get_native_id()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        signal.signal(signal.SIGHUP, lambda *_: self._reload_asked.set())
        self._startup()
        failed = self._main_loop(None if seconds is None else time.monotonic() + seconds)
        lost = self._shutdown()
        return 1 if failed or lost else EXIT_CODE if self._stop_reason else 0

    def _startup(self) -> None:
        log.info("event=daemon.start gateway=%s run=%s", self._config.gateway.id, self._run_id)
        # Before the forwarder looks at the outbox: what is in there of these is older.
        self._calibrations.begin(assembly.channel_records(self._config))
        self._forwarder.start()
        self._announce_status()
        self._discover()
        self._link.start()
        self._open_status()
        self._supervisor.start()
        self._forwarder.announce(self._runs.record("running"))
        self._watchdog.start()
        notify(f"READY=1\nSTATUS={self._status_line()}")

    def _main_loop(self, sample_until_s: float | None) -> bool:
        """Until told to stop; True when a thread died, which only a new process can mend."""
        announce_at_s = time.monotonic() + ANNOUNCE_EVERY_S
        while not self._stop.wait(_TICK_S):
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
            now_s = self._turned_s = time.monotonic()
            self._turns += 1
            if sample_until_s is not None and now_s >= sample_until_s:
                sample_until_s = None
                self._supervisor.stop()
            if self._check_samplers():
                return False
            self._log_overdue()
            self._announce_disk()
            self._check_clock()
            self._status.phone.check()
            self._announce_status()
            self._calibrations.check(self._supervisor.said)
            self._discovery.tend()
            if self._reload_asked.is_set():
                self._reload()
            self._notices.check()
            self._announce_drops()
            state: State = "ended" if self._supervisor.ended else "running"
            self._link.publish(self._topics.run, self._runs.payload(state), retain=True)
            if now_s >= announce_at_s and self._forwarder.uplink != "spilling":
                # During an outage each would be stored, and the last of them tells everything.
                announce_at_s = now_s + ANNOUNCE_EVERY_S
                self._forwarder.announce(self._runs.record(state))
            if not self._watchdog.stuck:
                notify(f"STATUS={self._status_line()}")
        return False

    def _shutdown(self) -> int:
        """Ends in the order of the data's way; how many messages neither Kafka nor the disk would take."""
        self._watchdog.stop()
        notify("STOPPING=1\nSTATUS=stopping: what Kafka hasn't confirmed goes to the outbox")
        self._supervisor.stop()
        self._announce_drops(at_once=True)
        farewell = self._announced.farewell()
        self._forwarder.announce(farewell)
        left = self._forwarder.stop(_KAFKA_GRACE_S, lambda: self._runs.record("stopped"))
        if left:
            self._drops.put(Drop(NOT_STORED, 0, 0, len(left), summarise(left)))
        lost = 0
        for drop in self._waiting_drops():
            # To the journal, and to the local broker with the run's last record: nobody else listens now.
            self._runs.note(drop)
            lost += (drop.count or 0) if drop.reason == NOT_STORED else 0
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

    def _waiting_drops(self) -> list[Drop]:
        return list(joined(self._drops.get() for _ in range(self._drops.qsize())))

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
        self._stop_reason = HUNG_DRIVERS
        self._forwarder.announce(
            self._runs.event("restarting", reason=HUNG_DRIVERS, sensors=list(self._supervisor.hung))
        )
        return True

    def _check_clock(self) -> None:
        for gift in self._clock_gifts.take():
            try:
                given = self._timekeeper.give(gift.offset_ms)
            except ValueError as error:
                gift.answer(str(error))
                continue
            self._forwarder.judged(given)
            self._forwarder.announce(self._runs.clock_given(given, gift.uncertain_ms))
            gift.answer(None)
        verdict = self._timekeeper.check(self._forwarder.reachable_s)
        if verdict is not None:
            self._forwarder.judged(verdict)
        while not self._holdback.news.empty():
            self._forwarder.announce(self._runs.released(self._holdback.news.get()))

    def _reload(self) -> None:
        """Take the file over as it is now, or go on with the config there is."""
        self._reload_asked.clear()
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        plan = self._reloading.reload()
        if plan is not None:
            self._config = self._reloading.config
            self._discover()
            log.info("event=daemon.reloaded changes=%s", json.dumps(plan.told()))
            self._forwarder.announce(self._runs.event("reloaded", **plan.told()))
            self._forwarder.announce(self._runs.record("ended" if self._supervisor.ended else "running"))
        notify("READY=1")

    def _shown(self) -> list[Shown]:
        """What each part shows the watchdog, called by its thread."""
        sinks = (("kafka-live", self._live), ("kafka-backlog", self._backlog))
        return [
            Shown("main-loop", self._turns, _MAIN_PERIODS, thread=self._thread),
            *self._supervisor.shown(),
            *self._forwarder.shown(),
            self._link.shown(),
            *(Shown(name, sink.polls, _SINK_PERIODS, thread=sink.thread) for name, sink in sinks),
        ]

    def _status_line(self) -> str:
        forwarder = self._forwarder
        return status_line(
            channels=len(self._last.snapshot()),
            silent=self._supervisor.troubles,
            uplink=forwarder.uplink,
            confirmed_ago_s=forwarder.confirmed_ago_s,
            outbox_records=forwarder.outbox_records,
            outbox_share=forwarder.outbox_bytes / self._config.outbox.max_bytes,
            outbox_problem=forwarder.outbox_in_memory.problem,
            synced=self._clock.synced,
            mqtt_connected=self._link.ready.is_set(),
        )

    def _discover(self) -> None:
        self._discovery.adopt(home_assistant.messages(self._config, installed_version()))

    def _open_status(self) -> None:
        try:
            self._status.listen(self._config.status)
        except OSError as error:
            # A taken port is no reason not to sample.
            log.error("event=status.unavailable listen=%s error=%s", self._config.status.listen, error)
        try:
            self._control.start()
        except OSError as error:
            log.error("event=control.unavailable error=%s", error)

    def _announce_drops(self, *, at_once: bool = False) -> None:
        found = self._waiting_drops()
        for drop in found:
            self._runs.note(drop)
        self._untold.add(found)
        stored = self._forwarder.uplink == "spilling"
        drops = self._untold.due(time.monotonic(), stored=stored, at_once=at_once)
        for drop in drops:
            self._forwarder.announce(self._runs.dropped(drop))
        grown = self._broker_drops.due(time.monotonic(), at_once=at_once)
        if grown is not None:
            self._forwarder.announce(self._runs.broker_dropped(grown, self._broker_drops.count or 0))
        if drops:
            self._forwarder.announce(self._runs.record("running"))

    def _announce_disk(self) -> None:
        problem = self._forwarder.outbox_in_memory.problem
        if (problem is None) != self._disk_works:
            self._disk_works = problem is None
            self._forwarder.announce(self._runs.disk(problem))

    def _announce_status(self) -> None:
        status = self._announced.due(time.monotonic())
        if status is not None:
            self._link.greet(self._topics.status, status.value)
            self._forwarder.announce(status)

    def _arrived(self, topic: str, payload: bytes, ack: Ack | None, retained: bool, repeated: bool) -> None:
        """Called by the broker's network thread: an earlier run's last word, or a message to forward."""
        if topic == self._topics.run:
            self._broker_drops.left_by(payload)
            last_word = self._runs.close_previous(payload)
        elif topic == self._topics.status:
            last_word = self._announced.left_by_another(payload)
            if last_word is not None:
                self._link.greet_again()
        else:
            self._forwarder.arrived(topic, payload, ack, retained=retained, repeated=repeated)
            return
        if last_word is not None:
            self._forwarder.announce(last_word)
        if ack is not None:
            self._link.acknowledge(ack)

    def _emit(self, reading: Reading, sensor: str) -> None:
        """The ledger first: what the broker loses, the ledger still has."""
        topic = self._topics.reading.format(sensor=sensor, quantity=reading.quantity)
        record = self._intake.own(reading, topic)
        self._forwarder.sampled(record)
        self._link.publish(topic, record.value)
        self._last.note(reading)

    def _counts(self) -> dict[str, Any]:
        return {
            "last_seq": self._sequences.snapshot(),
            "last_raw_seq": self._intake.last_raw_seq,
            "ignored": self._intake.ignored,
            "broker_dropped": self._broker_drops.count,
            "broker_counter": self._broker_drops.counter,
            "in_flight": self._forwarder.in_flight,
            "outbox_records": self._forwarder.outbox_records,
            "outbox_memory_records": self._forwarder.outbox_in_memory.records,
            "clock": SYNCED if self._clock.synced else UNSYNCED,
            "held": self._forwarder.held_rows,
            "repaired": self._holdback.repaired,
            "unsynced": self._holdback.unsynced,
            "samplers_abandoned": self._supervisor.abandoned,
            **({"stop_reason": self._stop_reason} if self._stop_reason else {}),
        }

    def _snapshot(self) -> dict[str, Any]:
        stopping = self._stop.is_set()
        forwarder, counters = self._forwarder, self._forwarder.counters
        now_s, confirmed_ago_s = time.monotonic(), forwarder.confirmed_ago_s
        return {
            "gateway": self._config.gateway.id,
            "run": self._run_id,
            "state": "stopping" if stopping else "ended" if self._supervisor.ended else "sampling",
            "now": format_time(self._clock.now_ns() // 1000),
            "clock_given": self._timekeeper.given,
            "clock_may_be_given": self._board.clock is None and self._timekeeper.may_be_given,
            "own_time": self._board.clock is not None,
            "uplink": forwarder.uplink,
            "clock": SYNCED if self._clock.synced else UNSYNCED,
            "held": forwarder.held_rows,
            "repaired": self._holdback.repaired,
            "unsynced": self._holdback.unsynced,
            "config": self._reloading.state,
            "mqtt_connected": self._link.ready.is_set(),
            "sampled": sum(self._sequences.snapshot().values()),
            "received": counters.received,
            "in_flight": forwarder.in_flight,
            "confirmed": counters.confirmed,
            "spilled": counters.stored,
            "drained": forwarder.drained,
            "dead_letters": counters.dead_letters,
            "ignored": self._intake.ignored,
            "broker_dropped": self._broker_drops.count,
            "late_echoes": counters.late_echoes,
            "sampler_restarts": self._supervisor.restarts,
            "samplers_abandoned": self._supervisor.abandoned,
            "troubles": self._supervisor.troubles,
            "sensors_hung": self._supervisor.hung,
            "hang_restart_wait_s": round(self._hang_restarts.wait_s()),
            "sensor_retries": dict(self._sensor_retries),
            "parked_topics": forwarder.parked_topics,
            "outbox_records": forwarder.outbox_records,
            "outbox_bytes": forwarder.outbox_bytes,
            "outbox_max_bytes": self._config.outbox.max_bytes,
            "outbox_days_left": self._forecast.days_left(
                self._config, forwarder.outbox_bytes, forwarder.outbox_records
            ),
            "dropped": self._runs.drop_counts(),
            "outbox_memory_records": forwarder.outbox_in_memory.records,
            "outbox_memory_bytes": forwarder.outbox_in_memory.size_bytes,
            "outbox_problem": forwarder.outbox_in_memory.problem,
            "kafka_confirmed_ago_s": None if confirmed_ago_s is None else round(confirmed_ago_s, 1),
            "uptime_s": round(now_s - self._started_s),
            "main_loop_ago_s": round(now_s - self._turned_s, 1),
            "forwarder_stuck": any(part.startswith("forward") for part in self._watchdog.stuck),
            "stuck": list(self._watchdog.stuck),
            "machine": vitals(self._config.outbox.path).fields(),
            "spinnable": sorted(self._supervisor.pulses()),
            "channels": {
                channel: {
                    **last,
                    "forwarded": counters.delivered[f"{self._config.gateway.id}/{channel}".encode()],
                    "dropped": self._runs.dropped_of(channel),
                }
                for channel, last in self._last.snapshot().items()
            },
        }
