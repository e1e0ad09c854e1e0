"""Which ``[[forward]]`` a topic belongs to, and which channel its readings make.

Pure but for a bounded cache; owned by one thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from paho.mqtt.matcher import MQTTMatcher

from cloud.wire.reading_records import RAW_TOPIC
from gateway.config.bridges.model import RAW_QUANTITY, ForwardConfig, channel_name, singles
from gateway.config.kafka import topic_problem
from gateway.config.values import EACH, filled, matched, path_levels
from gateway.mqtt.steps import Change, apply, compiled, hides

_CACHED_TOPICS: Final = 1024
# A topic may have 64 KiB: longer ones than these are looked up each time, and a channel's source is the
# beginning of one and its hash, which bounds both in bytes.
_MAX_CACHED_CHARS: Final = 256


@dataclass(frozen=True, slots=True)
class Route:
    """How messages of one topic are forwarded.

    ``source`` is the MQTT topic. ``channel`` is ``{name}.{quantity}``, None where the topic gives no name.
    ``topic`` is Kafka's, with {quantity} for readings; ``topic_problem`` is why it can't be one. ``key`` is
    None where it is the reading's. ``changes`` are the steps, ``extra`` the fields that they set in readings
    made here; ``hides``: some of the message must not leave. ``batch``: a message has an array of readings.
    ``sender`` is the level of the topic that the filter's first wildcard stands for: brokers give each device
    topics of its own by it. ``parts`` are the routes of several readings.
    """

    forward: ForwardConfig
    source: str
    name: str | None
    channel: str | None
    topic: str
    topic_problem: str | None
    key: bytes | None
    changes: tuple[Change, ...]
    extra: Mapping[str, Any] | None
    hides: bool
    batch: bool
    sender: str | None
    parts: tuple[Route, ...] = ()


class Routes:
    """Finds a topic's forward. The filters don't overlap: ``check`` refuses that.

    ``readings`` is the template of the readings' topics in Kafka.
    """

    def __init__(self, forwards: Iterable[ForwardConfig], readings: str = "mqtt.{quantity}") -> None:
        self._readings = readings
        self._matcher = MQTTMatcher()  # type: ignore[no-untyped-call]
        for forward in forwards:
            self._matcher[forward.filter] = forward
        self._cached = lru_cache(_CACHED_TOPICS)(self._look_up)

    def find(self, topic: str) -> Route | None:
        """The route of a topic, None where no filter matches it."""
        return self._cached(topic) if len(topic) <= _MAX_CACHED_CHARS else self._look_up(topic)

    def _look_up(self, topic: str) -> Route | None:
        forward = next(self._matcher.iter_match(topic), None)  # type: ignore[no-untyped-call]
        if forward is None:
            return None
        parts = tuple(self._route(single, topic) for single in singles(forward))
        return self._route(forward, topic, parts)

    def _route(self, forward: ForwardConfig, topic: str, parts: tuple[Route, ...] = ()) -> Route:
        wild = matched(forward.filter, topic)

        def fill(template: str) -> str:
            return filled(template, wild).replace("{topic}", topic)

        raw, made_here = forward.payload == "raw", forward.payload in ("number", "json")
        kafka_topic, problem = RAW_TOPIC if raw else self._readings, None
        if forward.topic is not None:
            kafka_topic = filled(forward.topic, wild, slash=".")
            problem = topic_problem(kafka_topic, self._readings, raw=raw)
        extra: dict[str, Any] = {}
        if made_here:
            apply(compiled((step for step in forward.steps if step.set), fill), extra)
        name, quantity = channel_name(forward, topic), RAW_QUANTITY if raw else forward.quantity
        return Route(
            forward=forward,
            source=_source(topic),
            name=name,
            channel=None if name is None or quantity is None else f"{name}.{quantity}",
            topic=kafka_topic,
            topic_problem=problem,
            key=fill(forward.key or "{topic}").encode() if forward.key or raw else None,
            changes=compiled((step for step in forward.steps if not (made_here and step.set)), fill),
            extra=extra or None,
            hides=hides(forward.steps),
            batch=EACH in path_levels(forward.path or ""),
            sender=wild[0].partition("/")[0] if wild else None,
            parts=parts,
        )


def _source(topic: str) -> str:
    """A topic as it is kept for each channel."""
    if len(topic) <= _MAX_CACHED_CHARS:
        return topic
    return f"{topic[:_MAX_CACHED_CHARS]}… (SHA-256 {hashlib.sha256(topic.encode()).hexdigest()})"
