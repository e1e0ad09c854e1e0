"""Carries out a reload: all of it, or nothing and the old config goes on.

Whatever can fail (the file, the board's wiring, a port, Kafka's properties) is tried before anything changes.
Owned by the main thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud.errors import CloudError
from cloud.kafka.producer import KafkaSink
from drivers.interface import Board, BoardError
from gateway.calibration.history import CalibrationHistory, channel_records
from gateway.config import Config, Problem, check, located
from gateway.daemon.config_changes import RESTART, Plan, compare, refusals
from gateway.forwarding.forwarder import Forwarder
from gateway.forwarding.sinks import kafka_properties
from gateway.mqtt.intake import Intake
from gateway.mqtt.session import MqttSession
from gateway.mqtt.topics import filters, routes
from gateway.reporting.previous_runs import PreviousRuns, lost_at_most_s
from gateway.sampling.last_readings import LastReadings
from gateway.sampling.run_context import Mast
from gateway.sampling.sampler import Sampler
from gateway.sampling.sensors import fitted_sensors, samplers, sensor_names
from gateway.sampling.supervisor import Supervisor
from gateway.status import StatusPage
from gateway.system.times import now_text

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Running:
    """The daemon's parts that a reload changes."""

    board: Board
    mast: Mast
    supervisor: Supervisor
    intake: Intake
    forwarder: Forwarder
    link: MqttSession
    sinks: Mapping[str, KafkaSink]
    status: StatusPage
    last: LastReadings
    state_file: PreviousRuns
    calibrations: CalibrationHistory


class Reloading:
    """The config that is in force, and the way to another one from the same file and overrides."""

    def __init__(self, config: Config, path: Path, overrides: Mapping[str, object], running: Running) -> None:
        self.config = config
        self._path = path
        self._overrides = overrides
        self._running = running
        self._loaded_at = now_text()
        self._error: str | None = None

    @property
    def state(self) -> dict[str, Any]:
        """When the config in force was read, and why a later one was refused, or None. Any thread may ask."""
        return {"loaded_at": self._loaded_at, "error": self._error}

    def reload(self) -> Plan | None:
        """Read the file again and change to it; what has changed, or None where it was refused."""
        config, problems = check(self._path, self._overrides, at_work=True)
        plan = None if config is None else compare(self.config, config)
        if plan is not None:
            problems += located(self._path, self._overrides, refusals(plan))
        errors = [problem for problem in problems if problem.severity == "error"]
        if config is not None and plan is not None and not errors:
            errors = self._attempt(plan, config)
        for problem in problems:
            if problem.severity == "warning":
                log.warning("event=config.warning problem=%s", problem)
        if config is None or errors:
            for problem in errors:
                log.error("event=config.refused problem=%s", problem)
            self._error = "\n".join(map(str, errors))
            return None
        self.config, self._loaded_at, self._error = config, now_text(), None
        return plan

    def _attempt(self, plan: Plan, config: Config) -> list[Problem]:
        """Change to a config; why it can't be, and then nothing has changed."""
        running, file = self._running, str(self._path)
        try:
            rewire = running.board.refit(fitted_sensors(config))
        except BoardError as error:
            return [Problem(file, None, "sensor", f"{error}; it takes a restart: {RESTART}")]
        producers = {}
        if plan.touches("kafka", "bootstrap_servers") or plan.touches("kafka", "properties"):
            try:
                producers = {
                    role: sink.prepare(config.kafka.bootstrap_servers, kafka_properties(config, role))
                    for role, sink in running.sinks.items()
                }
            except CloudError as error:
                reason = str(error).removeprefix("kafka.properties: ")
                return [*located(self._path, self._overrides, {("kafka", "properties"): reason})]
        if plan.touches("status"):
            try:
                # The last that can fail, for it takes effect at once.
                running.status.listen(config.status)
            except OSError as error:
                reason = f"can't listen on {config.status.listen}: {error.strerror or error}"
                return [*located(self._path, self._overrides, {("status", "listen"): reason})]
        for role, producer in producers.items():
            running.sinks[role].take_over(producer)
        running.state_file.allow(lost_at_most_s(config))
        if plan.forwards or plan.sensors or plan.settings:
            running.forwarder.change(
                lambda: running.intake.adopt(config.kafka.topic, routes(config), sensor_names(config)),
                config.outbox.commit_interval_s,
            )
        running.link.refilter(filters(config))
        for sensor in config.sensors:
            if sensor.name in plan.judged:
                running.supervisor.set_quality(sensor.name, sensor.quality)
        if plan.sensors:
            self._change_sensors(plan, config, rewire)
        return []

    def _change_sensors(self, plan: Plan, config: Config, rewire: Callable[[], None]) -> None:
        running = self._running

        def successors() -> list[Sampler]:
            rewire()
            records = channel_records(config)
            running.last.keep({record.channel for record in records})
            # Now: no old sampler reads any more, no new one yet.
            running.calibrations.adopt(records)
            coming = [sensor for sensor in config.sensors if sensor.name in plan.coming]
            return samplers(coming, running.board, running.mast)

        running.supervisor.replace(plan.leaving, successors)
        running.calibrations.tell()
