"""Carries out a reload: all of it, or nothing and the old config goes on.

Whatever can fail (the file, the board's wiring, a port, Kafka's properties) is tried before anything changes.
Owned by the main thread.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from cloud.errors import CloudError
from drivers.interface import BoardError
from gateway.calibration.history import channel_records
from gateway.config import Config, Problem, check, located
from gateway.config.file_watch import FileWatch
from gateway.daemon.config_changes import RESTART, Changes, compare
from gateway.daemon.gateway import Gateway
from gateway.daemon.snapshot import run_counts
from gateway.mqtt import home_assistant
from gateway.mqtt.topics import filters, routes
from gateway.ports import Snapshot
from gateway.reporting.previous_runs import lost_at_most_s
from gateway.reporting.run_ledger import State
from gateway.sampling.sampler import Sampler
from gateway.sampling.sensors import fitted_sensors, make_sampler
from gateway.status.service import StatusPage
from gateway.system.host import installed_version
from gateway.system.systemd import notify
from gateway.system.times import now_text

log = logging.getLogger(__name__)

_LONGEST_S: Final = 30.0
"""The main loop turns once a second; a sensor that hangs is abandoned after 18 s, and holds it up so long."""


class Reload:
    """Takes the file over as it is now, where that was requested. ``overrides`` stay as at the start."""

    def __init__(
        self, path: Path, overrides: Mapping[str, object], gateway: Gateway, status: StatusPage
    ) -> None:
        self._path = path
        self._overrides = overrides
        self._gateway = gateway
        self._status = status
        self.requested = threading.Event()
        self._waiting: SimpleQueue[tuple[Future[str | None], Mapping[str, object]]] = SimpleQueue()
        # What commands have put over the file since it was loaded last.
        self._commanded: dict[str, object] = {}
        self._files = FileWatch(gateway.in_force.config.files)

    def tick(self, snapshot: Snapshot) -> None:
        """Reload where it was requested, or a file that the config names has another content.

        Where the config is refused the one in force stays.
        """
        for path in self._files.changed(snapshot.at_s):
            log.info("event=config.file_changed path=%s", path)
            self.requested.set()
        if not self.requested.is_set() and self._waiting.empty():
            return
        # Before the file is read: who comes later may have written it later.
        waiting = [self._waiting.get() for _ in range(self._waiting.qsize())]
        before, fresh = self._commanded, self.requested.is_set() or not all(each for _, each in waiting)
        self.requested.clear()
        self._commanded = {} if fresh else dict(before)
        for _, each in waiting:
            self._commanded |= each
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        changes = self.reload()
        if changes is not None:
            parts, summary = self._gateway, changes.summary()
            self.announce_channels()
            log.info("event=daemon.reloaded changes=%s", json.dumps(summary))
            parts.inbox.announce(parts.runs.event("reloaded", **summary))
            state: State = "ended" if parts.samplers.ended else "running"
            parts.inbox.announce(parts.runs.record(state, run_counts(parts)))
        else:
            self._commanded = before
        notify("READY=1")
        error = self._gateway.in_force.error
        for done, _ in waiting:
            done.set_result(error)

    def carry_out(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Reload for a command that has written the file, and wait; ``refused`` is the reason, or None.

        Called by the control socket's thread. Raises ValueError where it is another file, OSError.
        """
        if not self._path.samefile(str(request.get("config"))):
            raise ValueError(f"the daemon runs on {self._path.absolute()}")
        return {"refused": self.wait_for({})}

    def wait_for(self, commanded: Mapping[str, object]) -> str | None:
        """Have the file loaded, and wait; why it was refused, or None. Any thread but the main one.

        ``commanded`` are keys put over it until it is loaded again without. Raises TimeoutError.
        """
        done: Future[str | None] = Future()
        self._waiting.put((done, commanded))
        if not commanded:
            self.requested.set()
        try:
            return done.result(_LONGEST_S)
        except TimeoutError:
            raise TimeoutError(f"the daemon hasn't reloaded within {_LONGEST_S:g} s") from None

    def announce_channels(self) -> None:
        """The channels of the config in force, to Home Assistant."""
        config = self._gateway.in_force.config
        self._gateway.discovery.apply(home_assistant.messages(config, installed_version()))

    def reload(self) -> Changes | None:
        """Read the file again and change to it; what has changed, or None where it was refused."""
        in_force, overrides = self._gateway.in_force, {**self._overrides, **self._commanded}
        config, problems = check(self._path, overrides, at_work=True)
        changes = None if config is None else compare(in_force.config, config)
        if changes is not None:
            problems += located(self._path, overrides, changes.refusals)
        # With what it has started with, a password that is missing, say, it goes on.
        known = {(problem.key, problem.message) for problem in in_force.config.problems}
        errors = [
            problem
            for problem in problems
            if problem.severity == "error" and (problem.key, problem.message) not in known
        ]
        if config is not None and changes is not None and not errors:
            errors = self._attempt(changes, config)
        for problem in problems:
            if problem.severity == "warning":
                log.warning("event=config.warning problem=%s", problem)
        if config is None or errors:
            for problem in errors:
                log.error("event=config.refused problem=%s", problem)
            in_force.error = "\n".join(map(str, errors))
            return None
        in_force.config, in_force.loaded_at, in_force.error = config, now_text(), None
        self._files.begin(config.files)
        return changes

    def _attempt(self, changes: Changes, config: Config) -> list[Problem]:
        """Change to a config; why it can't be, and then nothing has changed."""
        parts, file = self._gateway, str(self._path)
        try:
            rewire = parts.board.refit(fitted_sensors(config))
        except BoardError as error:
            return [Problem(file, None, "sensor", f"{error}; it takes a restart: {RESTART}")]
        take_over: Callable[[], None] | None = None
        if changes.touches("kafka", "bootstrap_servers") or changes.touches("kafka", "properties"):
            try:
                take_over = parts.kafka.prepare(config)
            except CloudError as error:
                reason = str(error).removeprefix("kafka.properties: ")
                return [*located(self._path, self._overrides, {("kafka", "properties"): reason})]
        # The last that can fail, for it takes effect at once.
        problems = self._listen(changes, config)
        if problems:
            return problems
        parts.commands.apply(config)
        parts.downlinks.apply(config)
        parts.previous_runs.allow(lost_at_most_s(config))
        if changes.forwards or changes.sensors or changes.settings:
            parts.forwarder.change(
                lambda: self._change_forwarding(changes, config, take_over), config.outbox.commit_interval_s
            )
        for sensor in config.sensors:
            if sensor.name in changes.quality:
                parts.samplers.set_quality(sensor.name, sensor.quality)
        if changes.sensors:
            self._change_sensors(changes, config, rewire)
        return []

    def _listen(self, changes: Changes, config: Config) -> list[Problem]:
        """Answer at other addresses; why that can't be, and then nothing has changed."""
        before, moved = self._gateway.in_force.config, ExitStack()
        listeners: tuple[tuple[str, Callable[[Config], None]], ...] = (
            ("status", lambda given: self._status.listen(given.status)),
            ("http", lambda given: self._gateway.http.listen(given.http)),
            ("mqtt_proxy", lambda given: self._gateway.mqtt_proxy.listen(given.mqtt_proxy)),
        )
        for section, listen in listeners:
            if not changes.touches(section):
                continue
            try:
                listen(config)
            except OSError as error:
                address = getattr(config, section).listen
                reason = f"can't listen on {address}: {error.strerror or error}"
                moved.close()
                return [*located(self._path, self._overrides, {(section, "listen"): reason})]
            moved.callback(_back, listen, before)
        moved.pop_all()
        return []

    def _change_forwarding(
        self, changes: Changes, config: Config, take_over: Callable[[], None] | None
    ) -> None:
        """Called by the forwarder's thread."""
        if take_over is not None:
            take_over()
        self._gateway.kafka.format.apply(config.kafka)
        intake = self._gateway.intake
        intake.quantities, intake.sensors = config.quantities, [sensor.name for sensor in config.sensors]
        intake.apply(config.kafka.topic, routes(config))
        if changes.touches("mqtt"):
            self._gateway.session.log_in(config.mqtt.login)
        if changes.forwards:
            self._gateway.session.refilter(filters(config))
            self._gateway.last.clear_forwarded()

    def _change_sensors(self, changes: Changes, config: Config, rewire: Callable[[], None]) -> None:
        parts = self._gateway

        def successors() -> list[Sampler]:
            rewire()
            records = channel_records(config)
            parts.last.keep({record.channel for record in records})
            # Now: no old sampler reads any more, no new one yet.
            parts.calibrations.apply(records)
            return [
                make_sampler(sensor, parts.board, parts.context)
                for sensor in config.sensors
                if sensor.name in changes.starting
            ]

        parts.samplers.replace(changes.ending, successors)
        parts.calibrations.publish()


def _back(listen: Callable[[Config], None], before: Config) -> None:
    with suppress(OSError):
        listen(before)
