"""The tables of an outbox file, version 3.

    blocks        one row per append (see buffer.blocks); the key is the number of its first record.
                  Index ``others``: the blocks of others' records
    dictionaries  what payloads were compressed with
    numbering     one row, with a checksum: what can't be derived from the blocks
    removed       one row, with a checksum: records of stored blocks that were removed before a clean close

``numbering.issued`` is exact only while there are no blocks; else the newest block's last number counts.
``floor`` is the number of the oldest block (of the next one while there are none), ``holes`` how many numbers
between the oldest and the newest block are stored no more: an append changes neither, so it writes blocks
only: ``Numbering`` has the figures, without reading the middle of the file.
"""

# ruff: noqa: S608 - column lists and directions are constants of this package, values are bound.
from __future__ import annotations

import sqlite3
import struct
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path
from typing import Final

from buffer.blocks import OTHERS, ROW_BYTES, Block, Dictionary, learn, number_of
from buffer.errors import OutboxCorrupt

SCHEMA_VERSION: Final = 3
"""``PRAGMA user_version`` of the files this program writes."""
APPLICATION_ID: Final = 0x6664_676F
"""``PRAGMA application_id`` ("fdgo"): distinguishes an outbox from other SQLite files."""
PAGE_BYTES: Final = 512
"""A commit writes whole pages. Measured with blocks of 480 bytes, one a second: 527 bytes a reading reach the
disk with pages of 512, 833 with pages of 4,096."""

_INDEX: Final = f"CREATE INDEX others ON blocks (first) WHERE codec >= {OTHERS}"
_OTHERS: Final = f"FROM blocks INDEXED BY others WHERE codec >= {OTHERS}"
_COLUMNS: Final = "first, count, codec, dictionary, summary, head_checksum, payload_checksum, payload"
_HEADS: Final = "first, count, codec, dictionary, summary, head_checksum, payload_checksum, x''"
_cells: Final = attrgetter(*_COLUMNS.split(", "))
_TYPES: Final = (int, int, int, int, bytes, bytes, bytes, bytes)


@dataclass(frozen=True, slots=True)
class NumberingRow:
    """The row of the table ``numbering``."""

    issued: int
    floor: int
    holes: int
    dropped: int

    def checksum(self) -> bytes:
        """The checksum of all of it and the version."""
        text = f"{SCHEMA_VERSION} {self.issued} {self.floor} {self.holes} {self.dropped}"
        return blake2b(text.encode(), digest_size=8).digest()


def create(connection: sqlite3.Connection, issued: int) -> None:
    """Make the tables; numbers go on after ``issued``."""
    # Here and not above: it imports pandas where that is installed, and only a new file needs it.
    from sqlite_utils import Database

    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("BEGIN IMMEDIATE")
    database = Database(connection, execute_plugins=False)
    database.create_table("blocks", dict(zip(_COLUMNS.split(", "), _TYPES, strict=True)), pk="first")
    connection.execute(_INDEX)
    database.create_table("dictionaries", {"copy": int, "number": int, "content": bytes}, pk="copy")
    database.create_table(
        "numbering",
        {**dict.fromkeys(("id", "version", "issued", "floor", "holes", "dropped"), int), "checksum": bytes},
        pk="id",
    )
    database.create_table("removed", {"id": int, "numbers": bytes, "checksum": bytes}, pk="id")
    write_numbering(connection, NumberingRow(issued, issued + 1, 0, 0))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def damaged_text(text: bytes) -> str:
    """A connection's ``text_factory``: damage must raise SQLite's errors only."""
    return text.decode("utf-8", "replace")


def names(connection: sqlite3.Connection) -> set[str]:
    """The tables there are."""
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def write_numbering(connection: sqlite3.Connection, row: NumberingRow) -> None:
    """Replace the row."""
    connection.execute(
        "INSERT OR REPLACE INTO numbering (id, version, issued, floor, holes, dropped, checksum)"
        " VALUES (1, ?, ?, ?, ?, ?, ?)",
        (SCHEMA_VERSION, row.issued, row.floor, row.holes, row.dropped, row.checksum()),
    )


