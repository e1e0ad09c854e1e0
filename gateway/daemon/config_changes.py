"""What differs between two configs, and whether a running daemon can take it over. Pure.

A file that the config names has changed where its content has. A key that isn't named here as live takes a
restart, so that a new key is never silently ignored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cloud.toml_models import field_names
from cloud.toml_problems import KeyPath, key_text
from gateway.config import Config, SensorConfig
from gateway.config.bridges.model import HttpConfig, MqttProxyConfig
from gateway.config.model import SiteConfig
from gateway.config.outputs import CommandsConfig

RESTART: Final = "systemctl restart fieldgate"

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
