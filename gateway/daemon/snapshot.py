"""What the daemon says of itself when it is asked: its status, the counts of its run's record, a line."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Any, Final

from cloud.wire.schema import SYNCED, UNSYNCED, format_time
from gateway.clock.hold import ClockHold
from gateway.clock.sync import ClockSync
from gateway.daemon.reload import Reloading, Running
from gateway.daemon.restart_budget import RestartBudget
from gateway.forwarding.forecast import Forecast
from gateway.mqtt.broker_drops import BrokerDrops
from gateway.ports import Clock
from gateway.reporting.run_ledger import RunLedger
from gateway.system.host import vitals
from gateway.system.times import duration_text
from gateway.system.watchdog import Watchdog

_MOST_NAMED: Final = 3


class Life:
    """How far a run is. The main thread writes, but for ``stop``, which ends it; any thread may read.

    ``stop_reason`` is why it ended itself, None where it was told to. Times are monotonic, in seconds.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.stop_reason: str | None = None
        self.started_s = self.turned_s = time.monotonic()
        self.turns = 0

    def turn(self) -> float:
        """The main loop has come round; when."""
        self.turned_s = time.monotonic()
        self.turns += 1
        return self.turned_s


class DaemonStatus:
    """Reads a daemon's parts and changes none. Any thread may ask."""

    def __init__(
        self,
        run: str,
        life: Life,
        running: Running,
        reloading: Reloading,
        clock: Clock,
        timekeeper: ClockSync,
        holdback: ClockHold,
        runs: RunLedger,
        broker_drops: BrokerDrops,
        hang_restarts: RestartBudget,
        watchdog: Watchdog,
    ) -> None:
        self._run = run
        self._life = life
        self._running = running
        self._reloading = reloading
        self._clock = clock
        self._timekeeper = timekeeper
        self._holdback = holdback
        self._runs = runs
        self._broker_drops = broker_drops
        self._hang_restarts = hang_restarts
        self._watchdog = watchdog
        self._forecast = Forecast()

    def counts(self) -> dict[str, Any]:
        """What changes in a run's record."""
        running = self._running
        return {
            "last_seq": running.mast.sequences.snapshot(),
            "last_raw_seq": running.intake.last_raw_seq,
            "ignored": running.intake.ignored,
            "broker_dropped": self._broker_drops.count,
            "broker_counter": self._broker_drops.counter,
            "in_flight": running.forwarder.in_flight,
            "outbox_records": running.forwarder.outbox_records,
            "outbox_memory_records": running.forwarder.outbox_in_memory.records,
            "clock": SYNCED if self._clock.synced else UNSYNCED,
            "held": running.forwarder.held_rows,
            "repaired": self._holdback.repaired,
            "unsynced": self._holdback.unsynced,
            "samplers_abandoned": running.supervisor.abandoned,
            **({"stop_reason": self._life.stop_reason} if self._life.stop_reason else {}),
        }

    def status(self) -> dict[str, Any]:
        """Everything, as ``/api/status`` tells it."""
        running, config = self._running, self._reloading.config
        stopping = self._life.stop.is_set()
        forwarder, counters = running.forwarder, running.forwarder.counters
        now_s, confirmed_ago_s = time.monotonic(), forwarder.confirmed_ago_s
        return {
            "gateway": config.gateway.id,
            "run": self._run,
            "state": "stopping" if stopping else "ended" if running.supervisor.ended else "sampling",
            "now": format_time(self._clock.now_ns() // 1000),
            "clock_given": self._timekeeper.given,
            "clock_may_be_given": running.board.clock is None and self._timekeeper.may_be_given,
            "own_time": running.board.clock is not None,
            "uplink": forwarder.uplink,
            "clock": SYNCED if self._clock.synced else UNSYNCED,
            "held": forwarder.held_rows,
            "repaired": self._holdback.repaired,
            "unsynced": self._holdback.unsynced,
            "config": self._reloading.state,
            "mqtt_connected": running.link.ready.is_set(),
            "sampled": sum(running.mast.sequences.snapshot().values()),
            "received": counters.received,
            "in_flight": forwarder.in_flight,
            "confirmed": counters.confirmed,
            "spilled": counters.stored,
            "drained": forwarder.drained,
            "dead_letters": counters.dead_letters,
            "ignored": running.intake.ignored,
            "broker_dropped": self._broker_drops.count,
            "late_echoes": counters.late_echoes,
            "sampler_restarts": running.supervisor.restarts,
            "samplers_abandoned": running.supervisor.abandoned,
            "troubles": running.supervisor.troubles,
            "sensors_hung": running.supervisor.hung,
            "hang_restart_wait_s": round(self._hang_restarts.wait_s()),
            "sensor_retries": dict(running.mast.retries),
            "parked_topics": forwarder.parked_topics,
            "outbox_records": forwarder.outbox_records,
            "outbox_bytes": forwarder.outbox_bytes,
            "outbox_max_bytes": config.outbox.max_bytes,
            "outbox_days_left": self._forecast.days_left(
                config, forwarder.outbox_bytes, forwarder.outbox_records
            ),
            "dropped": self._runs.drop_counts(),
            "outbox_memory_records": forwarder.outbox_in_memory.records,
            "outbox_memory_bytes": forwarder.outbox_in_memory.size_bytes,
            "outbox_problem": forwarder.outbox_in_memory.problem,
            "kafka_confirmed_ago_s": None if confirmed_ago_s is None else round(confirmed_ago_s, 1),
            "uptime_s": round(now_s - self._life.started_s),
            "main_loop_ago_s": round(now_s - self._life.turned_s, 1),
            "forwarder_stuck": any(part.startswith("forward") for part in self._watchdog.stuck),
            "stuck": list(self._watchdog.stuck),
            "machine": vitals(config.outbox.path).fields(),
            "spinnable": sorted(running.supervisor.pulses()),
            "channels": {
                channel: {
                    **last,
                    "forwarded": counters.delivered[f"{config.gateway.id}/{channel}".encode()],
                    "dropped": self._runs.dropped_of(channel),
                }
                for channel, last in running.last.snapshot().items()
            },
        }

    def line(self) -> str:
        """The line that ``systemctl status`` shows."""
        running, forwarder = self._running, self._running.forwarder
        return status_line(
            channels=len(running.last.snapshot()),
            silent=running.supervisor.troubles,
            uplink=forwarder.uplink,
            confirmed_ago_s=forwarder.confirmed_ago_s,
            outbox_records=forwarder.outbox_records,
            outbox_share=forwarder.outbox_bytes / self._reloading.config.outbox.max_bytes,
            outbox_problem=forwarder.outbox_in_memory.problem,
            synced=self._clock.synced,
            mqtt_connected=running.link.ready.is_set(),
        )


def status_line(
    *,
    channels: int,
    silent: Collection[str],
    uplink: str,
    confirmed_ago_s: float | None,
    outbox_records: int,
    outbox_share: float,
    outbox_problem: str | None,
    synced: bool,
    mqtt_connected: bool,
) -> str:
    """The line. ``silent``: sensors that give nothing; ``outbox_share``: how full, 0 to 1; ages in seconds.

    What is as it should be is said briefly, what isn't comes with its figure.
    """
    said = [f"{channels} channels" + (f", silent: {_names(silent)}" if silent else "")]
    acknowledged = "never" if confirmed_ago_s is None else f"{duration_text(confirmed_ago_s)} ago"
    away = "Kafka does not answer, " if uplink == "spilling" else f"{uplink}, "
    said.append(f"{away}last acknowledged {acknowledged}")
    if outbox_records:
        said.append(f"outbox {outbox_records:,} records, {outbox_share:.0%} full")
    else:
        said.append("outbox empty")
    if outbox_problem is not None:
        said.append("the disk fails: outbox in memory")
    if not synced:
        said.append("clock not synchronised")
    if not mqtt_connected:
        said.append("no Mosquitto")
    return "; ".join(said)


def _names(names: Collection[str]) -> str:
    first = sorted(names)[:_MOST_NAMED]
    more = len(names) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")
