"""The boot offsets of this boot and earlier ones, in a file beside the outbox.

A boot offset is the wall time at boot, measured when the clock was first found synchronised, or entered by
hand. Readings held by an earlier run, or in an earlier boot, are repaired with it, to the same time as their
copies. Written once when a boot's clock is found synchronised, and once where the gateway stops waiting for
that; where the disk refuses, again until it doesn't: without it held rows would lose their time at the next
reboot.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gateway.system.atomic_file import write_atomic

log = logging.getLogger(__name__)

_BOOTS: Final = 256
"""The newest that are kept: rows of more boots than that, each synchronised, don't wait in any outbox."""
_EARLIEST_MS: Final = 946_684_800_000
_LATEST_MS: Final = 4_102_444_800_000


@dataclass(frozen=True, slots=True)
class _Boot:
    offset_ms: int | None = None
    gave_up: bool = False
    given: bool = False


class BootOffsets:
    """One thread uses it. A file that can't be read or written is logged; sampling continues."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._boots = _read(path)
        self.unsaved = False
        """Whether the disk refused the last write."""

    def offset_ms(self, boot: str) -> int | None:
        """A boot's offset, ms since the epoch; None where its clock was never found synchronised."""
        return self._boots.get(boot, _Boot()).offset_ms

    def gave_up(self, boot: str) -> bool:
        """Whether readings of a boot were sent unsynced: then all of them are."""
        return self._boots.get(boot, _Boot()).gave_up

    def given(self, boot: str) -> bool:
        """Whether a boot's offset was entered by hand; its clock has not been found synchronised."""
        return self._boots.get(boot, _Boot()).given

    @property
    def latest_seen_ms(self) -> int:
        """The latest measured offset, 0 without any: now can't be earlier."""
        seen = (known.offset_ms for known in self._boots.values() if not known.given)
        return max((offset_ms for offset_ms in seen if offset_ms is not None), default=0)

    @property
    def boot_times(self) -> dict[str, int | None]:
        """By boot its offset (ms since the epoch), None where its readings are sent unsynced."""
        return {boot: None if known.gave_up else known.offset_ms for boot, known in self._boots.items()}

    def measured(self, boot: str, offset_ms: int) -> None:
        """Store a synchronised clock's offset. The first one stays, an entered one too: readings have it."""
        first = self.offset_ms(boot)
        if first is None or self.given(boot):
            self._put(boot, _Boot(offset_ms if first is None else first, self.gave_up(boot)))

    def enter(self, boot: str, offset_ms: int) -> None:
        """Store an offset entered by hand. Raises ValueError outside the years 2000 to 2099."""
        if not _EARLIEST_MS <= offset_ms <= _LATEST_MS:
            raise ValueError("that is no time of this century")
        self._put(boot, _Boot(offset_ms, given=True))

    def give_up(self, boot: str) -> None:
        """Send a boot's readings unsynced from now on, even if the clock is set later."""
        self._put(boot, _Boot(self.offset_ms(boot), gave_up=True))

    def _put(self, boot: str, known: _Boot) -> None:
        self._boots.pop(boot, None)
        self._boots[boot] = known
        for oldest in list(self._boots)[:-_BOOTS]:
            del self._boots[oldest]
        self.save()

    def save(self) -> None:
        """Write the file; sets ``unsaved``."""
        fields = {boot: _fields(known) for boot, known in self._boots.items()}
        try:
            write_atomic(self._path, json.dumps({"boots": fields}))
        except OSError as error:
            level = logging.DEBUG if self.unsaved else logging.ERROR
            log.log(level, "event=state.not_written path=%s error=%s", self._path, error)
            self.unsaved = True
        else:
            self.unsaved = False


def _fields(known: _Boot) -> dict[str, Any]:
    fields: dict[str, Any] = {} if known.offset_ms is None else {"offset_ms": known.offset_ms}
    marks = {"gave_up": known.gave_up, "given": known.given}
    return {**fields, **{name: True for name, mark in marks.items() if mark}}


def _read(path: Path) -> dict[str, _Boot]:
    try:
        boots = json.loads(path.read_text())["boots"]
        return {boot: _known(fields) for boot, fields in boots.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("event=state.unreadable path=%s error=%s", path, error)
        return {}


def _known(fields: dict[str, Any]) -> _Boot:
    offset_ms = fields.get("offset_ms")
    if offset_ms is not None and not (type(offset_ms) is int and _EARLIEST_MS <= offset_ms <= _LATEST_MS):
        raise ValueError(f"no time of a boot: {offset_ms!r}")
    return _Boot(offset_ms, fields.get("gave_up") is True, fields.get("given") is True)
