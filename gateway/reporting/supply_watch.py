"""Announces that the Pi's supply is too low or its processor slowed down, and when that is over.

Owned by the main thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from gateway.ports import Record, Snapshot
from gateway.system.host import SINCE_BOOT, THROTTLED, UNDER_VOLTAGE, throttled_bits

log = logging.getLogger(__name__)

_READ_EVERY_S: Final = 5.0
_OVER_AFTER_S: Final = 600.0
"""A weak supply fails each time something switches on: that is one trouble, not hundreds."""
_KINDS: Final = {"under_voltage": UNDER_VOLTAGE, "throttled": THROTTLED}


class SupplyWatch:
    """``event`` makes the record of an event, ``announce`` takes it; ``read`` gives the firmware's bits."""

    def __init__(
        self,
        event: Callable[..., Record],
        announce: Callable[[Record], None],
        read: Callable[[], int | None] = throttled_bits,
    ) -> None:
        self._event = event
        self._announce = announce
        self._read = read
        self._read_at_s = float("-inf")
        self._since_boot = 0
        self._active: dict[str, tuple[float, float]] = {}
        """When each trouble began and was seen last."""
        self.times: dict[str, int | None] = dict.fromkeys(_KINDS)
        """How often each kind occurred in this run; None where nothing reports it."""

    @property
    def troubles(self) -> list[str]:
        """Returns the kinds of trouble that there are now, or were within ten minutes."""
        return list(self._active)

    def tick(self, snapshot: Snapshot) -> None:
        """Reads every five seconds, and announces what has begun or is over."""
        now_s = snapshot.at_s
        if now_s < self._read_at_s:
            return
        self._read_at_s = now_s + _READ_EVERY_S
        bits = self._read()
        if bits is None:
            return
        # A dip between two readings shows in the bits since boot, once.
        dipped = bits >> SINCE_BOOT & ~self._since_boot
        self._since_boot = bits >> SINCE_BOOT
        for kind, mask in _KINDS.items():
            self.times[kind] = self.times[kind] or 0
            if (bits | dipped) & mask:
                self._seen(kind, now_s)
            elif kind in self._active and now_s - self._active[kind][1] >= _OVER_AFTER_S:
                began_s, last_s = self._active.pop(kind)
                self._announce(self._event(f"{_name(kind)}-over", lasted_s=round(last_s - began_s)))

    def _seen(self, kind: str, now_s: float) -> None:
        if kind not in self._active:
            times = self.times[kind] = (self.times[kind] or 0) + 1
            log.warning("event=supply.weak what=%s times=%d", kind, times)
            self._announce(self._event(_name(kind), times=times))
        self._active[kind] = self._active.get(kind, (now_s, now_s))[0], now_s


def _name(kind: str) -> str:
    return kind.replace("_", "-")
