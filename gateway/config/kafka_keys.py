"""The ``[kafka]`` section's own rules: topic template, format, and librdkafka properties by dotted name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway.config.problems import KeyPath, quote
from gateway.config.source import Source
from gateway.config.units import check_servers

_PLACEHOLDER: Final = re.compile(r"\{[^}]*\}?")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_TOPIC_MAX: Final = 249

_DURABILITY = "the gateway sets it: without it a reading could be lost or stored twice unnoticed"
_PARTITIONER = "the gateway sets it (murmur2_random, as Java's): else a channel would change its partition"
_SERVERS = "belongs into kafka.bootstrap_servers"
REFUSED: Final[Mapping[str, str]] = {
    "acks": _DURABILITY,
    "request.required.acks": _DURABILITY,
    "enable.idempotence": _DURABILITY,
    "enable.gapless.guarantee": _DURABILITY,
    "partitioner": _PARTITIONER,
    "bootstrap.servers": _SERVERS,
    "metadata.broker.list": _SERVERS,
}
"""Properties of librdkafka that aren't the operator's to set, and why."""


def prepare(source: Source, raw: dict[str, Any]) -> None:
    """Check the section's texts; flatten ``properties``, so that dotted and quoted keys are equal."""
    servers = raw.get("bootstrap_servers")
    if isinstance(servers, str):
        try:
            check_servers(servers)
        except ValueError as error:
            source.error(("kafka", "bootstrap_servers"), str(error))
    topic = raw.get("topic")
    if isinstance(topic, str):
        problem = _topic_problem(topic)
        if problem is not None:
            source.error(("kafka", "topic"), problem)
    if raw.get("format") == "avro":
        source.error(("kafka", "format"), '"avro" comes with a later version; this one knows "json"')
        del raw["format"]
    properties = raw.get("properties")
    if isinstance(properties, dict):
        raw["properties"] = _flatten(source, properties)


def _topic_problem(topic: str) -> str | None:
    for placeholder in _PLACEHOLDER.findall(topic):
        if placeholder != "{quantity}":
            return f"knows {{quantity}} only, not {placeholder}"
    bare = topic.replace("{quantity}", "q")
    if _TOPIC.fullmatch(bare) is None or bare in (".", ".."):
        return f"must be 1 to {_TOPIC_MAX} letters, digits, dots, underscores and hyphens"
    return None


def _flatten(source: Source, properties: Mapping[str, Any]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for path, value in _leaves(properties, ("kafka", "properties")):
        name = ".".join(str(part) for part in path[2:])
        if name in REFUSED:
            source.error(path, f"can't be set: {REFUSED[name]}")
        elif name in flat:
            source.error(path, f"{name} is given twice, dotted and quoted")
        elif isinstance(value, str | int | float):
            flat[name] = str(value).lower() if isinstance(value, bool) else str(value)
            problem = _property_problem(name, flat[name])
            if problem is not None:
                source.error(path, problem)
        else:
            source.error(path, f"must be a string, a number, true or false, not {quote(value)}")
    return flat


def _property_problem(name: str, value: str) -> str | None:
    # Here: it takes librdkafka in, and most configs have no properties.
    from cloud.inspection import property_problem

    return property_problem(name, value)


def _leaves(table: Mapping[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value
