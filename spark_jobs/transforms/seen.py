"""Which readings were seen: ranges of ``seq`` by gateway, channel and run; and which new ones are in none.

Workers hold their readings against the ranges they are given, the driver holds the ranges of all workers
against all that it knows. ``seq`` is dense, so a run of readings is one range however long it gets, and a
repeat is found without looking at the big table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

IDENTITY: Final = ("gateway", "channel", "run")
"""What makes a reading, together with ``seq``."""
RANGE: Final = (*IDENTITY, "first", "last")
_ARRIVAL: Final = ("kafka_time", "kafka_topic", "kafka_partition", "kafka_offset")
_RANGES: Final = pa.schema(list(zip(RANGE, (*[pa.string()] * 3, pa.int64(), pa.int64()), strict=True)))
"""Both numbers are inside."""
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


def keyed(ranges: Any) -> Any:
    """Ranges (an Arrow table) with the ``key`` of each identity."""
    return ranges.append_column("key", pa.array(identity_keys(ranges)))


def _in_turn(keys: Any, firsts: Any, lasts: Any) -> tuple[Any, Any, Any]:
    """Ranges by identity and first number, each with the highest number that its identity reaches by then."""
    order = np.lexsort((firsts, keys))
    keys, firsts, lasts = keys[order], firsts[order], lasts[order]
    by_last = np.lexsort((lasts, keys))
    # An identity's ranks are all above those of the ones before it.
    ranks = np.argsort(by_last)
    return keys, firsts, lasts[by_last][np.maximum.accumulate(ranks)]


class SeenRanges:
    """The seqs seen of identities. Memory grows with the identities, and with the gaps in them.

    Ranges are given as tables of ``keyed``. Owned by the one thread that runs the batches of ``ingest``;
    workers have copies.
    """

    def __init__(self) -> None:
        # Ascending by key and first number; those of an identity neither overlap nor touch.
        self._keys = np.empty(0, np.uint64)
        self._firsts, self._lasts, self._used = (np.empty(0, np.int64) for _ in range(3))
        # Goes along to workers, whose own is another.
        self._key = _KEY

    def __len__(self) -> int:
        return len(self._keys)

    def unknown(self, ranges: Any) -> Any:
        """Which of the ranges are of identities that are not here."""
        return ~np.isin(ranges["key"].to_numpy(), self._keys)

    def repeated(self, ranges: Any) -> Any:
        """Finds the ranges of identities of which a number was seen before, or is in two of the ranges."""
        keys, firsts, reached = _in_turn(*self._together(ranges))
        twice = (keys[1:] == keys[:-1]) & (firsts[1:] <= reached[:-1])
        return np.isin(ranges["key"].to_numpy(), keys[1:][twice])

    def new(self, identities: Any, begins: Any, seqs: Any) -> Any:
        """Finds the numbers that were not seen; those of an identity ascend, from one of ``begins`` on."""
        keys, found = identity_keys(identities, self._key), np.ones(len(seqs), bool)
        low, high = (np.searchsorted(self._keys, keys, side) for side in ("left", "right"))
        ends = np.append(begins, len(seqs))[1:]
        for at in np.flatnonzero(low < high).tolist():
            spans, mine = slice(low[at], high[at]), slice(begins[at], ends[at])
            # The usual one goes on where it ended.
            if seqs[begins[at]] <= self._lasts[high[at] - 1]:
                before = np.searchsorted(self._firsts[spans], seqs[mine], "right") - 1
                found[mine] = (before < 0) | (seqs[mine] > self._lasts[spans][before])
        return found

    def add(self, ranges: Any, now: int) -> None:
        """Takes up ranges at a time (whole seconds), whatever overlaps."""
        keys, firsts, reached = _in_turn(*self._together(ranges))
        apart = np.ones(len(keys), bool)
        apart[1:] = (keys[1:] != keys[:-1]) | (firsts[1:] - 1 > reached[:-1])
        begins = np.flatnonzero(apart)
        self._keep(~np.isin(self._keys, keys))
        at = np.searchsorted(self._keys, keys[begins])
        self._keys = np.insert(self._keys, at, keys[begins])
        self._firsts = np.insert(self._firsts, at, firsts[begins])
        self._lasts = np.insert(self._lasts, at, reached[np.append(begins, len(keys))[1:] - 1])
        self._used = np.insert(self._used, at, now)

    def forget(self, before: int) -> None:
        """Lets go of the identities that got nothing since a time."""
        self._keep(self._used >= before)

    def _keep(self, kept: Any) -> None:
        self._keys, self._used = self._keys[kept], self._used[kept]
        self._firsts, self._lasts = self._firsts[kept], self._lasts[kept]

    def _together(self, ranges: Any) -> list[Any]:
        """Keys, first and last numbers of ranges, and of those that are here of the same identities."""
        given = [ranges[name].to_numpy() for name in ("key", "first", "last")]
        here = np.isin(self._keys, given[0])
        mine = self._keys[here], self._firsts[here], self._lasts[here]
        return [np.concatenate(both) for both in zip(mine, given, strict=True)]


def _identities_of(rows: Any) -> Any:
    """Gateway, channel, run and seq of readings (an Arrow table or batch), in 20 bytes each."""
    return pa.table({**{name: rows[name].dictionary_encode() for name in IDENTITY}, "seq": rows["seq"]})


class _Sorted:
    """Identities and seqs of readings, by these: tables of ``_identities_of`` with one row or more."""

    def __init__(self, tables: Iterable[Any]) -> None:
        self.table = table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        codes = np.zeros(table.num_rows, np.int64)
        for name in IDENTITY:
            (column,) = table[name].chunks
            codes = codes * len(column.dictionary) + column.indices.to_numpy()
        seqs = table["seq"].to_numpy()
        self.order = np.lexsort((seqs, codes))
        self.seqs = seqs[self.order]
        self.goes_on = np.append(False, np.diff(codes[self.order]) == 0)

    def ranges(self, kept: Any) -> Any:
        """Ranges that together hold exactly the readings kept (a mask, by order), an Arrow table."""
        order, seqs = self.order[kept], self.seqs[kept]
        identity = np.cumsum(~self.goes_on)[kept]
        is_first = np.append(True, (np.diff(identity) != 0) | (np.diff(seqs) > 1))[: len(seqs)]
        begins = np.flatnonzero(is_first)
        ends = np.append(begins, len(seqs))[1:] - 1
        names = self.table.select(IDENTITY).take(pa.array(order[begins]))
        return pa.table([*names.columns, seqs[begins], seqs[ends]], _RANGES.names).cast(_RANGES)


def ranges_of(readings: Iterable[Any]) -> Any:
    """Readings (Arrow tables or batches) as ranges without gaps, an Arrow table."""
    tables = [_identities_of(rows) for rows in readings if rows.num_rows]
    return _Sorted(tables).ranges(slice(None)) if tables else _RANGES.empty_table()


def identity_ranges(readings: DataFrame) -> DataFrame:
    """Ranges that together hold exactly the readings given: rows of RANGE, which may overlap."""
    return readings.select(*IDENTITY, "seq").mapInArrow(
        lambda batches: ranges_of(batches).to_batches(), from_arrow_schema(_RANGES)
    )


def unseen(readings: Any, seen: SeenRanges) -> tuple[Any, Any]:
    """The readings of an Arrow table that were not seen, each once, and their ranges.

    The copy that Kafka took first is kept. Copies can lie in different partitions and topics, where
    offsets don't order them: any fixed order will do.
    """
    if not readings.num_rows:
        return readings, _RANGES.empty_table()
    by_seq = _Sorted([_identities_of(readings)])
    order, begins = by_seq.order, np.flatnonzero(~by_seq.goes_on)
    new = seen.new(by_seq.table.take(pa.array(order[begins])), begins, by_seq.seqs)
    is_copy = by_seq.goes_on & np.append(False, np.diff(by_seq.seqs) == 0)
    if is_copy.any():
        copies = np.flatnonzero(is_copy | np.append(is_copy[1:], False))
        number = np.cumsum(~is_copy[copies])
        arrival = readings.select(_ARRIVAL).take(pa.array(order[copies])).append_column("_", pa.array(number))
        arrival = arrival.set_column(0, _ARRIVAL[0], arrival[0].cast(pa.int64()).fill_null(-1))
        first_come = pc.sort_indices(arrival, [(name, "ascending") for name in ("_", *_ARRIVAL)]).to_numpy()
        new[copies[first_come[np.append(False, np.diff(number[first_come]) == 0)]]] = False
    kept = np.empty(len(new), bool)
    kept[order] = new
    return readings if new.all() else readings.filter(pa.array(kept)), by_seq.ranges(new)
