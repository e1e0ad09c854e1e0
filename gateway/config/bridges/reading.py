"""The ``[[forward]]`` and ``[[downlink]]`` tables, and who may publish to ``[http]`` and ``[mqtt_proxy]``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from cloud.toml_models import field_names
from cloud.toml_problems import KeyPath, WrongValue, quote
from cloud.wire.quantities import QUANTITIES
from cloud.wire.reading_records import READING_TOPIC_PREFIX
from gateway.config.bridges.access_files import read_access, read_tokens, read_users
from gateway.config.bridges.model import (
    ALLOWED,
    READING_KEYS,
    STEPS,
    DownlinkConfig,
    ForwardConfig,
    ForwardReading,
    HttpConfig,
    MqttProxyConfig,
    channel_name,
    own_field,
    singles,
)
from gateway.config.kafka import topic_problem
from gateway.config.model import GatewayConfig, KafkaConfig, MqttConfig
from gateway.config.named_files import opens
from gateway.config.source import Source
from gateway.config.values import (
    BRACES,
    EACH,
    PLACEHOLDER,
    is_loopback,
    overlap,
    path_levels,
    topic_filter,
    wildcards,
)

_ANY: Final = frozenset({"filter", "payload", "topic", "key", "steps"})
_OF_JSON: Final = {"path", "time_path", "utc_offset", "optional", "readings"}
_READINGS: Final = frozenset(field_names(ForwardConfig)) - _OF_JSON
PAYLOADS: Final[Mapping[str, frozenset[str]]] = {
    "reading": _ANY,
    "raw": _ANY | {"channel"},
    "number": _READINGS,
    "json": frozenset(field_names(ForwardConfig)),
}
"""The keys that mean something for each payload."""

_T = TypeVar("_T", ForwardConfig, ForwardReading)
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{0,64}", re.ASCII)


def read_forwards(
    source: Source, mqtt: MqttConfig | None, gateway: GatewayConfig | None, kafka: KafkaConfig | None
) -> tuple[ForwardConfig, ...]:
    """The forwards that could be read. Overlapping filters, which would deliver twice, are errors."""
    forwards: list[ForwardConfig] = []
    # (where it stands, filter); the gateway's own topics come first.
    taken: list[tuple[str, str]] = []
    channels: dict[tuple[str, str | None], KeyPath] = {}
    if mqtt is not None and gateway is not None:
        taken.append(("the gateway's own topics", f"{mqtt.topic_root}/{gateway.id}/#"))
    for path, raw in source.tables("forward"):
        _check_overlap(source, (*path, "filter"), raw.get("filter"), taken)
        forward = _read(source, path, raw)
        if forward is not None:
            forward = _with_range(source, forward)
            _check(source, path, forward)
            _check_sources(source, path, forward, channels)
            _check_way(source, path, forward, (kafka or KafkaConfig()).topic)
            forwards.append(forward)
    return tuple(forwards)


def _check_overlap(source: Source, path: KeyPath, given: object, taken: list[tuple[str, str]]) -> None:
    try:
        filter_ = topic_filter(given if isinstance(given, str) else "")
    except WrongValue:
        return
    for owner, other in taken:
        if overlap(filter_, other):
            source.error(path, f"overlaps with {quote(other)} ({owner}): messages would be taken twice")
            break
    taken.append((_table(source, path), filter_))


def _read(source: Source, path: KeyPath, raw: Mapping[str, Any]) -> ForwardConfig | None:
    """One table. One whose payload doesn't exist is judged as if all keys were allowed."""
    payload = raw.get("payload", "reading")
    several = "readings" in raw and payload == "json"
    allowed = PAYLOADS.get(payload, PAYLOADS["json"]) if isinstance(payload, str) else PAYLOADS["json"]
    given = dict(raw)
    for key in PAYLOADS["json"] & given.keys():
        if several and key in READING_KEYS:
            source.error((*path, key), "belongs in each of the readings where there are several")
        elif key not in allowed:
            where = " or ".join(quote(each) for each, keys in PAYLOADS.items() if key in keys)
            source.error((*path, key), f"means nothing for payload = {quote(payload)}, only for {where}")
        else:
            continue
        del given[key]
    return source.model(ForwardConfig, given, path)


def _with_range(source: Source, forward: ForwardConfig) -> ForwardConfig:
    """With the range of a quantity of the config's own, as far as the forward gives none."""

    def ranged(reading: _T) -> _T:
        quantity = source.quantities.get(reading.quantity or "")
        if quantity is None or quantity.name in QUANTITIES:
            return reading
        lower = quantity.lower if reading.min is None else reading.min
        return replace(reading, min=lower, max=quantity.upper if reading.max is None else reading.max)

    readings = forward.readings and tuple(map(ranged, forward.readings))
    return replace(ranged(forward), readings=readings)


