"""The boot offsets of this boot and earlier ones, in a file beside the outbox.

A boot offset is the wall time at boot, measured when the clock was first found synchronised, or entered by
hand. Readings held by an earlier run, or in an earlier boot, are repaired with it, to the same time as their
copies. Written once when a boot's clock is found synchronised, and once where the gateway stops waiting for
that; where the disk refuses, again until it doesn't: without it held rows would lose their time at the next
reboot.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from gateway.system.atomic_file import read_state, write_state

_BOOTS: Final = 256
"""The newest that are kept: rows of more boots than that, each synchronised, don't wait in any outbox."""
_EARLIEST_MS: Final = 946_684_800_000
_LATEST_MS: Final = 4_102_444_800_000


@dataclass(frozen=True, slots=True)
class BootOffset:
    """Wall time at a boot, ms since the epoch; None where its clock was never found synchronised."""

    offset_ms: int | None = None
    gave_up: bool = False
    """Readings of the boot were sent unsynced: then all of them are."""
    given: bool = False
    """It was entered by hand; the clock has not been found synchronised."""

    @property
    def known(self) -> bool:
        """Whether readings of the boot can have a time."""
        return self.offset_ms is not None


class BootOffsets:
    """One thread uses it. A file that can't be read or written is logged; sampling continues."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._boots: dict[str, BootOffset] = read_state(path, _parse, {})
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
        fields = {boot: _fields(offset) for boot, offset in self._boots.items()}
        level = logging.DEBUG if self.unsaved else logging.ERROR
        self.unsaved = not write_state(self._path, {"boots": fields}, level)


def _fields(offset: BootOffset) -> dict[str, Any]:
    """Without what is unknown or false."""
    fields = {"offset_ms": offset.offset_ms, "gave_up": offset.gave_up, "given": offset.given}
    return {name: field for name, field in fields.items() if field is not None and field is not False}


def _parse(fields: dict[str, Any]) -> dict[str, BootOffset]:
    return {boot: _offset(each) for boot, each in fields["boots"].items()}


def _offset(fields: dict[str, Any]) -> BootOffset:
    offset_ms = fields.get("offset_ms")
    if offset_ms is not None and not (type(offset_ms) is int and _EARLIEST_MS <= offset_ms <= _LATEST_MS):
        raise ValueError(f"no time of a boot: {offset_ms!r}")
    return BootOffset(offset_ms, fields.get("gave_up") is True, fields.get("given") is True)
