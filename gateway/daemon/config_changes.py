"""What differs between two configs, and whether a running daemon can take it over. Pure.

A key that isn't named here as live takes a restart, so that a new key is never silently ignored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.config import Config, SensorConfig
from gateway.config.problems import KeyPath, key_text

RESTART: Final = "systemctl restart fieldgate"

_SECTIONS: Final = ("gateway", "mqtt", "kafka", "uplink", "outbox", "clock", "status", "board")
_LIVE: Final = frozenset(
    {
        ("mqtt", "home_assistant"),
        ("mqtt", "home_assistant_prefix"),
        ("kafka", "bootstrap_servers"),
        ("kafka", "topic"),
        ("kafka", "properties"),
        ("outbox", "commit_interval_s"),
        ("status", "listen"),
        # `fieldgate uplink` reads them when it is run: nothing in the daemon changes.
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

    def told(self) -> dict[str, list[str]]:
        """As JSON has it; only what there is."""
        return {kind: list(names) for kind, names in dataclasses.asdict(self).items() if names}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a reload has to do. ``settings`` change live; ``restart`` are keys that can't.

    ``judged`` are sensors that go on as they are, by other quality rules.
    """

    sensors: Names
    forwards: Names
    settings: tuple[KeyPath, ...]
    restart: tuple[KeyPath, ...]
    judged: tuple[str, ...] = ()

    def touches(self, *path: str) -> bool:
        """Whether a setting at or under a key changes."""
        return any(setting[: len(path)] == path for setting in self.settings)

    @property
    def leaving(self) -> tuple[str, ...]:
        """Sensors whose samplers end."""
        return (*self.sensors.removed, *self.sensors.changed)

    @property
    def coming(self) -> tuple[str, ...]:
        """Sensors that get a new sampler."""
        return (*self.sensors.added, *self.sensors.changed)

    def told(self) -> dict[str, Any]:
        """What changes, as JSON has it: names only, for values may be secrets."""
        return {
            "sensors": self.sensors.told(),
            "forwards": self.forwards.told(),
            "settings": [
                *(key_text(path) for path in self.settings),
                *(key_text(("sensor", name, "quality")) for name in self.judged),
            ],
        }


def compare(old: Config, new: Config) -> Plan:
    """What must be done to get from one config to another."""
    differing = list(_differing(old, new))
    live = _LIVE if new.board.kind == "simulated" else _LIVE | _PLACE
    return Plan(
        _names(
            {each.name: _unjudged(each) for each in old.sensors},
            {each.name: _unjudged(each) for each in new.sensors},
        ),
        _names({each.filter: each for each in old.forwards}, {each.filter: each for each in new.forwards}),
        tuple(path for path in differing if path in live),
        tuple(path for path in differing if path not in live),
        _judged_otherwise(old, new),
    )


def refusals(plan: Plan) -> dict[KeyPath, str]:
    """Why a plan can't be carried out, by key; empty where it can."""
    return dict.fromkeys(plan.restart, f"takes a restart: {RESTART}")


def _unjudged(sensor: SensorConfig) -> SensorConfig:
    return dataclasses.replace(sensor, quality={})


def _judged_otherwise(old: Config, new: Config) -> tuple[str, ...]:
    """Sensors of which nothing but the quality rules differs."""
    before = {each.name: each for each in old.sensors}
    return tuple(
        each.name
        for each in new.sensors
        if each.name in before
        and each.quality != before[each.name].quality
        and _unjudged(each) == _unjudged(before[each.name])
    )


def _names(old: Mapping[str, object], new: Mapping[str, object]) -> Names:
    return Names(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(name for name in new if name in old and new[name] != old[name]),
    )


def _differing(old: Config, new: Config) -> Iterator[KeyPath]:
    """Keys with other values, but for sensors and forwards."""
    for name in _SECTIONS:
        before, after = getattr(old, name), getattr(new, name)
        if name == "status":
            if before != after:
                yield (name, "listen")
        elif name == "board":
            yield from _board(before, after)
        else:
            yield from ((name, key) for key in _fields(before, after))


def _board(before: Any, after: Any) -> Iterator[KeyPath]:
    if before.kind != after.kind:
        yield ("board", "kind")
    else:
        yield from (("board", key) for key in _fields(before.options, after.options))


def _fields(before: Any, after: Any) -> list[str]:
    return [
        field.name
        for field in dataclasses.fields(before)
        if getattr(before, field.name) != getattr(after, field.name)
    ]
