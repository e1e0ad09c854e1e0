"""Announces that the mast isn't where its config has it, by the gateway's own GPS; and when it is again.

A restart takes over what was announced: the file has it, beside the position that it was compared with. Owned
by the main thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cloud.wire.reading_records import Reading
from drivers.gpsd import distance_m
from gateway.config import Config
from gateway.ports import Record, Snapshot
from gateway.system.atomic_file import read_state, write_state

log = logging.getLogger(__name__)

_FOR_S: Final = 300.0
_FIXES: Final = 5
"""Fixes must agree for so long, and be so many: single ones are hundreds of metres off at times."""
MOVED_M: Final = 500.0
"""Fixes that far from the site's place are those of a mast that was moved."""
_BACK: Final = 0.8
"""A mast that was moved is back within this part of that: fixes at the limit announce nothing."""

_State = tuple[tuple[float, float] | None, float | None]


class SiteWatch:
    """``config`` gives the one in force, ``located`` the newest fix, if there is one.

    ``event`` makes the record of an event, ``announce`` takes it.
    """

    def __init__(
        self,
        path: Path,
        config: Callable[[], Config],
        located: Callable[[], Reading | None],
        event: Callable[..., Record],
        announce: Callable[[Record], None],
    ) -> None:
        self._path = path
        self._config = config
        self._located = located
        self._event = event
        self._announce = announce
        self._reading: Reading | None = None
        self._begun_s: float | None = None
        self._fixes = 0
        none: _State = (None, None)
        self._position, self.moved_m = read_state(path, _stored, none)
        """The site's position; how far the mast is from it, None unless it is known to be elsewhere."""

    def tick(self, snapshot: Snapshot) -> None:
        """Compares a new fix with the site; another position begins anew."""
        # That of [site], too: there need be none.
        position = self._config().gateway.position
        if position != self._position:
            self._position, self._begun_s = position, None
            if self.moved_m is not None:
                self._keep(None)
                self._announce(self._event("site-back", entered=True))
        reading = self._located()
        if position is None or reading is None or reading is self._reading:
            return
        self._reading = reading
        if reading.latitude is None or reading.longitude is None:
            return
        away_m = distance_m(*position, reading.latitude, reading.longitude)
        moved = self.moved_m is not None
        if moved:
            self.moved_m = away_m
        if (away_m > MOVED_M * (_BACK if moved else 1.0)) == moved:
            self._begun_s = None
            return
        if self._begun_s is None:
            self._begun_s, self._fixes = snapshot.at_s, 0
        self._fixes += 1
        if self._fixes >= _FIXES and snapshot.at_s - self._begun_s >= _FOR_S:
            self._begun_s = None
            self._keep(None if moved else away_m)
            self._report("back" if moved else "moved", reading, round(away_m))

    def _keep(self, moved_m: float | None) -> None:
        self.moved_m = moved_m
        write_state(self._path, {"position": self._position, "moved_m": moved_m})

    def _report(self, what: str, reading: Reading, away_m: int) -> None:
        if what == "moved":
            log.warning("event=site.moved distance_m=%d", away_m)
        else:
            log.info("event=site.back distance_m=%d", away_m)
        position = {"latitude": reading.latitude, "longitude": reading.longitude}
        self._announce(self._event(f"site-{what}", distance_m=away_m, **position))


def _stored(state: dict[str, Any]) -> _State:
    if state["moved_m"] is None:
        return None, None
    latitude, longitude = map(float, state["position"])
    return (latitude, longitude), float(state["moved_m"])
