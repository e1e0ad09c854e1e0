"""The ``[[downlink]]`` tables: which Kafka topics are published on the local broker, and where."""

from __future__ import annotations

from collections.abc import Iterable

from cloud.toml_problems import KeyPath, quote
from gateway.config.bridges.model import DownlinkConfig, ForwardConfig
from gateway.config.source import Source
from gateway.config.values import overlap


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
