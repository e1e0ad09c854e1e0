"""The time of this boot where no time server sets the clock: entered from a phone, or by a GPS receiver.

A phone's offer is a pair: the phone's time, and the gateway's time since boot that the page received just
before. Neither the system's clock nor a slow network distorts it: its error is at most the time between
that response and the request with the pair, and a pair that is too slow is refused.

A thread of its own reads gpsd once the clock had its chance, and ends when the boot's time is decided, by
whatever decided it. A report has the time of its fix, and comes later by what the receiver and its line take:
of several the quickest counts. The system's clock is not touched.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from queue import SimpleQueue
from typing import Any, Final

from drivers.gpsd import WATCH, GpsdOptions, parse_report
from drivers.interface import LineStream, ReadError
from gateway.config import Config

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


log = logging.getLogger(__name__)

FIRST_NTP_MS: Final = 300_000
"""Since boot: a time server is more exact, and needs no longer where there is one."""
UNCERTAIN_MS: Final = 1_000
"""Of the quickest of ten reports: receivers send one a second, at most that late."""
_AGAIN_S: Final = 60.0
_WAIT_S: Final = 2.5
_REPORTS: Final = 10
_LINES: Final = 200
_SPREAD_MS: Final = 2_000
_EARLIEST_MS: Final = 1_767_225_600_000
"""2026-01-01: a receiver whose count of weeks has rolled over is 1,024 weeks behind."""


class GpsTime:
    """``connect`` reaches gpsd by host and port, ``undecided`` is whether the boot's time is still wanted."""

    def __init__(
        self,
        connect: Callable[[str, int], LineStream],
        receivers: Collection[tuple[str, int]],
        offers: ManualTime,
        undecided: Callable[[], bool],
    ) -> None:
        self._connect = connect
        self._receivers = receivers
        self._offers = offers
        self._undecided = undecided
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gps-time", daemon=True)

    def start(self) -> None:
        """Begin to read, where there is a receiver and the time is wanted."""
        if self._receivers and self._undecided():
            self._thread.start()

    def stop(self) -> None:
        """Read no more; a connection that hangs ends with the process."""
        self._stopping.set()

    def offer(self) -> bool:
        """Offer the first receiver's time that is plausible; whether it was taken."""
        for host, port in self._receivers:
            try:
                with closing(self._connect(host, port)) as stream:
                    offset_ms = self._offset_ms(stream)
                if offset_ms is not None:
                    self._offers.offer(offset_ms, UNCERTAIN_MS, "gps")
                    return True
            except (OSError, ReadError, ValueError) as error:
                log.debug("event=clock.no_gps host=%s port=%d error=%s", host, port, error)
        return False

    def _run(self) -> None:
        wait_s = max(FIRST_NTP_MS - self._offers.boot_ms(), 0) / 1000
        while not self._stopping.wait(wait_s) and self._undecided():
            self.offer()
            wait_s = _AGAIN_S

    def _offset_ms(self, stream: LineStream) -> int | None:
        """Wall time at boot by ten fixes, None where they differ. Raises OSError, ReadError, ValueError."""
        stream.write(WATCH)
        offsets: list[int] = []
        for _ in range(_LINES):
            line = stream.readline(_WAIT_S)
            received_ms = self._offers.boot_ms()
            if not line:
                break
            fix_ms = _fix_ms(parse_report(line) or {})
            if fix_ms is not None:
                offsets.append(fix_ms - received_ms)
            if len(offsets) == _REPORTS:
                return max(offsets) if max(offsets) - min(offsets) <= _SPREAD_MS else None
        return None


def receivers_of(config: Config) -> tuple[tuple[str, int], ...]:
    """Host and port of each gpsd that a sensor reads."""
    options = (sensor.options for sensor in config.sensors)
    return tuple(dict.fromkeys((each.host, each.port) for each in options if isinstance(each, GpsdOptions)))


def _fix_ms(report: Any) -> int | None:
    """When a fix was, ms since the epoch; None without one. Raises ValueError."""
    time = report.get("time")
    if report.get("mode") not in (2, 3) or not isinstance(time, str):
        return None
    fix_ms = round(datetime.fromisoformat(time).timestamp() * 1000)
    return fix_ms if fix_ms >= _EARLIEST_MS else None
