"""The commented config that ``fieldgate init`` writes: every key with unit, bounds, default and a sentence.

Made of the same annotations that validate a config. What has a default is commented out, as it stands; what
is required and wasn't given is a placeholder, which ``fieldgate check`` names until it is filled in.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt

from cloud.toml_models import Key, keys_of, parts_of
from cloud.toml_problems import show
from drivers.boards.registry import BOARDS
from drivers.driver_type import OptionError
from drivers.option_docs import Meaning
from drivers.registry import driver_type
from gateway.config.model import GIB, SECTIONS, ClockConfig, GatewayConfig, SensorCommon
from gateway.config.source import PLACEHOLDER
from gateway.config.wiring import DEFAULT_KIND

_HEAD: Final = """\
# A gateway of fieldgate. Lines that begin with #key = are defaults: take the # away to change one.
# Whether all is right: fieldgate check -c FILE
# Keys of relays, of other devices, of quantities of your own: fieldgate schema --keys
"""
_KERNEL: Final = next(
    dataclasses.replace(key, default="kernel") for key in keys_of(ClockConfig) if key.name == "trust"
)
"""Its default on a Raspberry Pi, which has no clock of its own."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One sensor to write: its name, its driver and the keys that were given."""

    name: str
    driver: str
    given: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answers:
    """The gateway's id and board, its sensors, and keys of sections that were given, by section."""

    gateway_id: str
    board: str
    sensors: Sequence[Wanted] = ()
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def render(answers: Answers) -> str:
    """The file's text. Raises DriverError where a sensor's driver isn't there or is broken."""
    needed = any(_needs_position(sensor) for sensor in answers.sensors)
    position = dict.fromkeys(("latitude", "longitude"), PLACEHOLDER) if needed else {}
    given = dict(answers.given)
    given["gateway"] = {**position, **given.get("gateway", {}), "id": answers.gateway_id}
    if answers.board == DEFAULT_KIND:
        given["kafka"] = {"bootstrap_servers": f"{PLACEHOLDER}:9092", **given.get("kafka", {})}
    blocks = [_HEAD]
    for name, kind in SECTIONS.items():
        keys = keys_of(kind)
        if name == "clock" and answers.board == DEFAULT_KIND:
            keys = tuple(_KERNEL if key.name == "trust" else key for key in keys)
        lines = key_lines(keys, given.get(name, {}))
        blocks.append("\n".join((f"# {kind.__doc__}", f"[{name}]", *lines)))
    choice = f"# {' or '.join(map(toml, BOARDS))}", f"kind = {toml(answers.board)}"
    own = key_lines(keys_of(BOARDS[answers.board]), {})
    blocks.append("\n".join(("# What the sensors are wired to.", "[board]", *choice, *own)))
    blocks += ["\n".join(_sensor(sensor)) for sensor in answers.sensors]
    return "\n\n".join(blocks).replace("\n\n\n", "\n\n") + "\n"


def comment(key: Key) -> str:
    """What a key means, its unit and bounds, and its default where it has one."""
    facts = "; ".join(filter(None, (key.meaning.unit, bounds(key))))
    return (key.meaning.text or key.name) + (f" [{facts}]" if facts else "")


def bounds(key: Key) -> str:
    """``0.1 to 3600``, ``"live" or "metered"``; empty where anything goes."""
    # A key's own come before its type's.
    low = high = ""
    for each in parts_of(key.hint):
        match each:
            case Ge(limit):
                low = low or f"from {figure(key.name, limit)}"
            case Gt(limit):
                low = low or f"above {figure(key.name, limit)}"
            case Le(limit) | Lt(limit):
                high = high or f"to {figure(key.name, limit)}"
            case _ if get_origin(each) is Literal:
                return " or ".join(toml(choice) for choice in get_args(each))
    both = " ".join(filter(None, (low, high)))
    return both.removeprefix("from ") if low and high else both


def toml(value: object) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | date):
        return str(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml(each) for each in value)}]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return toml({each.name: getattr(value, each.name) for each in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{key} = {_address(key, each)}" for key, each in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    return json.dumps(str(value), ensure_ascii=False)


def _sensor(sensor: Wanted) -> Iterator[str]:
    known = driver_type(sensor.driver)
    yield "[[sensor]]"
    keys = {key.name: key for key in keys_of(SensorCommon)}
    shortest = max(1.0, known.min_interval_s)
    least = Meaning(f"one reading each so often, at least {show(known.min_interval_s)}", "s")
    keys["interval_s"] = dataclasses.replace(keys["interval_s"], default=shortest, meaning=least)
    given = {"name": sensor.name, "driver": sensor.driver, **sensor.given}
    first = [keys.pop(name) for name in ("name", "driver")]
    yield from key_lines([*first, *keys_of(known.options), *keys.values()], given)


def key_lines(keys: Sequence[Key], given: Mapping[str, Any]) -> Iterator[str]:
    """Each key with its comment, and what was given, its default or a placeholder."""
    for key in keys:
        yield f"# {comment(key)}"
        if key.name in given:
            yield f"{key.name} = {_address(key.name, given[key.name])}"
        elif key.required:
            yield f"{key.name} = {toml(PLACEHOLDER)}"
        elif key.default in (None, {}):
            yield f"#{key.name} ="
        else:
            yield f"#{key.name} = {_default(key)}"


def _default(key: Key) -> str:
    if key.meaning.unit == "bytes" and isinstance(key.default, int):
        return toml(f"{key.default >> 30}GiB" if key.default % GIB == 0 else f"{key.default >> 20}MiB")
    return _address(key.name, key.default)


def _address(name: str, value: object) -> str:
    return hex(value) if name == "address" and isinstance(value, int) else toml(value)


def figure(name: str, limit: Any) -> str:
    """A bound as people write it: ``0x48``, ``16 MiB``, ``0.1``."""
    if name == "address":
        return f"0x{limit:02x}"
    if isinstance(limit, int) and limit >= 1 << 20 and limit % (1 << 20) == 0:
        return f"{limit >> 50} PiB" if limit >= 1 << 50 else f"{limit >> 20} MiB"
    return show(limit)


def _needs_position(sensor: Wanted) -> bool:
    """Whether a driver refuses a gateway without a position."""
    known = driver_type(sensor.driver)
    if any(key.required for key in keys_of(known.options)) or {"latitude", "longitude"} <= set(sensor.given):
        return False
    try:
        known.settle(known.options(), GatewayConfig("mast"))
    except OptionError:
        return True
    return False
