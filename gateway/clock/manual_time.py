"""The time entered from a phone, on its way from the status page to the main loop; and a GPS receiver's.

A phone's offer is a pair: the phone's time, and the gateway's time since boot that the page received just
before. Neither the system's clock nor a slow network distorts it: its error is at most the time between
that response and the request with the pair, and a pair that is too slow is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final

SLOWEST_MS: Final = 2_000
"""The largest error of a pair."""
# The main loop turns once a second.
_ANSWER_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class TimeOffer:
    """A boot's wall time at its beginning, ms since the epoch, wrong by at most ``uncertain_ms``.

    ``source`` is who gives it, "phone" or "gps". ``accepted`` gets None, or ValueError with the reason of a
    refusal.
    """

    offset_ms: int
    uncertain_ms: int
    source: str = "phone"
    accepted: Future[None] = field(default_factory=Future)


class ManualTime:
    """Any thread offers; the main loop answers. ``boot_ns`` is the time since boot."""

    def __init__(self, boot_ns: Callable[[], int]) -> None:
        self._boot_ns = boot_ns
        self._waiting: SimpleQueue[TimeOffer] = SimpleQueue()

    def boot_ms(self) -> int:
        """Time since boot, which a page sends back with its own time."""
        return self._boot_ns() // 1_000_000

    def give(self, time_ms: int, asked_boot_ms: int) -> None:
        """Offer a time and wait for acceptance. Raises ValueError with the reason of a refusal."""
        slow_ms = self.boot_ms() - asked_boot_ms
        if not 0 <= slow_ms <= SLOWEST_MS:
            raise ValueError(f"the network was too slow to carry a time ({slow_ms} ms): try again")
        self.offer(time_ms - asked_boot_ms, slow_ms, "phone")

    def offer(self, offset_ms: int, uncertain_ms: int, source: str) -> None:
        """Offer a boot's offset and wait for acceptance. Raises ValueError with the reason of a refusal."""
        offer = TimeOffer(offset_ms, uncertain_ms, source)
        self._waiting.put(offer)
        try:
            offer.accepted.result(_ANSWER_S)
        except TimeoutError as error:
            reason = "the gateway is busy: check whether its clock is set now, then try again"
            raise ValueError(reason) from error

    def take(self) -> Iterator[TimeOffer]:
        """The offers that wait; each must be answered."""
        while not self._waiting.empty():
            yield self._waiting.get()
