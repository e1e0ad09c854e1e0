"""The ``[[forward]]`` tables: which messages of other devices are taken along."""

from __future__ import annotations

from gateway.config.model import ForwardConfig, GatewayConfig, MqttConfig
from gateway.config.problems import quote
from gateway.config.source import Source
from gateway.config.topic_filters import filter_problem, overlap
from gateway.config.validate import validate

_LATER = frozenset({"number", "json", "raw"})


def read_forwards(
    source: Source, mqtt: MqttConfig | None, gateway: GatewayConfig | None
) -> tuple[ForwardConfig, ...] | None:
    """The forwards, or None where one has an error. Overlapping filters would deliver twice."""
    tables = source.raw.get("forward", [])
    if not isinstance(tables, list):
        source.error(("forward",), "must be an array of tables: [[forward]]")
        return None
    before = len(source.problems)
    forwards: list[ForwardConfig] = []
    # (where it stands, filter); the gateway's own topics come first.
    taken: list[tuple[str, str]] = []
    if mqtt is not None and gateway is not None:
        taken.append(("the gateway's own topics", f"{mqtt.topic_root}/{gateway.id}/#"))
    for position, raw in enumerate(tables):
        path = ("forward", position)
        if not isinstance(raw, dict):
            source.error(path, "must be a table: [[forward]]")
            continue
        rewritten = dict(raw)
        if rewritten.get("payload") in _LATER:
            source.error(
                (*path, "payload"),
                f'{quote(raw["payload"])} comes with a later version; this one knows "reading"',
            )
            del rewritten["payload"]
        topic_filter = raw.get("filter")
        if isinstance(topic_filter, str):
            problem = filter_problem(topic_filter)
            if problem is None:
                for owner, other in taken:
                    if overlap(topic_filter, other):
                        problem = f"overlaps with {quote(other)} ({owner}): messages would be taken twice"
                        break
                line = source.line((*path, "filter"))
                taken.append(("--set" if line is None else f"line {line}", topic_filter))
            if problem is not None:
                source.error((*path, "filter"), problem)
        forward = validate(ForwardConfig, rewritten, path, source.error)
        if forward is not None:
            forwards.append(forward)
    return tuple(forwards) if len(source.problems) == before else None
