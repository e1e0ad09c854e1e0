"""Watches the machine's clock and decides the boot time of held readings. Owned by the main loop."""

from __future__ import annotations

import logging
from typing import Final, Literal

from gateway.clock.boot_offsets import BootOffsets
from gateway.clock.hold import BootTime, ClockHold
from gateway.clock.system_clock import Machine, SystemClock
from gateway.config import Config

log = logging.getLogger(__name__)

_NS_PER_MS: Final = 1_000_000
_SAVE_AGAIN_S: Final = 10.0


def open_clock(config: Config, machine: Machine) -> tuple[SystemClock, ClockSync]:
    """The machine's clock and its ClockSync, with the boot offsets of earlier runs."""
    offsets = BootOffsets(config.outbox.path.with_name(config.outbox.path.name + ".clock"))
    seen = offsets.of(machine.boot)
    clock = SystemClock(config.clock.trust, machine, known_synced=seen.known and not seen.given)
    return clock, ClockSync(clock, machine.boot, offsets, config.clock.hold_s, config.clock.trust)


class ClockSync:
    """``hold_s`` is how long readings wait while Kafka is reachable.

    With ``trust`` "always" the clock counts as synchronised, and nothing is written.
    """

    def __init__(
        self,
        clock: SystemClock,
        boot: str,
        offsets: BootOffsets,
        hold_s: float,
        trust: Literal["kernel", "always"],
    ) -> None:
        self._clock = clock
        self._boot = boot
        self._offsets = offsets
        self._hold_s = hold_s
        self._trusted = trust == "always"
        self._settled = False
        self._save_at_s = float("-inf")
        self._first_offset_ms = self._offset_ms()
        self._boot_times = offsets.boot_times
        first = self.check(reachable_s=0.0)
        if first is not None:
            self._boot_times.setdefault(first.boot, first.offset_ms)

    def hold(self) -> ClockHold:
        """The hold of records that wait for the clock."""
        return ClockHold(self._boot, self._boot_times)

    @property
    def may_be_given(self) -> bool:
        """Whether this boot's time may be entered by hand. Any thread."""
        return self._refusal() is None

    @property
    def given(self) -> bool:
        """Whether this boot's time was entered by hand."""
        return self._offsets.of(self._boot).given

    def give(self, offset_ms: int) -> BootTime:
        """Enter the wall time at boot, ms since the epoch, by hand.

        The system's clock stays as it is, and so does ``synced``: readings are marked as before, and sent
        with the entered time, until the clock is set. Raises ValueError with the reason for a refusal.
        """
        refusal = self._refusal()
        if refusal is not None:
            raise ValueError(refusal)
        if offset_ms <= self._offsets.latest_seen_ms:
            raise ValueError("that is before an earlier start of this machine, when its clock was right")
        self._offsets.enter(self._boot, offset_ms)
        log.warning("event=clock.given boot=%s offset_ms=%d", self._boot, offset_ms)
        return BootTime(self._boot, offset_ms)

    def _refusal(self) -> str | None:
        if self._trusted or self._clock.synced:
            return "the clock is set already"
        if self._offsets.of(self._boot).gave_up:
            return (
                "readings have begun to leave without a time, and all until the next reboot do (clock.hold_s)"
            )
        if self._offsets.of(self._boot).known:
            return "the time was given already, and readings have left with it"
        return None

    def check(self, reachable_s: float) -> BootTime | None:
        """The time of this boot, once, when it is decided. ``reachable_s``: how long Kafka has answered."""
        now_s = self._clock.monotonic()
        if self._offsets.unsaved and now_s >= self._save_at_s:
            self._save_at_s = now_s + _SAVE_AGAIN_S
            self._offsets.save()
        if self._settled:
            return None
        gave_up = self._offsets.of(self._boot).gave_up
        if self._clock.synced:
            self._settled = True
            offset_ms = self._offset_ms()
            if not self._trusted:
                # Before the first reading is sent with it: after a crash the rest must have the same.
                self._offsets.measured(self._boot, offset_ms)
                offset_ms = self._offsets.of(self._boot).offset_ms or offset_ms
            log.info(
                "event=clock.synchronised boot=%s set_by_s=%.3f",
                self._boot,
                (offset_ms - self._first_offset_ms) / 1000,
            )
            return None if gave_up else BootTime(self._boot, offset_ms)
        known = self._offsets.of(self._boot).known
        if not (gave_up or known) and reachable_s >= self._hold_s and reachable_s > 0:
            self._offsets.give_up(self._boot)
            log.warning("event=clock.hold_ended boot=%s reachable_s=%.0f", self._boot, reachable_s)
            return BootTime(self._boot, None)
        return None

    def _offset_ms(self) -> int:
        return round(self._clock.offset_ns() / _NS_PER_MS)
