"""What is known of the time of this boot and of earlier ones, kept beside the outbox.

A boot's anchor is its wall time at boot, noted when its clock was first seen synchronised, or given by
somebody who stands at the mast. By it readings
held by an earlier run, or in an earlier boot, are repaired with the very time their copies got. Written once
when a boot's clock is found synchronised, and once where the gateway gives up waiting for that; where the
disk refuses, again until it doesn't: without it held rows would lose their time at the next reboot.
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
class _Known:
    offset_ms: int | None = None
    gave_up: bool = False
    given: bool = False


class BootOffsets:
    """One thread uses it. A file that can't be read or written is logged: sampling goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._boots = _read(path)
        self.unsaved = False
        """Whether the file lacks something: the disk refused it."""

    def offset_ms(self, boot: str) -> int | None:
        """A boot's anchor, ms since the epoch; None where its clock was never seen to be right."""
        return self._boots.get(boot, _Known()).offset_ms

    def gave_up(self, boot: str) -> bool:
        """Whether readings of a boot have left as they stand: then all of them do."""
        return self._boots.get(boot, _Known()).gave_up

    def given(self, boot: str) -> bool:
        """Whether a boot's anchor is a person's word; its clock was not seen to be right then, nor since."""
        return self._boots.get(boot, _Known()).given

    @property
    def latest_seen_ms(self) -> int:
        """The latest anchor of those that nobody gave, 0 without any: it isn't earlier than that now."""
        seen = (known.offset_ms for known in self._boots.values() if not known.given)
        return max((offset_ms for offset_ms in seen if offset_ms is not None), default=0)

    @property
    def verdicts(self) -> dict[str, int | None]:
        """By boot: the wall time at its beginning (ms since the epoch), None where nobody waits for it."""
        return {boot: None if known.gave_up else known.offset_ms for boot, known in self._boots.items()}

    def anchor(self, boot: str, offset_ms: int) -> None:
        """A boot's clock is right. The first anchor stands, a given one too: readings have left by it."""
        first = self.offset_ms(boot)
        if first is None or self.given(boot):
            self._put(boot, _Known(offset_ms if first is None else first, self.gave_up(boot)))

    def give(self, boot: str, offset_ms: int) -> None:
        """Somebody says what time it is, where no anchor is known. Raises ValueError for an odd time."""
        if not _EARLIEST_MS <= offset_ms <= _LATEST_MS:
            raise ValueError("that is no time of this century")
        self._put(boot, _Known(offset_ms, given=True))

    def give_up(self, boot: str) -> None:
        """From now on a boot's readings leave as they stand, even if the clock is set one day."""
        self._put(boot, _Known(self.offset_ms(boot), gave_up=True))

    def _put(self, boot: str, known: _Known) -> None:
        self._boots.pop(boot, None)
        self._boots[boot] = known
        for oldest in list(self._boots)[:-_BOOTS]:
            del self._boots[oldest]
        self.save()

    def save(self) -> None:
        """Write the file; ``unsaved`` tells where that failed."""
        fields = {boot: _fields(known) for boot, known in self._boots.items()}
        try:
            write_atomic(self._path, json.dumps({"boots": fields}))
        except OSError as error:
            level = logging.DEBUG if self.unsaved else logging.ERROR
            log.log(level, "event=state.not_written path=%s error=%s", self._path, error)
            self.unsaved = True
        else:
            self.unsaved = False


def _fields(known: _Known) -> dict[str, Any]:
    told: dict[str, Any] = {} if known.offset_ms is None else {"offset_ms": known.offset_ms}
    marks = {"gave_up": known.gave_up, "given": known.given}
    return {**told, **{name: True for name, mark in marks.items() if mark}}


def _read(path: Path) -> dict[str, _Known]:
    try:
        boots = json.loads(path.read_text())["boots"]
        return {boot: _known(fields) for boot, fields in boots.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("event=state.unreadable path=%s error=%s", path, error)
        return {}


def _known(fields: dict[str, Any]) -> _Known:
    offset_ms = fields.get("offset_ms")
    if offset_ms is not None and not (type(offset_ms) is int and _EARLIEST_MS <= offset_ms <= _LATEST_MS):
        raise ValueError(f"no time of a boot: {offset_ms!r}")
    return _Known(offset_ms, fields.get("gave_up") is True, fields.get("given") is True)