def _check(source: Source, path: KeyPath, forward: ForwardConfig) -> None:
    """Keys of a table compared with one another."""
    if forward.readings is not None:
        _check_readings(source, (*path, "readings"), forward, forward.readings)
    elif forward.payload in ("number", "json"):
        if forward.quantity is None:
            source.error((*path, "quantity"), f"is required for payload = {quote(forward.payload)}")
        if forward.payload == "json" and forward.path is None:
            source.error((*path, "path"), 'is required for payload = "json", or readings')
        _check_reading(source, path, forward, forward.time_path)
    if forward.utc_offset is not None and forward.time_path is None:
        source.error((*path, "utc_offset"), "means nothing without time_path")
    if forward.channel is not None:
        _check_channel(source, (*path, "channel"), forward, forward.channel)


def _check_readings(
    source: Source, path: KeyPath, forward: ForwardConfig, readings: tuple[ForwardReading, ...]
) -> None:
    if not readings:
        source.error(path, "must not be empty")
    taken: dict[tuple[str, str | None], int] = {}
    for position, reading in enumerate(readings):
        _check_reading(source, (*path, position), reading, forward.time_path)
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


def _check_reading(
    source: Source, path: KeyPath, reading: ForwardConfig | ForwardReading, time_path: str | None
) -> None:
    each, timed = (EACH in path_levels(one or "") for one in (reading.path, time_path))
    if each and not timed:
        source.error((*path, "path"), 'has a "*", for each reading of an array: time_path must have one, too')
    elif timed and not each and reading.path is not None:
        source.error((*path, "path"), 'must have a "*", as time_path has')
    unit = source.unit_of(reading.quantity or "")
    if unit is not None and reading.unit not in (None, unit):
        source.error(
            (*path, "unit"),
            f"must be {quote(unit)}, the unit of {reading.quantity}, not {quote(reading.unit)}:"
            " scale and offset convert",
        )
    if reading.min is not None and reading.max is not None and reading.min >= reading.max:
        source.error((*path, "max"), f"must be above min, {reading.min:g}, not {reading.max:g}")
    if reading.counter_end is not None and reading.offset:
        source.error((*path, "offset"), "means nothing for what was added: delete it, or counter_end")
    drop = reading.drop_if
    if drop is None:
        return
    if drop.below is None and drop.above is None and drop.equals is None:
        source.error((*path, "drop_if"), "names no condition; there are below, above, equals")
    if drop.below is not None and drop.above is not None and drop.below > drop.above:
        source.error((*path, "drop_if"), "drops every value: below must not be over above")


def _check_channel(source: Source, path: KeyPath, forward: ForwardConfig, template: str) -> None:
    """``shed``, or with what stands for the filter's wildcards: ``shed-{1}``."""
    available = wildcards(forward.filter)
    used = [int(number) for number in PLACEHOLDER.findall(template)]
    fixed = PLACEHOLDER.sub("", template)
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
    elif _reaches_beyond(source, path, forward, template):
        return
    elif not used and available and forward.payload != "raw":
        source.error(
            path,
            f"makes one channel of all the topics that match {quote(forward.filter)}, and a channel has one"
            " source: put {1} into it, or the device's topic into the filter",
        )


def _check_sources(
    source: Source, path: KeyPath, forward: ForwardConfig, channels: dict[tuple[str, str | None], KeyPath]
) -> None:
    """Refuse a channel that another source has for certain; with wildcards the intake sees it."""
    if forward.payload not in ("number", "json") or wildcards(forward.filter):
        return
    for each in tuple(singles(forward)) or (forward,):
        if PLACEHOLDER.search(each.channel or ""):
            continue
        name = channel_name(each, forward.filter) or ""
        first = channels.setdefault((name, each.quantity), path)
        place = path if each.channel is None else (*path, "channel")
        if name in source.names():
            source.error(place, f"{quote(name)} is a sensor's name already")
        elif first != path:
            source.error(
                place,
                f"{quote(f'{name}.{each.quantity}')} is the channel of {_table(source, first)} already:"
                " give each a channel of its own",
            )


def _table(source: Source, path: KeyPath) -> str:
    line = source.line(path)
    return "--set" if line is None else f"line {line}"


def _reaches_beyond(source: Source, path: KeyPath, forward: ForwardConfig, template: str) -> bool:
    """Whether a template names wildcards that the filter doesn't have, which is reported."""
    available = wildcards(forward.filter)
    beyond = [int(number) for number in PLACEHOLDER.findall(template) if not 1 <= int(number) <= available]
    if beyond:
        count = f"{available or 'no'} wildcard{'' if available == 1 else 's'}"
        source.error(path, f"has {{{beyond[0]}}}, but {quote(forward.filter)} has {count}")
    return bool(beyond)