def read_numbering(connection: sqlite3.Connection) -> NumberingRow:
    """The row. Raises OutboxCorrupt where it fails its checksum."""
    found = connection.execute("SELECT issued, floor, holes, dropped, checksum FROM numbering").fetchone()
    if found is None or not all(isinstance(number, int) for number in found[:4]):
        raise OutboxCorrupt("the numbering is lost")
    row = NumberingRow(*found[:4])
    if row.checksum() != found[4]:
        raise OutboxCorrupt("the numbering fails its checksum")
    return row


def write_removed(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Write which records of stored blocks are removed, where that has changed."""
    if list(numbers) != read_removed(connection):
        packed = struct.pack(f">{len(numbers)}q", *numbers)
        connection.execute(
            "INSERT OR REPLACE INTO removed (id, numbers, checksum) VALUES (1, ?, ?)",
            (packed, blake2b(packed, digest_size=8).digest()),
        )


def read_removed(connection: sqlite3.Connection) -> list[int]:
    """The numbers written; none where they fail their checksum: those records are then read again."""
    row = connection.execute("SELECT numbers, checksum FROM removed").fetchone()
    if row is None or not isinstance(row[0], bytes) or blake2b(row[0], digest_size=8).digest() != row[1]:
        return []
    return [number for (number,) in struct.iter_unpack(">q", row[0])]


def insert(connection: sqlite3.Connection, block: Block) -> None:
    """Store a block."""
    connection.execute(f"INSERT INTO blocks ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _cells(block))


def can_find(connection: sqlite3.Connection, firsts: Sequence[int]) -> bool:
    """Whether a search by number finds each of these blocks."""
    (found,) = connection.execute(
        "SELECT count(*) FROM blocks WHERE first IN (SELECT value FROM json_each(?))", (str([*firsts]),)
    ).fetchone()
    return bool(found == len(firsts))


def delete(connection: sqlite3.Connection, firsts: Sequence[int]) -> None:
    """Delete blocks. Raises OutboxCorrupt where one can't be found."""
    deleted = connection.executemany("DELETE FROM blocks WHERE first = ?", ((first,) for first in firsts))
    if firsts and deleted.rowcount != len(firsts):
        raise OutboxCorrupt("a block can't be found")


def blocks_from(connection: sqlite3.Connection, number: int) -> Generator[Block, None, None]:
    """The blocks from the one with this record on, oldest first. Close it: it is a read transaction."""
    return _rows(
        connection,
        f"SELECT {_COLUMNS} FROM blocks"
        " WHERE first >= coalesce((SELECT max(first) FROM blocks WHERE first <= ?1), ?1) ORDER BY first",
        (number,),
    )


def blocks_after(connection: sqlite3.Connection, number: int) -> Generator[Block, None, None]:
    """The blocks that begin after this record, oldest first. Close it: it is a read transaction."""
    return _rows(connection, f"SELECT {_COLUMNS} FROM blocks WHERE first > ? ORDER BY first", (number,))


def blocks_down_to(connection: sqlite3.Connection, number: int) -> Iterator[Block]:
    """The blocks that begin after this record, newest first."""
    return _rows(connection, f"SELECT {_COLUMNS} FROM blocks WHERE first > ? ORDER BY first DESC", (number,))


def heads_within(connection: sqlite3.Connection, first: int, last: int) -> list[Block]:
    """The blocks, without their payloads, that may hold any of these records. Raises OutboxCorrupt."""
    return _sound(
        connection,
        f"SELECT {_HEADS} FROM blocks WHERE first <= ?2"
        " AND first >= coalesce((SELECT max(first) FROM blocks WHERE first <= ?1), ?1) ORDER BY first",
        (first, last),
    )


def oldest_head(connection: sqlite3.Connection, *, others: bool = False) -> Block | None:
    """The oldest block, or that of others' records, without its payload. Raises OutboxCorrupt."""
    return _head(connection, f"{_OTHERS if others else 'FROM blocks'} ORDER BY first")


def bytes_of_others(connection: sqlite3.Connection, first: int | None = None) -> int:
    """What the blocks of others' records take, or the one of them that begins with a number."""
    which = _OTHERS if first is None else f"{_OTHERS} AND first = ?"
    (size,) = connection.execute(
        f"SELECT coalesce(sum(length(summary) + length(payload) + {ROW_BYTES}), 0) {which}",
        () if first is None else (first,),
    ).fetchone()
    return int(size)


def newest_head(connection: sqlite3.Connection) -> Block | None:
    """The newest block without its payload. Raises OutboxCorrupt."""
    return _head(connection, "FROM blocks ORDER BY first DESC")


def _head(connection: sqlite3.Connection, which: str) -> Block | None:
    heads = _sound(connection, f"SELECT {_HEADS} {which} LIMIT 1", ())
    return heads[0] if heads else None


def add_dictionary(connection: sqlite3.Connection, dictionary: Dictionary) -> None:
    """Store a dictionary."""
    connection.execute(
        "INSERT INTO dictionaries (number, content) VALUES (?, ?)", (dictionary.number, dictionary.content)
    )


def dictionary(connection: sqlite3.Connection, number: int) -> Dictionary | None:
    """The dictionary with a number; None where there is no sound one."""
    for (content,) in connection.execute("SELECT content FROM dictionaries WHERE number = ?", (number,)):
        if isinstance(content, bytes) and content and number == number_of(content):
            return Dictionary(content)
    return None


def dictionaries(connection: sqlite3.Connection) -> Iterator[Dictionary]:
    """The sound dictionaries, in the order they were stored in."""
    for number, content in connection.execute("SELECT number, content FROM dictionaries ORDER BY copy"):
        if isinstance(content, bytes) and content and number == number_of(content):
            yield Dictionary(content)


def newest_dictionary(connection: sqlite3.Connection) -> Dictionary | None:
    """The dictionary stored last; None where it is damaged, or there is none."""
    row = connection.execute("SELECT number FROM dictionaries ORDER BY copy DESC LIMIT 1").fetchone()
    return None if row is None else dictionary(connection, row[0])


def _rows(
    connection: sqlite3.Connection, query: str, parameters: tuple[int, ...]
) -> Generator[Block, None, None]:
    cursor = connection.execute(query, parameters)
    try:
        for row in cursor:
            if tuple(map(type, row)) == _TYPES:
                yield Block(*row)
            else:
                # Damage has changed a column's type: a block whose checksums fail, under the number it has.
                yield Block(row[0] if isinstance(row[0], int) else 0, 0, 0, 0, b"", b"", b"", b"")
    finally:
        # Ends the read transaction: a snapshot left open would let the log grow without bound.
        cursor.close()


def _sound(connection: sqlite3.Connection, query: str, parameters: tuple[int, ...]) -> list[Block]:
    heads = list(_rows(connection, query, parameters))
    if not all(head.head_is_sound() for head in heads):
        raise OutboxCorrupt("a block's head fails its checksum")
    return heads


class ZstdDictionaries:
    """The dictionaries of one open file; ``in_file`` are those known to be on the disk, by number."""

    def __init__(self) -> None:
        self._current: Dictionary | None = None
        # What came before there was one, each record once: where storing failed they come again.
        self._seen: dict[bytes, None] = {}
        self.in_file: dict[int, Dictionary] = {}

    def for_append(self, connection: sqlite3.Connection, records: Sequence[bytes]) -> Dictionary | None:
        """The dictionary for records: the file's newest, or one learned from them and those before them."""
        if self._current is None:
            self._current = newest_dictionary(connection)
            if self._current is not None:
                self.in_file[self._current.number] = self._current
            else:
                self._seen.update(dict.fromkeys(records))
                self._current = learn(self._seen)
            if self._current is not None:
                self._seen.clear()
        return self._current

    def find(self, connection: sqlite3.Connection, number: int) -> Dictionary | None:
        """The dictionary with a number; None for 0, and where it is damaged."""
        if number and number not in self.in_file:
            found = dictionary(connection, number)
            if found is None:
                return None
            self.in_file[number] = found
        return self.in_file.get(number)


class NumberRanges:
    """Record numbers as disjoint ranges, ends included, in the order they were added; neighbours become one.

    Memory grows with the gaps, not with the numbers.
    """

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._ranges: list[tuple[int, int]] = []
        begin, end = 0, -1
        for number in numbers:
            if number != end + 1:
                if begin <= end:
                    self.add(begin, end)
                begin = number
            end = number
        if begin <= end:
            self.add(begin, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._ranges)

    def add(self, first: int, last: int) -> None:
        """Add ``first`` to ``last``, none of which is here."""
        begin, end = self._ranges[-1] if self._ranges else (0, -1)
        if end + 1 == first:
            self._ranges[-1] = (begin, last)
        elif last + 1 == begin:
            self._ranges[-1] = (first, end)
        else:
            self._ranges.append((first, last))

    def missing(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The ranges within ``first`` to ``last`` that are not here, in ascending order."""
        for begin, end in (*sorted(self._ranges), (last + 1, last)):
            if first > last:
                return
            if begin > first:
                yield first, min(begin - 1, last)
            first = max(first, end + 1)


@dataclass(slots=True)
class Numbering:
    """The figures of an open file's blocks, as they are on the disk or in a transaction.

    ``issued`` is the last number issued, ``stored`` how many records the blocks have, ``dropped`` how many
    records were ever dropped, ``others_bytes`` what blocks of others' records take, ``row`` the table's.
    """

    connection: sqlite3.Connection
    path: Path
    row: NumberingRow
    issued: int
    stored: int
    dropped: int
    others_bytes: int

    @classmethod
    def read(cls, connection: sqlite3.Connection, path: Path) -> Numbering:
        """Reads both ends of the file. Raises OutboxCorrupt where they disagree with its row."""
        row = read_numbering(connection)
        oldest, newest = oldest_head(connection), newest_head(connection)
        if oldest is None or newest is None:
            issued, stored = row.issued, 0
            sound = row.floor == row.issued + 1
        else:
            issued, stored = max(newest.last, row.issued), newest.last - oldest.first + 1 - row.holes
            sound = oldest.first == row.floor and stored > 0
        if not sound:
            raise OutboxCorrupt(f"{path} does not match its numbering")
        return cls(connection, path, row, issued, stored, row.dropped, bytes_of_others(connection))

    @property
    def oldest(self) -> int | None:
        """The first number of the oldest block."""
        return self.row.floor if self.stored else None

    def insert(self, block: Block) -> None:
        """Store a block."""
        insert(self.connection, block)
        self.issued = max(self.issued, block.last)
        self.stored += block.count
        if block.others:
            self.others_bytes += block.size_bytes

    def delete(self, *blocks: Block) -> None:
        """Delete blocks, given without their payloads. Raises OutboxCorrupt."""
        for block in blocks:
            if block.others:
                self.others_bytes -= bytes_of_others(self.connection, block.first)
            self.stored -= block.count
        delete(self.connection, [block.first for block in blocks])

    def write(self) -> None:
        """Write the row where it has changed. Raises OutboxCorrupt where the blocks don't match."""
        oldest, newest = oldest_head(self.connection), newest_head(self.connection)
        if oldest is None or newest is None:
            if self.stored:
                raise OutboxCorrupt(f"{self.path}: {self.stored} records are missing")
            row = NumberingRow(self.issued, self.issued + 1, 0, self.dropped)
        else:
            holes = newest.last - oldest.first + 1 - self.stored
            if holes < 0:
                raise OutboxCorrupt(f"{self.path}: blocks are missing before {oldest.first}")
            # The newest block's number counts while it is the last one: an append writes blocks only.
            known = self.row.issued if newest.last >= self.issued else self.issued
            row = NumberingRow(known, oldest.first, holes, self.dropped)
        if row != self.row:
            write_numbering(self.connection, row)
        self.row = row
