"""Which numbers of which runs were seen: readings as ranges, and what of new ones is in none.

A reading is known by gateway, channel, run and ``seq``. Workers hold their readings against the ranges they
are given, the driver holds the ranges of all workers against all that it knows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from cloud.wire.number_set import NumberSet

IDENTITY: Final = ("gateway", "channel", "run")
"""What makes a reading, together with ``seq``."""
_ARRIVAL: Final = ("kafka_time", "kafka_topic", "kafka_partition", "kafka_offset")
_IDENTITIES: Final = pa.schema(
    [*((name, pa.string()) for name in IDENTITY), *((name, pa.int64()) for name in ("first", "last", "rows"))]
)
_NOWHERE: Final = -(1 << 62)

Range = tuple[int, int]
"""First and last seq, both inside."""

_KEY: Final = os.urandom(16)


def identity_keys(table: Any, key: bytes = _KEY) -> Any:
    """A number of 64 bits for each row's gateway, channel and run, its own in each process that has a key.

    Sums of digests of the three, of which few are different. Two of a million identities have the same
    number with a chance of 1 in 37 million, and no sender can choose names by it.
    """
    total = np.zeros(table.num_rows, np.uint64)
    for name in IDENTITY if table.num_rows else ():
        column = table[name].combine_chunks().dictionary_encode()
        values = column.dictionary.to_pylist()
        made = (blake2b(text.encode(), digest_size=8, key=key, person=name.encode()) for text in values)
        digests = np.frombuffer(b"".join(digest.digest() for digest in made), np.uint64)
        total += digests[column.indices.to_numpy()]
    return total


@dataclass(frozen=True)
class Ranges:
    """Ranges of identities, ascending by identity and first seq.

    ``table`` has them in another order, with gateway, channel and run: row ``order[n]`` is range n.
    ``begins`` are the first ranges of each identity; ``twice``: whether that identity has a number twice.
    """

    table: Any
    order: Any
    keys: Any
    firsts: Any
    lasts: Any
    begins: Any
    twice: Any

    @classmethod
    def of(cls, table: Any) -> Ranges:
        """Of an Arrow table as ``ranges_of`` gives them, or of several of them, one after the other."""
        keys = identity_keys(table)
        firsts, lasts, rows = (table[name].to_numpy() for name in ("first", "last", "rows"))
        order = np.lexsort((firsts, keys))
        keys, firsts, lasts = keys[order], firsts[order], lasts[order]
        is_first = np.ones(len(keys), bool)
        is_first[1:] = keys[1:] != keys[:-1]
        twice = rows[order] > lasts - firsts + 1
        # One that an earlier one reaches over has neighbours that overlap too: it suffices for the identity.
        twice[1:] |= ~is_first[1:] & (firsts[1:] <= lasts[:-1])
        begins = np.flatnonzero(is_first)
        of_identity = np.logical_or.reduceat(twice, begins) if len(begins) else twice
        return cls(table, order, keys, firsts, lasts, begins, of_identity)

    @property
    def identities(self) -> Any:
        """Gateway, channel and run of each identity, in the order of ``begins``: an Arrow table."""
        return self.table.select(list(IDENTITY)).take(self.order[self.begins])


class SeenRanges:
    """The seqs seen of identities. Memory grows with the identities, and with the gaps in them.

    ``seq`` is dense, so a run of readings is one range however long it gets, and a repeat is found without
    looking at the big table. The highest range of each identity lies in arrays; what continues it is added
    to all identities of a batch at once; the ranges below, which gaps leave, and what falls into them are few
    and taken one by one. Owned by the one thread that runs the batches of ``ingest``.
    """

    def __init__(self) -> None:
        self._keys = np.empty(0, np.uint64)
        self._firsts, self._lasts, self._used = (np.empty(0, np.int64) for _ in range(3))
        self._below: dict[int, NumberSet] = {}
        # Goes along to workers, whose own key is another.
        self.key = _KEY

    def __len__(self) -> int:
        return len(self._keys) + sum(seqs.gaps + 1 for seqs in self._below.values())

    def unknown(self, ranges: Ranges) -> Any:
        """Which of the identities are not here."""
        return ~self._find(ranges.keys[ranges.begins])[1]

    def reach(self, keys: Any, firsts: Any) -> Any:
        """Finds the identities that got a number as high as these; the lower ones may be new all the same."""
        at, here = self._find(keys)
        return here & (firsts <= self._bounds(at, here)[1])

    def spans(self, key: int) -> list[Range]:
        """The ranges of an identity."""
        (at,), (here,) = self._find(np.array([key], np.uint64))
        if not here:
            return []
        below = self._below.get(key)
        return [*(below.spans() if below else ()), (int(self._firsts[at]), int(self._lasts[at]))]

    def repeated(self, ranges: Ranges) -> Any:
        """Finds the identities of which some numbers were seen before."""
        at, here = self._find(ranges.keys)
        firsts, lasts = self._bounds(at, here)
        found = here & (ranges.firsts <= lasts) & (ranges.lasts >= firsts)
        for row in np.flatnonzero(here & (ranges.lasts < firsts)).tolist():
            below = self._below.get(int(ranges.keys[row]))
            found[row] = below is not None and below.overlaps(int(ranges.firsts[row]), int(ranges.lasts[row]))
        return np.logical_or.reduceat(found, ranges.begins) if len(found) else found

    def add(self, ranges: Ranges, now: int) -> int:
        """Takes up ranges at a time (whole seconds), whatever overlaps; how many numbers are new."""
        begins = ranges.begins
        if not len(begins):
            return 0
        ends = np.append(begins[1:], len(ranges.keys)) - 1
        keys = ranges.keys[begins]
        at, here = self._find(keys)
        _, lasts = self._bounds(at, here)
        begin_seqs, end_seqs = ranges.firsts[begins], ranges.lasts[ends]
        gaps = np.zeros(len(ranges.keys), bool)
        gaps[1:] = ranges.firsts[1:] > ranges.lasts[:-1] + 1
        gaps[begins] = False
        # Without a gap: the identity's highest range goes on, or its first one begins.
        whole = ~ranges.twice & ~np.logical_or.reduceat(gaps, begins)
        simple = whole & (~here | (begin_seqs == lasts + 1))
        goes_on, new = simple & here, simple & ~here
        self._lasts[at[goes_on]] = end_seqs[goes_on]
        self._used[at[goes_on]] = now
        self._insert(at[new], keys[new], begin_seqs[new], end_seqs[new], now)
        added = int((end_seqs - begin_seqs + 1)[simple].sum())
        for number in np.flatnonzero(~simple).tolist():
            span = slice(begins[number], ends[number] + 1)
            added += self._add_one(int(keys[number]), ranges.firsts[span], ranges.lasts[span], now)
        return added

    def forget(self, before: int) -> None:
        """Lets go of the identities that got nothing since a time."""
        kept = self._used >= before
        for key in self._keys[~kept].tolist():
            self._below.pop(key, None)
        self._keys, self._used = self._keys[kept], self._used[kept]
        self._firsts, self._lasts = self._firsts[kept], self._lasts[kept]

    def _find(self, keys: Any) -> tuple[Any, Any]:
        """Where these keys are or would be, and whether they are here."""
        at = np.searchsorted(self._keys, keys)
        here = at < len(self._keys)
        here[here] = self._keys[at[here]] == keys[here]
        return at, here

    def _bounds(self, at: Any, here: Any) -> tuple[Any, Any]:
        """The highest range of those that are here."""
        firsts, lasts = (np.full(len(at), _NOWHERE) for _ in range(2))
        firsts[here], lasts[here] = self._firsts[at[here]], self._lasts[at[here]]
        return firsts, lasts

    def _insert(self, at: Any, keys: Any, firsts: Any, lasts: Any, now: int) -> None:
        if len(keys):
            self._keys = np.insert(self._keys, at, keys)
            self._firsts = np.insert(self._firsts, at, firsts)
            self._lasts = np.insert(self._lasts, at, lasts)
            self._used = np.insert(self._used, at, now)

    def _add_one(self, key: int, firsts: Any, lasts: Any, now: int) -> int:
        seqs = NumberSet(self.spans(key))
        before = len(seqs)
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            seqs.add(first, last)
        *below, (first, last) = seqs.spans()
        at, here = self._find(np.array([key], np.uint64))
        if not here[0]:
            self._insert(at, [key], [first], [last], now)
        self._firsts[at], self._lasts[at], self._used[at] = first, last, now
        self._below.pop(key, None)
        if below:
            self._below[key] = NumberSet(below)
        return len(seqs) - before


def identities_of(rows: Any) -> Any:
    """Gateway, channel, run and seq of readings (an Arrow table or batch), in 20 bytes each."""
    return pa.table({**{name: rows[name].dictionary_encode() for name in IDENTITY}, "seq": rows["seq"]})


def _in_order(tables: Iterable[Any]) -> tuple[Any, Any, Any, Any]:
    """Tables of ``identities_of`` as one, the order of its rows, and in it their identities and seqs."""
    table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    codes = np.zeros(table.num_rows, np.int64)
    for name in IDENTITY if table.num_rows else ():
        (column,) = table[name].chunks
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
    seqs = table["seq"].to_numpy()
    order = np.lexsort((seqs, codes))
    return table, order, codes[order], seqs[order]


def _as_ranges(table: Any, order: Any, codes: Any, seqs: Any) -> Any:
    edges = np.flatnonzero((np.diff(codes) != 0) | (np.diff(seqs) > 1)) + 1
    begins, ends = np.append(0, edges), np.append(edges, len(seqs))
    keys = table.select(IDENTITY).take(pa.array(order[begins]))
    columns = [*keys.columns, seqs[begins], seqs[ends - 1], ends - begins]
    return pa.table(columns, _IDENTITIES.names).cast(_IDENTITIES)


def ranges_of(identities: Iterable[Any]) -> Any:
    """Tables of ``identities_of`` as ranges without gaps, an Arrow table.

    ``rows`` is how many readings are in a range: more than its numbers where one stands there twice.
    """
    tables = [table for table in identities if table.num_rows]
    return _as_ranges(*_in_order(tables)) if tables else _IDENTITIES.empty_table()


def identity_ranges(readings: DataFrame) -> DataFrame:
    """Ranges that together hold exactly the readings given: gateway, channel, run, first, last."""
    ranges = readings.select(*IDENTITY, "seq").mapInArrow(
        lambda batches: ranges_of(map(identities_of, batches)).to_batches(), from_arrow_schema(_IDENTITIES)
    )
    return ranges.drop("rows")


def unseen(readings: Any, seen: SeenRanges) -> tuple[Any, Any]:
    """The readings of an Arrow table outside the seen ranges, each once, and their ranges (``ranges_of``).

    Of copies the one is kept that Kafka took first. Copies can lie in different partitions and topics, where
    offsets don't order them: any fixed order will do.
    """
    if not readings.num_rows:
        return readings, _IDENTITIES.empty_table()
    table, order, codes, seqs = _in_order([identities_of(readings)])
    new, is_next = np.ones(len(seqs), bool), np.append(False, np.diff(codes) == 0)
    begins = np.flatnonzero(~is_next)
    ends = np.append(begins[1:], len(seqs))
    keys = identity_keys(table.take(pa.array(order[begins])), seen.key)
    for number in np.flatnonzero(seen.reach(keys, seqs[begins])).tolist():
        mine = slice(begins[number], ends[number])
        firsts, lasts = np.array(seen.spans(int(keys[number]))).T
        at = np.searchsorted(firsts, seqs[mine], "right") - 1
        new[mine] = (at < 0) | (seqs[mine] > lasts[at])
    is_copy = is_next & np.append(False, np.diff(seqs) == 0)
    if is_copy.any():
        copies = np.flatnonzero(is_copy | np.append(is_copy[1:], False))
        arrival = readings.select(_ARRIVAL).take(pa.array(order[copies]))
        by_arrival = [(name, "ascending") for name in _ARRIVAL]
        ranks = np.empty(len(copies), np.int64)
        ranks[pc.sort_indices(arrival, by_arrival, null_placement="at_start").to_numpy()] = range(len(copies))
        number = np.cumsum(~is_copy[copies])
        best_first = np.lexsort((ranks, number))
        new[copies[best_first[np.append(False, np.diff(number[best_first]) == 0)]]] = False
    if new.all():
        return readings, _as_ranges(table, order, codes, seqs)
    kept = np.empty(len(new), bool)
    kept[order] = new
    ranges = _as_ranges(table, order[new], codes[new], seqs[new]) if new.any() else _IDENTITIES.empty_table()
    return readings.filter(pa.array(kept)), ranges
