"""Builds a daemon from its config: the only place that constructs, each line from what stands above it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from buffer.errors import Drop
from cloud.wire.reading_records import Reading
from gateway.calibration.history import CalibrationHistory, SiteHistory, history_path
from gateway.clock.given_time import GpsTime, ManualTime, receivers_of
from gateway.clock.sync import open_clock
from gateway.clock.system_clock import Machine
from gateway.config import Config
from gateway.control.interlocks import Interlocks
from gateway.daemon.daemon import Daemon
from gateway.daemon.gateway import ConfigInForce, Gateway, Life, RestartBudget
from gateway.daemon.reload import Reload
from gateway.daemon.snapshot import status_of
from gateway.devices.entry import DeviceEntry, PostedReadings
from gateway.devices.http_server import HttpInput
from gateway.devices.mqtt_server import MqttProxy
from gateway.forwarding.forwarder import Call, Forwarder, Inbox
from gateway.forwarding.outbox_writer import OutboxWriter, open_outbox
from gateway.forwarding.sinks import KafkaSinks
from gateway.forwarding.state import Pace, State
from gateway.mqtt.broker_drops import BrokerDrops
from gateway.mqtt.home_assistant import Discovery
from gateway.mqtt.intake import Intake, Topics, filters, routes
from gateway.mqtt.payload import nested
from gateway.mqtt.session import MqttSession, Subscriptions
from gateway.ports import Record
from gateway.remote import actions as remote
from gateway.remote.downlinks import Downlinks
from gateway.remote.receiver import CommandReceiver, Executor, clock_wait
from gateway.reporting.event_spool import EventSpool
from gateway.reporting.gateway_status import GatewayStatus
from gateway.reporting.previous_runs import FirstReading, PreviousRuns, lost_at_most_s
from gateway.reporting.reporter import ClockUpdates, Reporter, RetainedRecords
from gateway.reporting.run_ledger import RunLedger
from gateway.reporting.site_watch import SiteWatch
from gateway.reporting.supply_watch import SupplyWatch
from gateway.sampling import sampler as sampling
from gateway.sampling.last_readings import LastReadings
from gateway.sampling.readings import RunContext
from gateway.sampling.supervisor import Supervisor
from gateway.sequences import Sequences, new_run
from gateway.status.control_socket import RELOAD, ControlSocket
from gateway.status.server import StatusSource
from gateway.status.service import StatusPage, phone_control
from gateway.system.host import installed_version
from gateway.system.watchdog import DEFAULT_PERIOD_S, Heartbeat, Watchdog, watchdog_period_s


def build(
    config: Config, path: Path, overrides: Mapping[str, object], machine: Machine | None = None
) -> Daemon:
    """A daemon with the config of a file. Raises BoardError, OutboxError."""
    machine = machine or Machine()
    gateway, outbox_path = config.gateway.id, config.outbox.path
    run = new_run(gateway, config.gateway.identity_key)
    life, in_force, topics = Life(), ConfigInForce(config), Topics.of(config)

    # What can fail comes first: from ``PreviousRuns.begin`` on this run is on record as begun.
    drops: SimpleQueue[Drop] = SimpleQueue()
    machine_clock, sync = open_clock(config, machine)
    with ExitStack() as opened:
        outbox = open_outbox(config, drops.put)
        opened.callback(outbox.close)
        board = sampling.open_fitted_board(config)
        opened.pop_all()
    kafka = KafkaSinks.open(config)
    clock, hold = board.clock or machine_clock, sync.hold()
    previous_runs = PreviousRuns(_beside(outbox_path, "run"), run, lost_at_most_s(config))
    runs = RunLedger(gateway, run, machine.boot, previous_runs.begin())

    inbox = Inbox()
    status = GatewayStatus(gateway, run, machine_clock.now_ns, installed_version())
    broker_drops = BrokerDrops(run)
    retained = RetainedRecords(topics, runs, status, broker_drops, inbox)
    subscriptions = Subscriptions(_beside(outbox_path, "subscriptions"), filters(config))
    session = MqttSession(
        config.mqtt,
        f"fieldgate-{gateway}",
        subscriptions,
        retained,
        (topics.status, status.will),
        inbox.wake,
        broker_drops,
    )
    sequences, last = Sequences(run), LastReadings(gateway)
    intake = Intake(
        gateway,
        sequences,
        config.kafka.topic,
        machine_clock,
        routes(config),
        machine.boot,
        last.note_forwarded,
    )
    intake.quantities = config.quantities
    intake.sensors, intake.own_topic = [sensor.name for sensor in config.sensors], topics.reading
    writer = OutboxWriter(outbox, inbox.put)
    state = State(intake, Pace.of(config), hold)
    forwarder = Forwarder(inbox, state, kafka.live, kafka.backlog, writer, session, drops.put)

    entry = DeviceEntry(inbox.put, lambda: forwarder.is_full)
    http = HttpInput(PostedReadings(intake, machine_clock, last.note_forwarded), entry)

    interlocks = Interlocks(config.actuators, config.interlocks, board, runs.event, inbox.announce)

    def publish(reading: Reading, sensor: str) -> None:
        if config.interlocks:
            interlocks.take(reading)
        topic = topics.reading.format(sensor=sensor, quantity=reading.quantity)
        inbox.sampled(intake.records.own(reading, topic), topic)
        last.note(reading)

    fields = nested(config.gateway.set)
    context = RunContext(gateway, run, clock, sequences, publish, machine.boot, extra=fields)

    sampler = partial(sampling.make_sampler, board=board, context=context)
    samplers = Supervisor(map(sampler, config.sensors), clock, again=sampler)
    restarts = RestartBudget(_beside(outbox_path, "restarts"), machine.boot, machine.boot_ns)

    def announce_of_run(record: Record) -> None:
        inbox.announce(record.of_run(run))

    calibrations = CalibrationHistory(history_path(config), machine.boot, clock, announce_of_run)

    def config_in_force() -> Config:
        return in_force.config

    sites = SiteHistory(_beside(outbox_path, "sites"), clock, config_in_force, announce_of_run)
    site_watch = SiteWatch(
        _beside(outbox_path, "moved"), config_in_force, last.located, runs.event, inbox.announce
    )
    discovery = Discovery(_beside(outbox_path, "discovery"), inbox.retain)
    spool = EventSpool(outbox_path, runs.event, inbox.announce)
    supply = SupplyWatch(runs.event, inbox.announce)
    offers = ManualTime(machine.boot_ns)
    gps_time = GpsTime(
        board.connect_gpsd, receivers_of(config), offers, lambda: board.clock is None and sync.may_be_given
    )
    clock_updates = ClockUpdates(offers, sync, hold, inbox, runs)
    reporter = Reporter(runs, status, topics, inbox, drops, broker_drops)

    def deliver(topic: str, payload: bytes, retain: bool, done: Callable[[bool], None]) -> bool:
        ready = session.ready.is_set()
        if ready:
            inbox.put(Call(partial(session.deliver, topic, payload, retain, done)))
        return ready

    def heartbeats() -> Iterable[Heartbeat]:
        parts = (life, samplers, forwarder)
        return chain.from_iterable(part.heartbeats() for part in parts)

    def command_result(record: Record) -> None:
        inbox.announce(record)
        inbox.retain({topics.command_result: record.value})

    actions = {
        "switch": remote.switch(interlocks),
        "read": remote.read(config_in_force, last.own, life.stop.wait),
        "interval": remote.interval(config_in_force, lambda commanded: reload.wait_for(commanded)),
        "reload": remote.reload(lambda commanded: reload.wait_for(commanded)),
        "publish": remote.publish(
            config.mqtt.topic_root, lambda topic, payload: deliver(topic, payload, False, lambda _: None)
        ),
        "self-test": remote.self_test(lambda: status_of(parts)),
    }
    executor = Executor(
        (gateway, run), actions, machine_clock, clock_wait(machine_clock, life.stop), command_result
    )
    watchdog = Watchdog(heartbeats, watchdog_period_s() or DEFAULT_PERIOD_S)
    parts = Gateway(
        run, life, in_force, topics, board, interlocks, clock, sync, hold, kafka, previous_runs, runs, inbox,
        broker_drops, subscriptions, session, intake, forwarder, last, context, samplers, restarts,
        calibrations, sites, site_watch, discovery, spool, FirstReading(), supply, gps_time, clock_updates,
        reporter, watchdog,
        CommandReceiver(config, executor, machine_clock, _beside(outbox_path, "commands"), life.stop),
        Downlinks(config, deliver, runs.event, inbox.announce, life.stop), http, MqttProxy(entry),
    )  # fmt: skip

    page = StatusPage(
        StatusSource(
            partial(status_of, parts), last.recent, samplers.pulses, offers if board.clock is None else None
        )
    )
    reload = Reload(path, overrides, parts, page)

    def control(request: Mapping[str, Any]) -> Mapping[str, Any]:
        return reload.carry_out(request) if request.get("do") == RELOAD else phone_control(page, request)

    return Daemon(parts, reload, page, ControlSocket(outbox_path, control))


def _beside(outbox: Path, suffix: str) -> Path:
    return outbox.with_name(f"{outbox.name}.{suffix}")
