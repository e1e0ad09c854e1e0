"""Which ``[[forward]]`` a topic belongs to, and which channel its readings make.

Pure but for a bounded cache; owned by one thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from paho.mqtt.matcher import MQTTMatcher

from cloud.wire.reading_records import RAW_TOPIC
from gateway.config.bridges.model import READING_KEYS, ForwardConfig
from gateway.config.kafka import topic_problem
from gateway.config.values import filled, matched
from gateway.mqtt.steps import Change, apply, compiled, hides

RAW_QUANTITY: Final = "raw"
"""What stands for the quantity in the channel of a message that is forwarded as it is."""

_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_MAX_NAME: Final = 128
_CACHED_TOPICS: Final = 1024
# A topic may have 64 KiB: longer ones than these are looked up each time, which bounds the cache in bytes.
_MAX_CACHED_CHARS: Final = 256


@dataclass(frozen=True, slots=True)
class Route:
    """How messages of one topic are forwarded.

    ``channel`` is ``{name}.{quantity}``, None where the topic gives no name. ``topic`` is Kafka's, with
    {quantity} for readings; ``topic_problem`` is why it can't be one. ``key`` is None where it is the
    reading's. ``changes`` are the steps, ``extra`` the fields that they set in readings made here;
    ``hides``: some of the message must not leave. ``parts`` are the routes of several readings.
    """

    forward: ForwardConfig
    name: str | None
    channel: str | None
    topic: str
    topic_problem: str | None
    key: bytes | None
    changes: tuple[Change, ...]
    extra: Mapping[str, Any] | None
    hides: bool
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
        parts = tuple(self._route(single, topic) for single in _singles(forward))
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
        name, quantity = _channel_name(forward, topic, wild), RAW_QUANTITY if raw else forward.quantity
        return Route(
            forward=forward,
            name=name,
            channel=None if name is None or quantity is None else f"{name}.{quantity}",
            topic=kafka_topic,
            topic_problem=problem,
            key=fill(forward.key or "{topic}").encode() if forward.key or raw else None,
            changes=compiled((step for step in forward.steps if not (made_here and step.set)), fill),
            extra=extra or None,
            hides=hides(forward.steps),
            parts=parts,
        )


def _singles(forward: ForwardConfig) -> Iterator[ForwardConfig]:
    """A forward of several readings as one forward for each; none for any other."""
    for each in forward.readings or ():
        channel = forward.channel if each.channel is None else each.channel
        keys = {key: getattr(each, key) for key in READING_KEYS}
        yield replace(forward, readings=None, channel=channel, **keys)


def _channel_name(forward: ForwardConfig, topic: str, wild: list[str]) -> str | None:
    """The first half of a channel: the template filled in, or else the topic; None where none comes of it.

    Raw messages of one forward are counted together, so that topics without end make one channel only.
    """
    if forward.payload == "raw":
        plain = [level for level in forward.filter.split("/") if level not in ("+", "#", "")]
        name = (forward.channel or "-".join(plain) or RAW_QUANTITY)[:_MAX_NAME]
    elif forward.channel is None:
        name = topic.replace("/", "-")
    else:
        name = filled(forward.channel, wild, slash="-")
    name = _NOT_IN_A_NAME.sub("_", name)
    return name if 0 < len(name) <= _MAX_NAME else None
