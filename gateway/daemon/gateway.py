"""The gateway: all parts of one run, finished. Made by ``build``; the daemon runs it, a reload changes it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Final

from drivers.interface import Board
from gateway.calibration.history import CalibrationHistory
from gateway.clock.gps_time import GpsTime
from gateway.clock.hold import ClockHold
from gateway.clock.sync import ClockSync
from gateway.config import Config
from gateway.control.interlocks import Interlocks
from gateway.daemon.restart_budget import RestartBudget
from gateway.devices.http_server import HttpInput
from gateway.devices.mqtt_server import MqttProxy
from gateway.forwarding.capacity import Forecast
from gateway.forwarding.forwarder import Forwarder
from gateway.forwarding.inbox import Inbox
from gateway.forwarding.sinks import KafkaSinks
from gateway.mqtt.broker_drops import BrokerDrops
from gateway.mqtt.home_assistant import Discovery
from gateway.mqtt.intake import Intake
from gateway.mqtt.session import MqttSession
from gateway.mqtt.subscriptions import Subscriptions
from gateway.mqtt.topics import Topics
from gateway.ports import Clock
from gateway.remote.downlinks import Downlinks
from gateway.remote.receiver import CommandReceiver
from gateway.reporting.event_spool import EventSpool
from gateway.reporting.previous_runs import FirstReading, PreviousRuns
from gateway.reporting.reporter import ClockUpdates, Reporter
from gateway.reporting.run_ledger import RunLedger
from gateway.reporting.site_history import SiteHistory
from gateway.reporting.site_watch import SiteWatch
from gateway.reporting.supply_watch import SupplyWatch
from gateway.sampling.last_readings import LastReadings
from gateway.sampling.run_context import RunContext
from gateway.sampling.supervisor import Supervisor
from gateway.system.times import now_text
from gateway.system.watchdog import Heartbeat, Watchdog

# A reload waits for samplers that end, half a minute at most.
_MAIN_LOOP_PERIODS: Final = 1.0


class Life:
    """How far a run is. The main thread writes, but for ``stop``, which ends it; any thread may read.

    ``stop_reason`` is why it ended itself, None where it was stopped. Times are monotonic, in seconds.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.stop_reason: str | None = None
        self.started_s = self.turned_s = time.monotonic()
        self._turns = 0
        self._thread: int | None = None

    def begin(self) -> None:
        """The calling thread is the main one."""
        self._thread = threading.get_native_id()

    def turn(self) -> float:
        """Note a turn of the main loop; when it was."""
        self.turned_s = time.monotonic()
        self._turns += 1
        return self.turned_s

    def heartbeats(self) -> tuple[Heartbeat, ...]:
        """The main loop's, for the watchdog."""
        return (Heartbeat("main-loop", self._turns, _MAIN_LOOP_PERIODS, thread=self._thread),)


@dataclass(slots=True)
class ConfigInForce:
    """The config, when it was read, and why a later one was refused, or None. The main thread writes."""

    config: Config
    loaded_at: str = field(default_factory=now_text)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Gateway:
    """The parts of one run, in the order they are made."""

    run: str
    life: Life
    in_force: ConfigInForce
    topics: Topics
    board: Board
    interlocks: Interlocks
    clock: Clock
    """The readings': the board's own, or the machine's."""
    sync: ClockSync
    hold: ClockHold
    kafka: KafkaSinks
    previous_runs: PreviousRuns
    runs: RunLedger
    inbox: Inbox
    broker_drops: BrokerDrops
    subscriptions: Subscriptions
    session: MqttSession
    intake: Intake
    forwarder: Forwarder
    last: LastReadings
    context: RunContext
    samplers: Supervisor
    restarts: RestartBudget
    calibrations: CalibrationHistory
    sites: SiteHistory
    site_watch: SiteWatch
    discovery: Discovery
    spool: EventSpool
    first_reading: FirstReading
    supply: SupplyWatch
    gps_time: GpsTime
    clock_updates: ClockUpdates
    reporter: Reporter
    watchdog: Watchdog
    commands: CommandReceiver
    downlinks: Downlinks
    http: HttpInput
    mqtt_proxy: MqttProxy
    forecast: Forecast = field(default_factory=Forecast)
