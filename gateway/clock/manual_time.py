"""The time that somebody at the mast gives from a phone, on its way from a web page to the main loop.

What is given is a pair: the phone's time, and the gateway's time since boot that the phone was told just
before. So neither the system's clock nor a slow network gets into it: the pair is wrong by no more than
passed between that answer and the request that brings it back, and too slow a pair is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Final

SLOWEST_MS: Final = 2_000
"""The most that a pair may be wrong by."""
# The main loop comes round each second.
_ANSWER_S: Final = 10.0


class TimeOffer:
    """A boot's wall time at its beginning, ms since the epoch, wrong by at most ``uncertain_ms``."""

    def __init__(self, offset_ms: int, uncertain_ms: int) -> None:
        self.offset_ms = offset_ms
        self.uncertain_ms = uncertain_ms
        self._answered = threading.Event()
        self._refusal: str | None = None

    def answer(self, refusal: str | None) -> None:
        """Tell the giver: None is thanks."""
        self._refusal = refusal
        self._answered.set()

    def wait(self) -> None:
        """Until it is taken. Raises ValueError with the reason where it isn't."""
        if not self._answered.wait(_ANSWER_S):
            raise ValueError("the gateway is busy: look whether its clock is set now, then try again")
        if self._refusal is not None:
            raise ValueError(self._refusal)


class ManualTime:
    """Any thread gives; the main loop takes. ``boot_ns`` is the time since boot."""

    def __init__(self, boot_ns: Callable[[], int]) -> None:
        self._boot_ns = boot_ns
        self._waiting: SimpleQueue[TimeOffer] = SimpleQueue()

    def boot_ms(self) -> int:
        """What a phone is told, to bring back with its own time."""
        return self._boot_ns() // 1_000_000

    def give(self, time_ms: int, asked_boot_ms: int) -> None:
        """Wait until the main loop has taken it. Raises ValueError with the reason where it doesn't."""
        slow_ms = self.boot_ms() - asked_boot_ms
        if not 0 <= slow_ms <= SLOWEST_MS:
            raise ValueError(f"the network was too slow to carry a time ({slow_ms} ms): try again")
        gift = TimeOffer(time_ms - asked_boot_ms, slow_ms)
        self._waiting.put(gift)
        gift.wait()

    def take(self) -> Iterator[TimeOffer]:
        """Those that wait; each must be answered."""
        while True:
            try:
                yield self._waiting.get_nowait()
            except Empty:
                return
