"""The ``[[forward]]`` tables: which messages of other devices are taken along, and as what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cloud.wire.schema import UNITS
from gateway.config.keys import field_names, nearest
from gateway.config.model import READING_KEYS, ForwardConfig, ForwardReading, GatewayConfig, MqttConfig
from gateway.config.problems import KeyPath, quote
from gateway.config.source import Source
from gateway.config.suggestions import TWO_BRACKETS
from gateway.config.topic_filters import filter_problem, overlap, wildcards
from gateway.config.validate import validate

_ANY: Final = frozenset({"filter", "payload"})
_READINGS: Final = frozenset(field_names(ForwardConfig)) - {"path", "time_path", "optional", "readings"}
_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "reading": _ANY,
    "raw": _ANY | {"channel"},
    "number": _READINGS,
    "json": frozenset(field_names(ForwardConfig)),
}
"""Which keys mean something for which payload."""

_PLACEHOLDER: Final = re.compile(r"\{([0-9]{1,3})\}")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{0,64}", re.ASCII)
_MAX_PATH: Final = 256


def read_forwards(
    source: Source, mqtt: MqttConfig | None, gateway: GatewayConfig | None
) -> tuple[ForwardConfig, ...] | None:
    """The forwards, or None where one has an error. Overlapping filters would deliver twice."""
    tables = source.raw.get("forward", [])
    if not isinstance(tables, list):
        source.error(("forward",), TWO_BRACKETS.format("forward"))
        return None
    before = len(source.problems)
    forwards: list[ForwardConfig] = []
    # (where it stands, filter); the gateway's own topics come first.
    taken: list[tuple[str, str]] = []
    if mqtt is not None and gateway is not None:
        taken.append(("the gateway's own topics", f"{mqtt.topic_root}/{gateway.id}/#"))
    for position, raw in enumerate(tables):
        path: KeyPath = ("forward", position)
        if not isinstance(raw, dict):
            source.error(path, "must be a table: [[forward]]")
            continue
        _check_filter(source, (*path, "filter"), raw.get("filter"), taken)
        kind = raw.get("payload", "reading")
        keys = _KEYS.get(kind) if isinstance(kind, str) else None
        foreign = () if keys is None else _foreign_keys(source, path, raw, keys)
        known = {key: value for key, value in raw.items() if key not in foreign}
        forward = validate(ForwardConfig, known, path, source.error)
        if forward is not None:
            _check(source, path, forward)
            forwards.append(forward)
    errors = any(problem.severity == "error" for problem in source.problems[before:])
    return None if errors else tuple(forwards)


def _check_filter(source: Source, path: KeyPath, topic_filter: object, taken: list[tuple[str, str]]) -> None:
    if not isinstance(topic_filter, str):
        return
    problem = filter_problem(topic_filter)
    if problem is None:
        for owner, other in taken:
            if overlap(topic_filter, other):
                problem = f"overlaps with {quote(other)} ({owner}): messages would be taken twice"
                break
        line = source.line(path)
        taken.append(("--set" if line is None else f"line {line}", topic_filter))
    if problem is not None:
        source.error(path, problem)


def _foreign_keys(
    source: Source, path: KeyPath, raw: Mapping[str, Any], keys: frozenset[str]
) -> tuple[str, ...]:
    """Known keys that mean nothing for this payload, reported."""
    foreign = tuple(key for key in raw if key in field_names(ForwardConfig) and key not in keys)
    theirs = READING_KEYS if "readings" in raw and "readings" in keys else ()
    foreign += tuple(key for key in raw if key in theirs)
    for key in foreign:
        if key in theirs:
            source.error((*path, key), "belongs in each of the readings where there are several")
            continue
        where = " or ".join(quote(kind) for kind, known in _KEYS.items() if key in known)
        given = quote(raw.get("payload", "reading"))
        source.error((*path, key), f"means nothing for payload = {given}, only for {where}")
    return foreign


def _check(source: Source, path: KeyPath, forward: ForwardConfig) -> None:
    """What can be wrong with a table whose keys have the right types."""
    if forward.readings is not None:
        _check_readings(source, (*path, "readings"), forward, forward.readings)
    elif forward.payload in ("number", "json"):
        if forward.quantity is None:
            source.error((*path, "quantity"), f"is required for payload = {quote(forward.payload)}")
        if forward.payload == "json" and forward.path is None:
            source.error((*path, "path"), 'is required for payload = "json", or readings')
        _check_reading(source, path, forward)
    if forward.payload in ("number", "json"):
        _check_period(source, path, forward)
    _check_path(source, (*path, "time_path"), forward.time_path)
    if forward.channel is not None:
        _check_channel(source, (*path, "channel"), forward, forward.channel)


def _check_readings(
    source: Source, path: KeyPath, forward: ForwardConfig, readings: tuple[ForwardReading, ...]
) -> None:
    if not readings:
        source.error(path, "must not be empty")
    taken: dict[tuple[str, str | None], int] = {}
    for position, reading in enumerate(readings):
        _check_reading(source, (*path, position), reading)
        if reading.channel is not None:
            _check_channel(source, (*path, position, "channel"), forward, reading.channel)
        channel = (reading.quantity, forward.channel if reading.channel is None else reading.channel)
        first = taken.setdefault(channel, position)
        if first != position:
            source.error(
                (*path, position, "quantity"),
                f"{quote(reading.quantity)} is that of readings[{first + 1}] already:"
                " two of one quantity need each a channel of its own",
            )


def _check_reading(source: Source, path: KeyPath, reading: ForwardConfig | ForwardReading) -> None:
    _check_quantity(source, path, reading)
    _check_numbers(source, path, reading)
    _check_path(source, (*path, "path"), reading.path)
    if reading.raw_unit is not None and not (
        reading.raw_unit.isprintable() and 0 < len(reading.raw_unit) <= 64
    ):
        source.error((*path, "raw_unit"), "must be 1 to 64 printable characters")


def _check_path(source: Source, path: KeyPath, place: str | None) -> None:
    if place is not None and ("" in place.split(".") or len(place) > _MAX_PATH):
        source.error(
            path, f'must be keys and positions with dots between, as in "values.0.t", not {quote(place)}'
        )


def _check_quantity(source: Source, path: KeyPath, forward: ForwardConfig | ForwardReading) -> None:
    quantity, unit = forward.quantity, forward.unit
    if quantity is None:
        return
    if quantity not in UNITS:
        source.error(
            (*path, "quantity"),
            f"{quote(quantity)} is no quantity; there are {', '.join(UNITS)}",
            nearest(quantity, UNITS),
        )
    elif unit not in (None, UNITS[quantity]):
        source.error(
            (*path, "unit"),
            f"must be {quote(UNITS[quantity])}, the unit of {quantity}, not {quote(unit)}:"
            " scale and offset convert",
        )


def _check_period(source: Source, path: KeyPath, forward: ForwardConfig) -> None:
    # Readings carry their period in milliseconds.
    milliseconds = forward.period_s * 1000
    if abs(milliseconds - round(milliseconds)) > 1e-6:
        source.error((*path, "period_s"), f"must be whole milliseconds, not {forward.period_s}")


def _check_numbers(source: Source, path: KeyPath, forward: ForwardConfig | ForwardReading) -> None:
    if forward.scale == 0:
        source.error((*path, "scale"), "must not be 0: every value would be the offset")
    if forward.min is not None and forward.max is not None and forward.min >= forward.max:
        source.error((*path, "max"), f"must be above min, {forward.min:g}, not {forward.max:g}")
    drop = forward.drop_if
    if drop is None:
        return
    if drop.below is None and drop.above is None and drop.equals is None:
        source.error((*path, "drop_if"), "names no condition; there are below, above, equals")
    if drop.below is not None and drop.above is not None and drop.below > drop.above:
        source.error((*path, "drop_if"), "drops every value: below must not be over above")


def _check_channel(source: Source, path: KeyPath, forward: ForwardConfig, template: str) -> None:
    """``shed``, or with what stands for the filter's wildcards: ``shed-{1}``."""
    available = wildcards(forward.filter)
    used = [int(number) for number in _PLACEHOLDER.findall(template)]
    fixed = _PLACEHOLDER.sub("", template)
    if template == "" or _NAME.fullmatch(fixed) is None:
        source.error(
            path,
            "must be 1 to 64 letters, digits, underscores and hyphens, with {1}, {2} … for the filter's"
            f" wildcards, not {quote(template)}",
        )
    elif used and forward.payload == "raw":
        source.error(
            path, 'can\'t have placeholders for payload = "raw", whose messages are counted together'
        )
    elif beyond := [number for number in used if not 1 <= number <= available]:
        source.error(path, f"has {{{beyond[0]}}}, but {quote(forward.filter)} has {_count(available)}")
    elif not used and fixed in _names(source) and forward.payload != "raw":
        source.error(path, f"{quote(fixed)} is a sensor's name already")
    elif not used and available and forward.payload != "raw":
        source.warn(path, f"makes one channel of all the topics that match {quote(forward.filter)}")


def _names(source: Source) -> Iterable[str]:
    return [name for name in source.sensor_names() if name is not None]


def _count(wildcards_: int) -> str:
    return f"{wildcards_ or 'no'} wildcard{'' if wildcards_ == 1 else 's'}"
