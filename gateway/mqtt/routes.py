"""Which ``[[forward]]`` a topic belongs to, and which channel its readings make.

Pure but for a bounded cache; owned by one thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from paho.mqtt.matcher import MQTTMatcher

from gateway.config.model import READING_KEYS, ForwardConfig

RAW_QUANTITY: Final = "raw"
"""What stands for the quantity in the channel of a message that is forwarded as it is."""

_PLACEHOLDER: Final = re.compile(r"\{([0-9]{1,3})\}")
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_MAX_NAME: Final = 128
_CACHED_TOPICS: Final = 1024
# A topic may have 64 KiB: longer ones than these are looked up each time, which bounds the cache in bytes.
_MAX_CACHED_CHARS: Final = 256


@dataclass(frozen=True, slots=True)
class Route:
    """How messages of one topic are forwarded; ``name`` is None where the topic gives no channel's name.

    ``parts`` are the routes of the single readings where a message makes several, else none.
    """

    forward: ForwardConfig
    name: str | None
    parts: tuple[Route, ...] = ()

    @property
    def channel(self) -> str | None:
        """``{name}.{quantity}``."""
        quantity = RAW_QUANTITY if self.forward.payload == "raw" else self.forward.quantity
        return None if self.name is None or quantity is None else f"{self.name}.{quantity}"


class Routes:
    """Finds a topic's forward. The filters don't overlap: ``check`` refuses that."""

    def __init__(self, forwards: Iterable[ForwardConfig]) -> None:
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
        parts = (Route(single, _channel_name(single, topic)) for single in _singles(forward))
        return Route(forward, _channel_name(forward, topic), tuple(parts))


def _singles(forward: ForwardConfig) -> Iterator[ForwardConfig]:
    """A forward of several readings as one forward for each; none for any other."""
    for each in forward.readings or ():
        channel = forward.channel if each.channel is None else each.channel
        keys = {key: getattr(each, key) for key in READING_KEYS}
        yield replace(forward, readings=None, channel=channel, **keys)


def _channel_name(forward: ForwardConfig, topic: str) -> str | None:
    """The first half of a channel: the template filled in, or else the topic; None where none comes of it.

    Raw messages of one forward are counted together, so that topics without end make one channel only.
    """
    if forward.payload == "raw":
        plain = [level for level in forward.filter.split("/") if level not in ("+", "#", "")]
        name = (forward.channel or "-".join(plain) or RAW_QUANTITY)[:_MAX_NAME]
    elif forward.channel is None:
        name = topic.replace("/", "-")
    else:
        # What stands in the topic where its filter has wildcards; # takes all levels left, with hyphens.
        levels = topic.split("/")
        wild = [
            levels[depth] if level == "+" else "-".join(levels[depth:])
            for depth, level in enumerate(forward.filter.split("/"))
            if level in ("+", "#")
        ]
        name = _PLACEHOLDER.sub(lambda found: wild[int(found[1]) - 1], forward.channel)
    name = _NOT_IN_A_NAME.sub("_", name)
    return name if 0 < len(name) <= _MAX_NAME else None
