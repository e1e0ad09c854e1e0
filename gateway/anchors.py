"""What is known of the time of this boot and of earlier ones, kept beside the outbox.

A boot's anchor is its wall time at boot, noted when its clock was first seen synchronised. By it readings
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

from gateway.state_file import write_durably

log = logging.getLogger(__name__)

_BOOTS: Final = 256
"""The newest that are kept: rows of more boots than that, each synchronised, don't wait in any outbox."""
_EARLIEST_MS: Final = 946_684_800_000
_LATEST_MS: Final = 4_102_444_800_000


@dataclass(frozen=True, slots=True)
class _Known:
    offset_ms: int | None = None
    gave_up: bool = False


class Anchors:
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

    @property
    def verdicts(self) -> dict[str, int | None]:
        """By boot: the wall time at its beginning (ms since the epoch), None where nobody waits for it."""
        return {boot: None if known.gave_up else known.offset_ms for boot, known in self._boots.items()}

    def anchor(self, boot: str, offset_ms: int) -> None:
        """A boot's clock is right. The first anchor stands."""
        if self.offset_ms(boot) is None:
            self._put(boot, _Known(offset_ms, self.gave_up(boot)))

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
            write_durably(self._path, json.dumps({"boots": fields}))
        except OSError as error:
            level = logging.DEBUG if self.unsaved else logging.ERROR
            log.log(level, "event=state.not_written path=%s error=%s", self._path, error)
            self.unsaved = True
        else:
            self.unsaved = False


def _fields(known: _Known) -> dict[str, Any]:
    told: dict[str, Any] = {} if known.offset_ms is None else {"offset_ms": known.offset_ms}
    return {**told, "gave_up": True} if known.gave_up else told


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
    return _Known(offset_ms, fields.get("gave_up") is True)
