"""The daemon: startup, main loop and shutdown, in that order. All of it runs in the main thread."""

from __future__ import annotations

import logging
import signal
import time
from typing import Final

from gateway.calibration.history import channel_records
from gateway.daemon.gateway import EXIT_CODE, HUNG_DRIVERS, Gateway
from gateway.daemon.reload import Reload
from gateway.daemon.snapshot import run_counts, status_line, status_of, take_snapshot
from gateway.status.control_socket import ControlSocket
from gateway.status.service import StatusPage
from gateway.system.watchdog import notify

log = logging.getLogger(__name__)

_TICK_S: Final = 1.0
_STATUS_EVERY_S: Final = 10.0
_KAFKA_GRACE_S: Final = 5.0


class Daemon:
    """One run of a gateway."""

    def __init__(self, gateway: Gateway, reload: Reload, status: StatusPage, control: ControlSocket) -> None:
        self.gateway = gateway
        self._reload = reload
        self._status = status
        self._control = control
        # In this order: the run's record, which comes last, has what the others report.
        self._tasks = (
            gateway.interlocks,
            gateway.clock_updates,
            status,
            gateway.calibrations,
            gateway.sites,
            gateway.subscriptions,
            gateway.discovery,
            reload,
            gateway.spool,
            gateway.first_reading,
            gateway.supply,
            gateway.site_watch,
            gateway.commands,
            gateway.downlinks,
            gateway.reporter,
        )

    def run(self, seconds: float | None) -> int:
        """Until stopped; the exit code. ``seconds`` ends the sampling only."""
        life = self.gateway.life
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: life.stop.set())
        signal.signal(signal.SIGHUP, lambda *_: self._reload.requested.set())
        life.begin()
        self._startup()
        failed = self._main_loop(None if seconds is None else time.monotonic() + seconds)
        lost = self._shutdown()
        return 1 if failed or lost else EXIT_CODE if life.stop_reason else 0

    def _startup(self) -> None:
        parts, config = self.gateway, self.gateway.in_force.config
        log.info("event=daemon.start gateway=%s run=%s", config.gateway.id, parts.run)
        parts.interlocks.start()
        # Before the forwarder reads the outbox: what is in there of these is older.
        parts.calibrations.begin(channel_records(config))
        parts.sites.begin()
        parts.forwarder.start()
        parts.reporter.report_status(take_snapshot(parts))
        self._reload.announce_channels()
        self._open_status()
        parts.samplers.start()
        snapshot = take_snapshot(parts)
        parts.reporter.begin(snapshot)
        parts.gps_time.start()
        parts.watchdog.start()
        try:
            parts.http.listen(config.http)
        except OSError as error:
            log.error("event=http.unavailable listen=%s error=%s", config.http.listen, error)
        try:
            parts.mqtt_proxy.listen(config.mqtt_proxy)
        except OSError as error:
            log.error("event=mqtt_proxy.unavailable listen=%s error=%s", config.mqtt_proxy.listen, error)
        parts.commands.apply(config)
        parts.downlinks.apply(config)
        notify(f"READY=1\nSTATUS={status_line(status_of(parts))}")

    def _main_loop(self, sample_until_s: float | None) -> bool:
        """Until stopped; True when the forwarder died, which only a new process can replace."""
        parts, status_at_s = self.gateway, 0.0
        while not parts.life.stop.wait(_TICK_S):
            if not parts.forwarder.is_alive():
                log.critical("event=thread.died threads=forwarder remedy=restart")
                return True
            now_s = parts.life.turn()
            if sample_until_s is not None and now_s >= sample_until_s:
                sample_until_s = None
                parts.samplers.stop()
            if self._must_restart():
                return False
            snapshot = take_snapshot(parts)
            for task in self._tasks:
                task.tick(snapshot)
            if not parts.watchdog.stuck and snapshot.at_s >= status_at_s:
                status_at_s = snapshot.at_s + _STATUS_EVERY_S
                notify(f"STATUS={status_line(status_of(parts))}")
        return False

    def _shutdown(self) -> int:
        """Ends in the order of the data's way; how many messages neither Kafka nor the disk would take."""
        parts = self.gateway
        # First: what follows may take half a minute, and no command may switch what is safe.
        parts.interlocks.stop()
        parts.commands.stop()
        parts.downlinks.stop()
        parts.watchdog.stop()
        notify("STOPPING=1\nSTATUS=stopping: what Kafka hasn't confirmed goes to the outbox")
        parts.gps_time.stop()
        parts.samplers.stop()
        snapshot = take_snapshot(parts)
        parts.reporter.report_drops(snapshot, at_once=True)
        offline = parts.reporter.report_offline(snapshot)
        parts.subscriptions.tick(snapshot)
        parts.http.stop()
        parts.mqtt_proxy.take_no_more()
        parts.forwarder.take_no_more()
        parts.reporter.report_stopped(run_counts(parts))
        lost = parts.reporter.note_lost(parts.forwarder.stop(_KAFKA_GRACE_S))
        if not lost:
            parts.previous_runs.end()
            parts.spool.settle()
        # Now that all it has taken is durable, or lost: what is gets its PUBACK.
        parts.mqtt_proxy.stop()
        parts.session.stop(parts.reporter.last_messages(run_counts(parts), offline))
        parts.kafka.close()
        self._control.stop()
        self._status.stop()
        parts.board.close()
        log.info("event=daemon.stop run=%s outbox_records=%d", parts.run, parts.forwarder.outbox.records)
        return lost

    def _must_restart(self) -> bool:
        """Replace samplers that died or hang; True where only a new process can help, and one is allowed."""
        parts = self.gateway
        for hang in parts.samplers.check():
            parts.inbox.announce(
                parts.runs.event(
                    "sampler-abandoned", sensor=hang.sensor, after_s=round(hang.after_s, 1), total=hang.total
                )
            )
        if not parts.samplers.needs_new_process or not parts.restarts.take():
            return False
        hung = list(parts.samplers.hung)
        log.critical("event=daemon.restarts reason=%s sensors=%s", HUNG_DRIVERS, ",".join(hung))
        parts.life.stop_reason = HUNG_DRIVERS
        parts.inbox.announce(parts.runs.event("restarting", reason=HUNG_DRIVERS, sensors=hung))
        return True

    def _open_status(self) -> None:
        address = self.gateway.in_force.config.status
        try:
            self._status.listen(address)
        except OSError as error:
            # A taken port is no reason not to sample.
            log.error("event=status.unavailable listen=%s error=%s", address, error)
        try:
            self._control.start()
        except OSError as error:
            log.error("event=control.unavailable error=%s", error)