def _check_way(source: Source, path: KeyPath, forward: ForwardConfig, readings: str) -> None:
    """Topic, key and steps; ``readings`` is the template of the readings' topics."""
    raw = forward.payload == "raw"
    for name, others in (("topic", () if raw else ("{quantity}",)), ("key", ("{topic}",))):
        template = getattr(forward, name) or ""
        if wrong := [
            each for each in BRACES.findall(template) if not (PLACEHOLDER.fullmatch(each) or each in others)
        ]:
            known = " and ".join(("{1}, {2} … for the filter's wildcards", *others))
            source.error((*path, name), f"may have {known}, not {wrong[0]}")
        elif not _reaches_beyond(source, (*path, name), forward, template) and name == "topic" and template:
            _check_topic(source, (*path, name), template, readings, raw=raw)
    for position, step in enumerate(forward.steps):
        place, kind = (*path, "steps", position), step.kind
        if kind not in STEPS:
            source.error(place, f"must have one of {', '.join(STEPS)}; each step stands in braces of its own")
        elif kind not in ALLOWED[forward.payload]:
            allowed = ", ".join(ALLOWED[forward.payload])
            source.error(
                (*place, kind),
                f"means nothing for payload = {quote(forward.payload)}, which has only {allowed}",
            )
        elif not raw and (problem := own_field(step.touched)):
            source.error((*place, kind), problem)
        for value in (step.set or {}).values():
            _reaches_beyond(source, (*place, kind), forward, value if isinstance(value, str) else "")


def _check_topic(source: Source, path: KeyPath, template: str, readings: str, *, raw: bool) -> None:
    problem = topic_problem(PLACEHOLDER.sub("x", template), readings, raw=raw)
    if "/" in template or "+" in template:
        source.error(
            path, f"is the topic in Kafka, which has no slashes and wildcards, not {quote(template)}"
        )
    elif problem is not None:
        source.error(path, problem)
    elif (
        not raw
        and readings.startswith(READING_TOPIC_PREFIX)
        and not template.startswith(READING_TOPIC_PREFIX)
    ):
        source.warn(
            path, f"doesn't begin with {READING_TOPIC_PREFIX}: only jobs with --topics store these readings"
        )


def read_downlinks(
    source: Source, own: str | None, forwards: Iterable[ForwardConfig]
) -> tuple[DownlinkConfig, ...]:
    """The downlinks that could be read; ``own`` is the filter of the gateway's topics, if that is known."""
    first: dict[str, KeyPath] = {}
    found = []
    taken = [*([("the gateway's own topics", own)] if own else ())]
    taken += [("a [[forward]], which would send it to Kafka again", each.filter) for each in forwards]
    for path, raw in source.tables("downlink"):
        before = source.errors()
        given = source.model(DownlinkConfig, raw, path)
        if given is None or source.errors() != before:
            continue
        key = (*path, "topic")
        if (known := first.setdefault(given.topic, key)) != key:
            source.error(
                key, f"{quote(given.topic)} is that of a [[downlink]] already: line {source.line(known)}"
            )
        for owner, other in taken:
            if overlap(given.filter, other):
                source.error((*path, "mqtt_topic"), f"may be one of {quote(other)} ({owner})")
                break
        found.append(given)
    return tuple(found)


def check_http(source: Source, given: HttpConfig) -> None:
    """What would let others in, or read along, is an error."""
    _check_listener(source, "http", given, {"tokens": read_tokens})


def check_mqtt_proxy(source: Source, given: MqttProxyConfig) -> None:
    """Checks what ``check_http`` checks."""
    _require_both(source, "mqtt_proxy", given, "passwords", "access")
    plain = None if given.plain else ", or set plain = true on a network of the mast's own"
    _check_listener(source, "mqtt_proxy", given, {"passwords": read_users, "access": read_access}, plain)


def _require_both(source: Source, section: str, given: object, one: str, other: str) -> None:
    if (getattr(given, one) is None) != (getattr(given, other) is None):
        absent = one if getattr(given, one) is None else other
        source.error((section, absent), f"is required: {one} and {other} go together")


def _check_listener(
    source: Source,
    section: str,
    given: HttpConfig | MqttProxyConfig,
    readers: Mapping[str, Callable[[Path], object]],
    plain: str | None = "",
) -> None:
    """Checks who may connect from other machines, and the files that are named, by their ``readers``.

    ``plain`` is what else helps without a certificate; None where none is needed.
    """
    who, place = next(iter(readers)), (section, "listen")
    if given.address is not None and not is_loopback(given.address[0]):
        if getattr(given, who) is None:
            source.error(place, f"lets other machines in: {section}.{' and '.join(readers)} must say which")
        if given.certificate is None and plain is not None:
            remedy = f"give {section}.certificate and key{plain}"
            source.error(place, f"{who} would cross the network in the clear: {remedy}")
    _require_both(source, section, given, "certificate", "key")
    for name in (*readers, "certificate", "key"):
        file: Path | None = getattr(given, name)
        if given.address is None or file is None:
            continue
        if opens(source, (section, name), file) and name in readers:
            try:
                readers[name](file)
            except (OSError, ValueError) as error:
                source.error((section, name), str(error), starts=True)
