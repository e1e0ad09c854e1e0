"""Which filters the broker's session of this gateway has, kept beside the outbox.

The broker sends what it retains with each SUBSCRIBE, and we subscribe at each connect, since a broker may
restore an older session. Retained messages of a filter that the session had before are therefore no news:
forwarded again at each connect they would be readings twice. A filter is *settled* once all that was retained
has been acknowledged; until then retained messages are news, though the connection breaks in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from paho.mqtt.client import topic_matches_sub

from gateway.ports import Snapshot
from gateway.system.atomic_file import read_state, write_state

_Filters = dict[Annotated[str, msgspec.Meta(min_length=1)], bool]


class Subscriptions:
    """``wanted`` are the filters of the config in force. Owned by the loop, but for ``tick``."""

    def __init__(self, path: Path, wanted: Iterable[str]) -> None:
        self._path = path
        self.wanted = tuple(wanted)
        # By filter of the session, whether it is settled.
        self._held: Mapping[str, bool] = read_state(
            path, lambda stored: msgspec.convert(stored["filters"], _Filters), {}
        )
        self._stored = self._held
        self._news: tuple[str, ...] = ()

    def request(self) -> list[str]:
        """What is wanted is requested now; the filters to end, which an earlier config had."""
        self._news = tuple(each for each in self.wanted if not self._held.get(each))
        return sorted(self._held.keys() - set(self.wanted))

    def session_lost(self) -> None:
        """The broker has no session of ours any more."""
        self._held = {}

    def accepted(self) -> None:
        """The broker has all that is wanted, and nothing else."""
        self._held = {each: self._held.get(each, False) for each in self.wanted}

    def settled(self) -> None:
        """All that was retained has come and is acknowledged."""
        if self._news:
            self._held, self._news = dict.fromkeys(self._held, True), ()

    def is_news(self, topic: str) -> bool:
        """Whether a retained message may be one that was not taken before."""
        return any(topic_matches_sub(each, topic) for each in self._news)

    def tick(self, _snapshot: Snapshot) -> None:
        """Store what the session has; the main thread calls, as the loop must not wait for a disk."""
        held = self._held
        if held != self._stored and write_state(self._path, {"filters": held}):
            self._stored = held
