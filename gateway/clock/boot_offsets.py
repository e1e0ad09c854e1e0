"""The boot offsets of this boot and earlier ones, in a file beside the outbox.

A boot offset is the wall time at boot, measured when the clock was first found synchronised, or entered by
hand. Readings held by an earlier run, or in an earlier boot, are repaired with it, to the same time as their
copies. Written once when a boot's clock is found synchronised, and once where the gateway stops waiting for
that; where the disk refuses, again until it doesn't: without it held rows would lose their time at the next
reboot.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

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
