"""Watches the machine's clock and decides the boot time of held readings. Owned by the main loop.

The boot offsets of this boot and earlier ones are in a file beside the outbox. A boot offset is the wall time
at boot, measured when the clock was first found synchronised, or entered by hand. Readings held by an earlier
run, or in an earlier boot, are repaired with it, to the same time as their copies. Written once when a boot's
clock is found synchronised, and once where the gateway stops waiting for that; where the disk refuses, again
until it doesn't: without it held rows would lose their time at the next reboot.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec.structs import replace

from gateway.clock.hold import BootTime, ClockHold
from gateway.clock.system_clock import Machine, SystemClock
from gateway.config import Config
from gateway.system.atomic_file import read_state, write_state

_BOOTS: Final = 256
"""The newest that are kept: rows of more boots than that, each synchronised, don't wait in any outbox."""
_EARLIEST_MS: Final = 946_684_800_000
_LATEST_MS: Final = 4_102_444_800_000


class BootOffset(msgspec.Struct, frozen=True, omit_defaults=True):
    """Wall time at a boot, ms since the epoch; None where its clock was never found synchronised."""

    offset_ms: Annotated[int, msgspec.Meta(ge=_EARLIEST_MS, le=_LATEST_MS)] | None = None
    gave_up: bool = False
    """Readings of the boot were sent unsynced: then all of them are."""
    given: bool = False
    """It was entered by hand; the clock has not been found synchronised."""

    @property
    def known(self) -> bool:
        """Whether readings of the boot can have a time."""
        return self.offset_ms is not None


class _Stored(msgspec.Struct):
    boots: dict[str, BootOffset]


class BootOffsets:
    """One thread uses it. A file that can't be read or written is logged; sampling continues."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._boots = read_state(path, partial(msgspec.convert, type=_Stored), _Stored({})).boots
        self.unsaved = False
        """Whether the disk refused the last write."""

    def of(self, boot: str) -> BootOffset:
        """What is stored of a boot."""
        return self._boots.get(boot, BootOffset())

    @property
    def latest_seen_ms(self) -> int:
        """The latest measured offset, 0 without any: now can't be earlier."""
        return max((each.offset_ms or 0 for each in self._boots.values() if not each.given), default=0)

    @property
    def boot_times(self) -> dict[str, int | None]:
        """By boot its offset (ms since the epoch), None where its readings are sent unsynced."""
        return {boot: None if each.gave_up else each.offset_ms for boot, each in self._boots.items()}

    def measured(self, boot: str, offset_ms: int) -> None:
        """Store a synchronised clock's offset. The first one stays, an entered one too: readings have it."""
        before = self.of(boot)
        if not before.known or before.given:
            first_ms = offset_ms if before.offset_ms is None else before.offset_ms
            self._put(boot, replace(before, offset_ms=first_ms, given=False))

    def enter(self, boot: str, offset_ms: int) -> None:
        """Store an offset entered by hand. Raises ValueError outside the years 2000 to 2099."""
        if not _EARLIEST_MS <= offset_ms <= _LATEST_MS:
            raise ValueError("that is no time of this century")
        self._put(boot, BootOffset(offset_ms, given=True))

    def give_up(self, boot: str) -> None:
        """Send a boot's readings unsynced from now on, even if the clock is set later."""
        self._put(boot, BootOffset(self.of(boot).offset_ms, gave_up=True))

    def _put(self, boot: str, offset: BootOffset) -> None:
        self._boots.pop(boot, None)
        self._boots[boot] = offset
        for oldest in list(self._boots)[:-_BOOTS]:
            del self._boots[oldest]
        self.save()

    def save(self) -> None:
        """Write the file; sets ``unsaved``."""
        level = logging.DEBUG if self.unsaved else logging.ERROR
        self.unsaved = not write_state(self._path, _Stored(self._boots), level)


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
    def given_offset_ms(self) -> int | None:
        """The wall time at this boot (ms since the epoch) where it was entered by hand."""
        stored = self._offsets.of(self._boot)
        return stored.offset_ms if stored.given else None

    @property
    def now_ms(self) -> int:
        """The readings' wall time, ms since the epoch: by the entered time where there is one."""
        given_ms, system_ms = self.given_offset_ms, self._clock.now_ns() // _NS_PER_MS
        return system_ms if given_ms is None else system_ms - self._offset_ms() + given_ms

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
