"""Run ids and sequence numbers, which are issued in one place."""

from __future__ import annotations

import secrets
import threading
from collections import defaultdict

from cloud.wire.identities import proving_run


def new_run(gateway: str = "", key: str | None = None) -> str:
    """A run id, new at every daemon start: 12 hexadecimal digits, and with a key the proof by it."""
    nonce = secrets.token_hex(6)
    return nonce if key is None else proving_run(key, gateway, nonce)


class Sequences:
    """Counts from 1 for each channel of one run. Any thread may draw; numbers are never given twice.

    Outlives drivers and sampler threads, so a restarted one continues where it stopped.
    """

    def __init__(self, run: str = "") -> None:
        self.run = run
        self._last: defaultdict[str, int] = defaultdict(int)
        self._lock = threading.Lock()

    def draw(self, channel: str) -> int:
        """The channel's next number."""
        with self._lock:
            self._last[channel] += 1
            return self._last[channel]

    def last(self, channel: str) -> int:
        """The highest number drawn for a channel, 0 before the first."""
        with self._lock:
            return self._last.get(channel, 0)

    def snapshot(self) -> dict[str, int]:
        """The highest number drawn, for each channel."""
        with self._lock:
            return dict(self._last)
