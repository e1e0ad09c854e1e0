"""What is live: one consumer of Kafka for all pages, which belongs to no group and commits nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Final

from cloud.backoff import Backoff
from cloud.errors import CloudError
from cloud.kafka.topic_scan import Latest, Shown, Tail
from cloud.lake.reader import is_named

log = logging.getLogger(__name__)

SINCE_S: Final = 60.0
"""How far back each opening begins: what has come twice is counted once."""
_TURN_S: Final = 0.5
_TURNS: Final = 1200
"""After so many it is opened anew, some ten minutes: topics may have come."""
_STEADY: Final = 20
"""After so many without an error the next one is another one's beginning."""
_PAUSES_S: Final = (2.0, 30.0)
_ENDING_S: Final = 10.0


class LiveReadings(threading.Thread):
    """The newest readings of all masts. Any thread may ask.

    ``problem``: since when nothing comes and why, None while Kafka answers. It goes on by itself.
    """

    def __init__(self, open_tail: Callable[[], Tail]) -> None:
        super().__init__(name="live", daemon=True)
        self._open = open_tail
        self._latest = Latest()
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._pause = Backoff(*_PAUSES_S)
        self._failed_at: datetime | None = None
        self.problem: str | None = None

    def run(self) -> None:
        """Read until stopped; again after a pause where Kafka doesn't answer, or anything else goes wrong."""
        while not self._ending.is_set():
            try:
                self._read()
            except CloudError as error:
                self._stand_still(str(error))
            except Exception as error:  # noqa: BLE001 - a thread that ends leaves old values as new ones
                # Its words may have anything that Kafka has.
                self._stand_still(f"{type(error).__name__}; the log has more", error)

    def _read(self) -> None:
        with closing(self._open()) as tail:
            for turn in range(_TURNS):
                if self._ending.is_set() or tail.is_lost:
                    return
                arrived = tail.read(_TURN_S)
                with self._lock:
                    self._latest.take(arrived)
                self.problem = None
                if turn == _STEADY and self._failed_at is not None:
                    log.info("event=live.reads_again")
                    self._failed_at = None
                    self._pause.reset()

    def _stand_still(self, reason: str, defect: Exception | None = None) -> None:
        """Say so, in the log once, until the next attempt."""
        level = logging.WARNING if self._failed_at is None else logging.DEBUG
        self._failed_at = self._failed_at or datetime.now(UTC)
        self.problem = f"since {self._failed_at:%Y-%m-%d %H:%M:%S} UTC: {reason}"
        log.log(level, "event=live.stands_still error=%s", reason, exc_info=defect)
        self._ending.wait(self._pause.next())

    def stop(self) -> None:
        """End; safe without a start."""
        self._ending.set()
        if self.is_alive():
            self.join(_ENDING_S)

    def of(self, gateway: str) -> Mapping[str, Shown]:
        """A mast's channels as they are now."""
        with self._lock:
            return self._latest.of(gateway)

    def last_seen_us(self) -> Mapping[str, int]:
        """The time at which Kafka had something of each mast last."""
        with self._lock:
            return self._latest.last_seen_us()


class LiveReader:
    """The part of it that is of ``gateways``, names that may have ``*``; without Kafka it is empty."""

    def __init__(self, live: LiveReadings | None, gateways: Sequence[str]) -> None:
        self._live, self._gateways = live, gateways

    @property
    def problem(self) -> str | None:
        """Why nothing comes, in words."""
        return None if self._live is None else self._live.problem

    def of(self, gateway: str) -> Mapping[str, Shown]:
        """A mast's channels as they are now."""
        if self._live is None or not is_named(gateway, self._gateways):
            return {}
        return self._live.of(gateway)

    def last_seen_ms(self) -> dict[str, int]:
        """Milliseconds since 1970, by mast."""
        seen = {} if self._live is None else self._live.last_seen_us()
        return {gateway: at // 1000 for gateway, at in seen.items() if is_named(gateway, self._gateways)}
