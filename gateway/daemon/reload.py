"""What differs between two configs, and the reload that changes to the new one: all of it, or nothing.

A key that isn't named here as live takes a restart, so that a new key is never silently ignored. A file that
the config names has changed where its content has.

Whatever can fail (the file, the board's wiring, a port, Kafka's properties) is tried before anything changes;
else the old config goes on. The main thread owns ``Reload``; ``compare`` is pure.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from cloud.errors import CloudError
from cloud.toml_models import field_names
from cloud.toml_problems import KeyPath, key_text
from drivers.interface import BoardError
from gateway.calibration.history import channel_records
from gateway.config import Config, Problem, SensorConfig, check, located
from gateway.config.bridges.model import HttpConfig, MqttProxyConfig
from gateway.config.model import SiteConfig
from gateway.config.outputs import CommandsConfig
from gateway.config.source import FileWatch
from gateway.daemon.gateway import Gateway
from gateway.daemon.snapshot import run_counts
from gateway.mqtt import home_assistant
from gateway.mqtt.intake import filters, routes
from gateway.ports import Snapshot
from gateway.reporting.previous_runs import lost_at_most_s
from gateway.reporting.run_ledger import State
from gateway.sampling.sampler import Sampler, fitted_sensors, make_sampler
from gateway.status.findings import RESTART
from gateway.status.service import StatusPage
from gateway.system.host import installed_version
from gateway.system.times import now_text
from gateway.system.watchdog import notify

_SECTIONS: Final = (
    "gateway", "site", "mqtt", "kafka", "uplink", "outbox", "clock", "commands", "http", "mqtt_proxy",
)  # fmt: skip
_LIVE: Final = frozenset(
    {
        ("mqtt", "username"),
        ("mqtt", "password"),
        ("mqtt", "home_assistant"),
        ("kafka", "bootstrap_servers"),
        ("kafka", "topic"),
        ("kafka", "properties"),
        ("kafka", "format"),
        *(("kafka", f"schema_registry_{key}") for key in ("url", "ca", "username", "password")),
        ("outbox", "commit_interval_s"),
        ("status", "listen"),
        ("quantity",),
        ("downlink",),
        *(("site", key) for key in field_names(SiteConfig)),
        *(("commands", key) for key in field_names(CommandsConfig)),
        *(("http", key) for key in field_names(HttpConfig)),
        *(("mqtt_proxy", key) for key in field_names(MqttProxyConfig)),
        # From the next start on, as a run is made then: it keeps no new password waiting.
        ("gateway", "identity_key"),
        # `fieldgate service uplink` reads them when it is run: nothing in the daemon changes.
        ("uplink", "reset_after_h"),
        ("uplink", "reset_command"),
        ("uplink", "reboot_after_h"),
    }
)
_PLACE: Final = frozenset({("gateway", "latitude"), ("gateway", "longitude"), ("gateway", "elevation_m")})
"""Live on a real board, where gpsd's distances count from it; a simulated board's weather is made for it."""


@dataclass(frozen=True, slots=True)
class Names:
    """What came, what went and what is different, by name, in the order of the file."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def summary(self) -> dict[str, list[str]]:
        """Returns what JSON shows: only the kinds of change that there are."""
        return {kind: list(names) for kind, names in dataclasses.asdict(self).items() if names}


@dataclass(frozen=True, slots=True)
class Changes:
    """What a reload has to do. ``settings`` change live; ``restart`` are keys that can't.

    ``quality`` are sensors that continue, by other quality rules.
    """

    sensors: Names
    forwards: Names
    settings: tuple[KeyPath, ...]
    restart: tuple[KeyPath, ...]
    quality: tuple[str, ...] = ()

    def touches(self, *path: str) -> bool:
        """Whether a setting at or under a key changes."""
        return any(setting[: len(path)] == path for setting in self.settings)

    @property
    def ending(self) -> tuple[str, ...]:
        """Sensors whose samplers end."""
        return (*self.sensors.removed, *self.sensors.changed)

    @property
    def starting(self) -> tuple[str, ...]:
        """Sensors that get a new sampler."""
        return (*self.sensors.added, *self.sensors.changed)

    @property
    def refusals(self) -> dict[KeyPath, str]:
        """Why they can't be carried out, by key; empty where they can."""
        return dict.fromkeys(self.restart, f"takes a restart: {RESTART}")

    def summary(self) -> dict[str, Any]:
        """As JSON has it: names only, for values may be secrets."""
        return {
            "sensors": self.sensors.summary(),
            "forwards": self.forwards.summary(),
            "settings": [
                *(key_text(path) for path in self.settings),
                *(key_text(("sensor", name, "quality")) for name in self.quality),
            ],
        }


