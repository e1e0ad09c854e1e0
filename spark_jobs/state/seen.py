"""Which readings are in the table already: ranges of ``seq`` per (gateway, channel, run).

``seq`` is dense, so a run of readings is one range however long it gets, and a repeat is found without
looking at the big table. Invariant: after a batch the ranges are those of ``readings``. They are written
after the readings; the sink's start therefore takes up what a crash between the two writes left out, from the
readings themselves. Owned by the one thread that runs the batches of ``ingest``.

What is in memory of an identity is complete; identities that got nothing lately are not in memory. The
highest range of each lies in arrays, and what continues it is added to all identities of a batch at once; the
ranges below, which gaps leave, and what falls into them are few and taken one by one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from cloud.wire.number_set import NumberSet
from spark_jobs.transforms.packing import IDENTITY

_NOWHERE: Final = -(1 << 62)

Range = tuple[int, int]
"""First and last seq, both inside."""


_KEY: Final = os.urandom(16)


def identity_keys(table: Any) -> Any:
    """A number of 64 bits for each row's gateway, channel and run, its own in each process.

    Sums of digests of the three, of which few are different. Two of a million identities have the same
    number with a chance of 1 in 37 million, and nobody can choose names by it.
    """
    total = np.zeros(table.num_rows, np.uint64)
    for name in IDENTITY if table.num_rows else ():
        column = table[name].combine_chunks().dictionary_encode()
        values = column.dictionary.to_pylist()
        made = (blake2b(text.encode(), digest_size=8, key=_KEY, person=name.encode()) for text in values)
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
    """The seqs seen of identities. Memory grows with the identities, and with the gaps in them."""

    def __init__(self) -> None:
        self._keys = np.empty(0, np.uint64)
        self._firsts, self._lasts, self._used = (np.empty(0, np.int64) for _ in range(3))
        self._below: dict[int, NumberSet] = {}

    def __len__(self) -> int:
        return len(self._keys) + sum(seqs.gaps + 1 for seqs in self._below.values())

    def unknown(self, ranges: Ranges) -> Any:
        """Which of the identities are not here."""
        return ~self._find(ranges.keys[ranges.begins])[1]

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
