"""Which rows of the outbox go to Kafka next: one batch at a time, oldest first.

A row is removed only after Kafka has confirmed it; what a batch could not deliver stays and is fetched again.
Pure bookkeeping, owned by the forwarder's thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 256 << 10


class Drain:
    """The batch under way, and where the next one begins."""

    def __init__(self) -> None:
        self._after = 0
        self._fetching = False
        self._open: set[int] = set()
        self._delivered: list[int] = []

    @property
    def busy(self) -> bool:
        """True while a batch is being fetched or is at the sink."""
        return self._fetching or bool(self._open)

    def begin(self) -> int:
        """Start a fetch; the rows after the number it gives are wanted."""
        self._fetching = True
        return self._after

    def fetched(self, numbers: Iterable[int]) -> None:
        """These rows were read; none at all means the end was reached and the next fetch starts over."""
        self._fetching = False
        self._after = max(numbers, default=0)

    def failed(self) -> None:
        """The rows could not be read this time."""
        self._fetching = False

    def sent(self, number: int) -> None:
        """The sink has taken a row."""
        self._open.add(number)

    def outcome(self, number: int, *, delivered: bool) -> tuple[int, ...]:
        """The sink told a row's outcome; the rows to remove once the batch is complete."""
        self._open.discard(number)
        if delivered:
            self._delivered.append(number)
        else:
            # Fetch it again before anything newer.
            self._after = min(self._after, number - 1)
        if self._open:
            return ()
        rows, self._delivered = tuple(self._delivered), []
        return rows