def compare(old: Config, new: Config) -> Changes:
    """What must be done to get from one config to another."""
    options = old.board.kind == new.board.kind
    before, after = _settings(old, options=options), _settings(new, options=options)
    differing = [path for path, value in after.items() if value != before[path]]
    live = _LIVE if new.board.kind == "simulated" else _LIVE | _PLACE
    old_sensors, new_sensors = ({each.name: each for each in config.sensors} for config in (old, new))
    sensors = _names(_without_quality(old_sensors), _without_quality(new_sensors))
    return Changes(
        sensors,
        _names({each.filter: each for each in old.forwards}, {each.filter: each for each in new.forwards}),
        (*(path for path in differing if path in live), *_renewed(old, new)),
        tuple(path for path in differing if path not in live),
        tuple(name for name in _names(old_sensors, new_sensors).changed if name not in sensors.changed),
    )


def _renewed(old: Config, new: Config) -> list[KeyPath]:
    """The keys of certificates, their keys and tokens that have another content at the same path."""
    return [
        key
        for key, file in new.files.items()
        if (str(key[-1]).endswith("location") or key[0] in ("http", "mqtt_proxy"))
        and key in old.files
        and file != old.files[key]
    ]


def _without_quality(sensors: Mapping[str, SensorConfig]) -> dict[str, SensorConfig]:
    return {name: dataclasses.replace(each, quality={}) for name, each in sensors.items()}


def _names(old: Mapping[str, object], new: Mapping[str, object]) -> Names:
    return Names(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(name for name in new if name in old and new[name] != old[name]),
    )


def _settings(config: Config, *, options: bool) -> dict[KeyPath, object]:
    """Each key with its value, but for sensors and forwards; the board's ``options`` where they compare."""
    sections = {name: getattr(config, name) for name in _SECTIONS}
    if options:
        sections["board"] = config.board.options
    settings: dict[KeyPath, object] = {
        (name, field.name): getattr(section, field.name)
        for name, section in sections.items()
        for field in dataclasses.fields(section)
    }
    settings[("quantity",)], settings[("downlink",)] = config.quantities, config.downlinks
    settings[("actuator",)], settings[("interlock",)] = config.actuators, config.interlocks
    return {**settings, ("status", "listen"): config.status, ("board", "kind"): config.board.kind}


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
        parts, known = self._gateway, self._gateway.in_force.error
        self.requested.clear()
        self._commanded = {} if fresh else dict(before)
        for _, each in waiting:
            self._commanded |= each
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        changes = self.reload()
        if changes is not None:
            summary = changes.summary()
            self.announce_channels()
            log.info("event=daemon.reloaded changes=%s", json.dumps(summary))
            parts.inbox.announce(parts.runs.event("reloaded", **summary))
            state: State = "ended" if parts.samplers.ended else "running"
            parts.inbox.announce(parts.runs.record(state, run_counts(parts)))
        else:
            self._commanded = before
        notify("READY=1")
        error = parts.in_force.error
        if error is not None and not fresh:
            # A command was refused, not the file.
            parts.in_force.error = known
        elif error is not None:
            parts.inbox.announce(parts.runs.event("config-refused", problem=error[:2000]))
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
        old = {(problem.key, problem.message) for problem in in_force.config.problems}
        errors = [
            each for each in problems if each.severity == "error" and (each.key, each.message) not in old
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
