"""How long each step on the way to Kafka may take; when the outbox is sent, if the uplink is metered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

# The share of the commit interval that Kafka is given to confirm a message before it is stored.
_PATIENCE: Final = 0.5
# What is stored in any case waits this share of the interval, so that fsync comes within the interval.
_STORE_ANYWAY: Final = 0.9
# A metered link may take its time: nothing waits for it, since all is on disk by then.
_METERED_VERDICT_S: Final = 30.0

METERED_PROPERTIES: Final[Mapping[str, str]] = {
    # A batch reaches the producer within milliseconds: waiting costs nothing, each further request does.
    "linger.ms": "1000",
    "compression.level": "12",
    # Half the default's requests for metadata, which no one needs while topics stay.
    "topic.metadata.refresh.interval.ms": "600000",
}
"""librdkafka properties for the producer of a metered uplink's batches."""


@dataclass(frozen=True, slots=True)
class Pace:
    """``batch_s`` is how often a metered uplink sends what is stored; None where readings go out live."""

    commit_interval_s: float
    batch_s: float | None = None

    @property
    def metered(self) -> bool:
        """Whether readings go through the outbox and leave in batches."""
        return self.batch_s is not None

    def store_after_s(self, *, answering: bool) -> float:
        """How long a message may be unconfirmed before it is stored."""
        wait_for_kafka = answering and not self.metered
        return (_PATIENCE if wait_for_kafka else _STORE_ANYWAY) * self.commit_interval_s

    @property
    def verdict_s(self) -> float:
        """After how long without a delivery report Kafka is silent."""
        return _METERED_VERDICT_S if self.metered else _PATIENCE * self.commit_interval_s


class Batches:
    """When rows of the outbox may be fetched, and which of them are late.

    Live: at any time, and each row is late, or it would not be there. Metered: a pass over the outbox every
    ``batch_s``; late is what an earlier pass has left.
    """

    def __init__(self, batch_s: float | None) -> None:
        self._batch_s = batch_s
        self._due_s = float("-inf")
        self._open = False
        self._newest = 0
        self._newest_at_pass = 0
        self._late_up_to: float = float("inf")

    def stored(self, numbers: Sequence[int]) -> None:
        """Rows were stored under these numbers, which grow."""
        if self._batch_s is None or not numbers:
            return
        if self._late_up_to == float("inf"):
            # What was there before this process began.
            self._late_up_to = self._newest_at_pass = numbers[0] - 1
        self._newest = numbers[-1]

    def is_late(self, number: int) -> bool:
        """Whether a row has missed the batch it belonged to."""
        return number <= self._late_up_to

    def wake_s(self) -> float:
        """When rows may be fetched (monotonic)."""
        return float("-inf") if self._batch_s is None or self._open else self._due_s

    def tick(self, now_s: float) -> None:
        """A pass begins where one is due, whether or not the last one has come to its end."""
        if self._batch_s is None or now_s < self._due_s:
            return
        if self._due_s == float("-inf"):
            self._due_s = now_s
        # On a grid, so that a slow batch doesn't make all the following ones later.
        self._due_s += (1 + (now_s - self._due_s) // self._batch_s) * self._batch_s
        self._open = True
        if self._newest:
            self._late_up_to, self._newest_at_pass = self._newest_at_pass, self._newest

    def end(self) -> None:
        """The pass has come to the newest row."""
        self._open = False
