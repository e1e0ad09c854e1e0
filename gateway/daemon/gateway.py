"""The gateway: all parts of one run, finished. Made by ``build``; the daemon runs it, a reload changes it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from drivers.interface import Board
from gateway.calibration.history import CalibrationHistory, SiteHistory
from gateway.clock.given_time import GpsTime
from gateway.clock.hold import ClockHold
from gateway.clock.sync import ClockSync
from gateway.config import Config
from gateway.control.interlocks import Interlocks
from gateway.devices.http_server import HttpInput
from gateway.devices.mqtt_server import MqttProxy
from gateway.forwarding.capacity import Forecast
from gateway.forwarding.forwarder import Forwarder, Inbox
from gateway.forwarding.sinks import KafkaSinks
from gateway.mqtt.broker_drops import BrokerDrops
from gateway.mqtt.home_assistant import Discovery
from gateway.mqtt.intake import Intake, Topics
from gateway.mqtt.session import MqttSession, Subscriptions
from gateway.ports import Clock
from gateway.remote.downlinks import Downlinks
from gateway.remote.receiver import CommandReceiver
from gateway.reporting.event_spool import EventSpool
from gateway.reporting.previous_runs import FirstReading, PreviousRuns
from gateway.reporting.reporter import ClockUpdates, Reporter
from gateway.reporting.run_ledger import RunLedger
from gateway.reporting.site_watch import SiteWatch
from gateway.reporting.supply_watch import SupplyWatch
from gateway.sampling.last_readings import LastReadings
from gateway.sampling.readings import RunContext
from gateway.sampling.supervisor import Supervisor
from gateway.system.atomic_file import read_state, write_state
from gateway.system.times import now_text
from gateway.system.watchdog import Heartbeat, Watchdog

EXIT_CODE: Final = 75
"""EX_TEMPFAIL of sysexits.h: nothing is lost, start me again."""

HUNG_DRIVERS: Final = "HUNG_DRIVERS"
"""Why a run stopped itself, in its record and an event."""

_HOUR_NS: Final = 3600 * 10**9
_LONGEST_H: Final = 24


class RestartBudget:
    """When the daemon may end itself so that systemd starts it again, because drivers hang.

    A new process gets back the threads, pins and buses that hang. Where the hardware itself is broken it is
    of no use, so each restart makes the next one wait longer: 1, 2, 4 … 24 hours. That is kept in a file
    beside the outbox. A reboot, or a wait that has passed twice without another restart, begins again at one
    hour.

    ``boot_ns`` is time since boot, which setting the clock doesn't change.
    """

    def __init__(self, path: Path, boot: str, boot_ns: Callable[[], int]) -> None:
        self._path = path
        self._boot = boot
        self._boot_ns = boot_ns
        self._count, self._at_ns = read_state(path, self._parse, (0, 0))

    def wait_s(self) -> float:
        """Seconds until the next restart is allowed; 0 where it is now."""
        if not self._count:
            return 0.0
        return max((self._at_ns + self._pause_ns() - self._boot_ns()) / 1e9, 0.0)

    def take(self) -> bool:
        """Take one restart: it is on the disk when this is True. False where none is allowed now."""
        if self.wait_s() > 0:
            return False
        now_ns = self._boot_ns()
        again = self._count > 0 and now_ns - self._at_ns <= 2 * self._pause_ns()
        count = self._count + 1 if again else 1
        written = write_state(self._path, {"boot": self._boot, "at_ns": now_ns, "restarts": count})
        # Unrecorded it would be repeated at once, for ever: tried again after the shortest pause.
        self._count, self._at_ns = count if written else max(self._count, 1), now_ns
        return written

    def _pause_ns(self) -> int:
        return min(1 << min(self._count - 1, 10), _LONGEST_H) * _HOUR_NS

    def _parse(self, fields: dict[str, Any]) -> tuple[int, int]:
        boot, at_ns, count = fields["boot"], fields["at_ns"], fields["restarts"]
        if not isinstance(at_ns, int) or not isinstance(count, int) or count < 1:
            raise ValueError("restarts and at_ns must be whole numbers, restarts above 0")
        return (count, at_ns) if boot == self._boot else (0, 0)


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
