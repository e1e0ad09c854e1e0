"""What a command may have a gateway do. Each action returns what its result has, or raises NotDone.

Arguments that an action doesn't know are refused: half a command is another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from cloud.wire.command_records import Command
from cloud.wire.fields import InvalidFields, convert
from gateway.config import Config
from gateway.control.interlocks import Interlocks, NotSwitched
from gateway.status.status import Channel, Status

Action = Callable[[Command], Mapping[str, Any]]
_T = TypeVar("_T")

_LONGEST_FRESH_S: Final = 60.0
_SLOW_READ_S: Final = 10.0
_LOOK_S: Final = 0.1

_LATER: Final = "lasts until the config is loaded again: a reload, a restart"
_TESTED: Final = (
    "uplink", "kafka_problem", "mqtt_connected", "clock", "troubles", "outbox_problem", "parked",
    "sensors_hung", "stuck", "outbox_records",
)  # fmt: skip


class NotDone(Exception):
    """A command that isn't carried out: ``reason`` is a word; ``refused``, or else it failed."""

    def __init__(self, reason: str, detail: str, *, refused: bool = True) -> None:
        super().__init__(detail)
        self.reason = reason
        self.refused = refused


class _Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fresh: bool = False


class _Switch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    state: Literal["on", "off", "normal"]
    for_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 3600.0
    reason: str = ""


class _Interval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    interval_s: float


class _Publish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    payload: Annotated[str, msgspec.Meta(max_length=4096)]


def switch(interlocks: Interlocks) -> Action:
    """A relay on, off or back to what it is without a command; ``for_s`` at most a day, else an hour."""

    def carry_out(command: Command) -> Mapping[str, Any]:
        args = _arguments(command, _Switch)
        on = None if args.state == "normal" else args.state == "on"
        try:
            state = interlocks.command(command.target, on, args.for_s, f"command {command.id}")
        except NotSwitched as error:
            raise NotDone(error.reason, str(error), refused=error.reason != "FAILED") from error
        return {"state": state}

    return carry_out


def read(
    config: Callable[[], Config],
    last: Callable[[], Mapping[str, Channel]],
    stopped: Callable[[float], bool],
    monotonic: Callable[[], float] = time.monotonic,
) -> Action:
    """The last reading of each of a sensor's channels, with its time; ``fresh``: the next one.

    ``stopped`` waits for so many seconds; whether the daemon stops.
    """

    def of(sensor: str) -> dict[str, Channel]:
        readings = last()
        return {name: readings[name] for name in readings if name.rpartition(".")[0] == sensor}

    def next_of(sensor: str, interval_s: float) -> dict[str, Channel]:
        # None is taken off the grid: it would be a second one in its interval.
        if interval_s > _LONGEST_FRESH_S:
            every = f"it is read every {interval_s:g} s, and fresh waits for at most {_LONGEST_FRESH_S:g} s"
            raise NotDone("OUT_OF_BOUNDS", f"{every}: command a shorter interval first")
        before = {name: each.seq for name, each in of(sensor).items()}
        # What is counted comes at the end of the next whole interval.
        until_s = monotonic() + 2 * interval_s + _SLOW_READ_S
        while True:
            now = of(sensor)
            if now and all(each.seq != before.get(name) for name, each in now.items()):
                return now
            if monotonic() >= until_s:
                return {}
            if stopped(_LOOK_S):
                raise NotDone("STOPPING", "the gateway stops", refused=False)

    def carry_out(command: Command) -> Mapping[str, Any]:
        fresh = _arguments(command, _Read).fresh
        sensor = _sensor(config(), command.target)
        interval_s = next(each.interval_s for each in config().sensors if each.name == sensor)
        own = next_of(sensor, interval_s) if fresh else of(sensor)
        if not own:
            missing = "gives no reading" if fresh else "has had no reading yet"
            raise NotDone("NO_READING", f"{sensor} {missing}", refused=False)
        return {"readings": own}

    return carry_out


def interval(config: Callable[[], Config], load: Callable[[Mapping[str, object]], str | None]) -> Action:
    """Another interval of a sensor within the config's bounds, until the config is loaded again."""

    def carry_out(command: Command) -> Mapping[str, Any]:
        wanted_s = _arguments(command, _Interval).interval_s
        sensor, bounds = _sensor(config(), command.target), config().commands
        if not bounds.min_interval_s <= wanted_s <= bounds.max_interval_s:
            allowed = f"{bounds.min_interval_s:g} to {bounds.max_interval_s:g} s"
            raise NotDone("OUT_OF_BOUNDS", f"{wanted_s:g} s: the gateway allows {allowed}")
        _loaded(load({f'sensor."{sensor}".interval_s': wanted_s}))
        return {"interval_s": wanted_s, "lasts": _LATER}

    return carry_out


def reload(load: Callable[[Mapping[str, object]], str | None]) -> Action:
    """Load the gateway's config file again."""

    def carry_out(command: Command) -> Mapping[str, Any]:
        no_arguments(command)
        _loaded(load({}))
        return {}

    return carry_out


def self_test(status: Callable[[], Status]) -> Action:
    """How the gateway's parts are, as its status has it; ``ok`` where none has a problem."""

    def carry_out(command: Command) -> Mapping[str, Any]:
        no_arguments(command)
        found = status()
        tested = {name: getattr(found, name) for name in _TESTED}
        relays = {name: each.problem for name, each in found.relays.items() if each.problem}
        config = [*found.config.problems, *filter(None, [found.config.error])]
        ok = tested["mqtt_connected"] and tested["clock"] == "synced" and not (relays or config)
        faults = ("kafka_problem", "troubles", "outbox_problem", "parked", "sensors_hung", "stuck")
        ok = ok and not any(tested[name] for name in faults)
        return {"ok": ok, **tested, "relays": relays, "config": config}

    return carry_out


def publish(root: str, send: Callable[[str, bytes], bool]) -> Action:
    """A message for another device to the local broker's session, not retained; never below ``root``."""

    def carry_out(command: Command) -> Mapping[str, Any]:
        payload = _arguments(command, _Publish).payload.encode()
        if f"{command.target}/".startswith(f"{root}/"):
            raise NotDone("NOT_ALLOWED", f"{root}/ has the gateway's own topics")
        if not send(command.target, payload):
            raise NotDone("NO_BROKER", "the local broker isn't connected", refused=False)
        return {"bytes": len(payload)}

    return carry_out


def no_arguments(command: Command) -> None:
    """Raises NotDone where there are any."""
    _arguments(command, _Nothing)


def _arguments(command: Command, kind: type[_T]) -> _T:
    try:
        return convert(dict(command.args), kind)
    except InvalidFields as error:
        raise NotDone("BAD_ARGUMENTS", error.detail) from error


def _sensor(config: Config, name: str) -> str:
    names = [sensor.name for sensor in config.sensors]
    if name not in names:
        raise NotDone("UNKNOWN_TARGET", f"there is no sensor {name}; there are {', '.join(names)}"[:300])
    return name


def _loaded(refused: str | None) -> None:
    if refused is not None:
        raise NotDone("CONFIG_REFUSED", refused[:500], refused=False)
