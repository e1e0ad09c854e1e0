"""Watches the machine's clock and says when readings need wait for it no longer. Owned by the main loop."""

from __future__ import annotations

import logging
from typing import Final, Literal

from gateway.anchors import Anchors
from gateway.clock import Machine, SystemClock
from gateway.config import Config
from gateway.holdback import Holdback, Verdict

log = logging.getLogger(__name__)

_NS_PER_MS: Final = 1_000_000
_SAVE_AGAIN_S: Final = 10.0


def open_clock(config: Config, machine: Machine) -> tuple[SystemClock, Timekeeper]:
    """The machine's clock, and who watches it; what was known of this boot and earlier ones is read."""
    anchors = Anchors(config.outbox.path.with_name(config.outbox.path.name + ".clock"))
    clock = machine.clock(config.clock.trust, known_synced=anchors.offset_ms(machine.boot) is not None)
    return clock, Timekeeper(clock, machine.boot, anchors, config.clock.hold_s, config.clock.trust)


class Timekeeper:
    """``hold_s`` is how long readings wait while Kafka could have them.

    ``trust`` "always" takes the clock as it stands: nothing is written then.
    """

    def __init__(
        self,
        clock: SystemClock,
        boot: str,
        anchors: Anchors,
        hold_s: float,
        trust: Literal["kernel", "always"],
    ) -> None:
        self._clock = clock
        self._boot = boot
        self._anchors = anchors
        self._hold_s = hold_s
        self._trusted = trust == "always"
        self._settled = False
        self._save_at_s = float("-inf")
        self._first_offset_ms = self._offset_ms()
        self._verdicts = anchors.verdicts
        first = self.check(reachable_s=0.0)
        if first is not None:
            self._verdicts.setdefault(first.boot, first.offset_ms)

    def holdback(self) -> Holdback:
        """What decides which records wait, by what is known now."""
        return Holdback(self._boot, self._verdicts)

    def check(self, reachable_s: float) -> Verdict | None:
        """The verdict on this boot, once, when there is one. ``reachable_s``: how long Kafka has answered."""
        self._save_what_was_refused()
        if self._settled:
            return None
        gave_up = self._anchors.gave_up(self._boot)
        if self._clock.synced:
            self._settled = True
            offset_ms = self._offset_ms()
            if not self._trusted:
                # Before anything leaves by it: after a crash the rest must leave by the same.
                self._anchors.anchor(self._boot, offset_ms)
                offset_ms = self._anchors.offset_ms(self._boot) or offset_ms
            log.info(
                "event=clock.synchronised boot=%s set_by_s=%.3f",
                self._boot,
                (offset_ms - self._first_offset_ms) / 1000,
            )
            return None if gave_up else Verdict(self._boot, offset_ms)
        if not gave_up and reachable_s >= self._hold_s and reachable_s > 0:
            self._anchors.give_up(self._boot)
            log.warning("event=clock.hold_ended boot=%s reachable_s=%.0f", self._boot, reachable_s)
            return Verdict(self._boot, None)
        return None

    def _save_what_was_refused(self) -> None:
        now_s = self._clock.monotonic()
        if self._anchors.unsaved and now_s >= self._save_at_s:
            self._save_at_s = now_s + _SAVE_AGAIN_S
            self._anchors.save()

    def _offset_ms(self) -> int:
        return round(self._clock.offset_ns() / _NS_PER_MS)
