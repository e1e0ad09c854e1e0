"""Recovery from a damaged file: the blocks that SQLite still reads of it are kept, the rest is announced.

The damaged file and its log are renamed to ``<file>.salvage-<when>-<floor>-<last>-<certainty>`` and a new
file replaces them. One pass copies into it, under the numbers they had, the blocks whose heads are sound; a
payload is judged when it is read. Then the name becomes ``<file>.damaged-…``, for people to examine. A crash
before that repeats the pass.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from buffer import tables
from buffer.blocks import Block, Dictionary
from buffer.drops import CORRUPT, Drop
from buffer.files import FAULTS, move_database
from buffer.tables import NumberRanges

_SALVAGE: Final = ".salvage-"
_DAMAGED: Final = ".damaged-"
_KNOWN, _AT_MOST = "known", "atmost"


class Aside:
    """A damaged file that was set aside; records ``floor`` to ``last`` may have been in it."""

    def __init__(self, source: Path) -> None:
        self._source = source
        *_, floor, last, certainty = source.name.split("-")
        self.floor, self.last, self.last_is_known = int(floor), int(last), certainty == _KNOWN

    @contextlib.contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """The file, read only: closing it as the last reader must not move the log into it."""
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(self._source))}?mode=ro", uri=True, check_same_thread=False)
        ) as connection:
            connection.text_factory = tables.damaged_text
            yield connection

    def finish(self) -> None:
        """Give the file its final name."""
        move_database(self._source, Path(str(self._source).replace(_SALVAGE, _DAMAGED)))


def set_aside(path: Path, floor: int, last: int, *, last_is_known: bool) -> None:
    """Rename a damaged file; records ``floor`` to ``last`` may have been in it."""
    when = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    certainty = _KNOWN if last_is_known else _AT_MOST
    target = path.with_name(f"{path.name}{_SALVAGE}{when}-{floor}-{last}-{certainty}")
    move_database(path, target)
    # A file that has vanished gets the name, too: the loss of its records is still to be reported.
    target.touch()


def pending(path: Path) -> list[Aside]:
    """Files set aside and not yet copied from, oldest first."""
    found = path.parent.glob(f"{path.name}{_SALVAGE}*")
    return [Aside(file) for file in sorted(found) if file.name.endswith((_KNOWN, _AT_MOST))]


def dictionaries(damaged: sqlite3.Connection) -> Iterator[Dictionary]:
    """The sound dictionaries of a damaged file, up to what SQLite can't read."""
    with contextlib.suppress(*FAULTS):
        yield from tables.dictionaries(damaged)


def sound_blocks(damaged: sqlite3.Connection) -> Iterator[Block]:
    """Blocks with sound heads, from the oldest up to what SQLite can't read, then from the newest down to it.

    A damaged tree may show a block twice: it comes once.
    """
    above, below = 0, 1 << 63
    try:
        for block in tables.blocks_after(damaged, 0):
            if block.first > above and block.head_is_sound():
                yield block
                above = block.last
    except FAULTS:
        with contextlib.suppress(*FAULTS):
            for block in tables.blocks_down_to(damaged, above):
                if above < block.first and block.last < below and block.head_is_sound():
                    yield block
                    below = block.first


def losses(asides: list[Aside], found: NumberRanges, stored: int | None) -> Iterator[Drop]:
    """What none of the files set aside had; ``stored`` is how many records there were, None if unknown."""
    floor, last = min(aside.floor for aside in asides), max(aside.last for aside in asides)
    missing = list(found.missing(floor, last))
    lost = sum(end - begin + 1 for begin, end in missing)
    if stored is not None:
        left = max(stored - (last - floor + 1 - lost), 0)
        if left < lost:
            # Others of these numbers were removed or dropped before.
            missing = [(missing[0][0], missing[-1][1])] if left else []
            lost = left
    for begin, end in missing:
        count = lost if len(missing) == 1 else end - begin + 1
        is_known = asides[-1].last_is_known or end < last
        yield Drop(CORRUPT, begin, end, count if is_known else None, b"")
