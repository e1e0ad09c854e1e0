"""Readings that differ from one ``parse_reading`` has taken in nothing but numbers and the time.

A channel's readings are the same bytes but for ``time``, ``value``, ``raw`` and ``seq``. What is left when
these four are cut out, the template, is given to ``parse_reading`` with two different sets of numbers put in
their places. If both come back as readings that hold exactly these numbers, then the four places are the four
fields, and every payload of this template is the same reading with its own numbers, provided each of them is
written the plain way (``_NUMBER``, ``_SEQ``, ``_TIME``): what such a text means, and that it is finite and in
range, doesn't depend on what surrounds it. So nothing is decided here that ``parse_reading`` would decide
otherwise; whatever is not proven this way (an unknown field whose number changes, a time with an offset,
white space, anything malformed) is left to it.

Pure but for the cache of templates, which belongs to one worker's thread. It rests on two properties of
``parse_reading`` that the tests hold against it: it takes any finite ``value`` and ``raw`` where it takes
one, and it looks at ``time`` only for its bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloud.wire.schema import (
    MAX_AHEAD_US,
    MAX_READING_BYTES,
    OLDEST_TIME_US,
    InvalidReading,
    Reading,
    parse_reading,
)

_COMMA: Final = 0x2C
_MARK: Final = 0x01
"""Stands in a template where a number was. No payload with such a byte is JSON."""
_NULL: Final = int.from_bytes(b"null", "little")

_KEYS: Final = (b'"time":"', b'"value":', b'"raw":', b'"seq":')
"""The places in the order ``encode_reading`` writes them; those of eight bytes fill a machine word."""
_AFTER_TIME: Final = 1
"""The quote between a time and the comma behind it."""
_SLOTS: Final = len(_KEYS)
_WORD: Final = 8

# As many digits as always give a finite double. A whole number of up to 15 digits is a double exactly, so it
# doesn't matter that Python reads it as an int; "-0" it reads as 0, so that is left out.
_NUMBER: Final = (
    r"\A(?:0|-?[1-9][0-9]{0,14}|-?(?:0|[1-9][0-9]{0,16})\.[0-9]{1,25}(?:e[+-]?[0-9]{1,2})?"
    r"|-?[1-9]e[+-]?[0-9]{1,2})\z"
)
_SEQ: Final = r"\A[1-9][0-9]{0,17}\z"
# A time that exists, by the calendar, in UTC; in these years each fourth is a leap year.
_TIME: Final = (
    r"\A20(?:[0-9]{2}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)"
    r"|(?:0[13578]|1[02])-31)|(?:[02468][048]|[13579][26])-02-29)"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.(?:[0-9]{3}|[0-9]{6})Z\z"
)

_SAMPLES: Final = (
    (
        (b"2026-05-28T20:27:00.125Z", b"7.25", b"-3.5", b"41"),
        (1_780_000_020_125_000, 7.25, -3.5, 41),
    ),
    (
        (b"2031-01-02T03:04:05.000Z", b"-1e-7", b"11", b"9000000001"),
        (1_925_089_445_000_000, -1e-7, 11.0, 9_000_000_001),
    ),
)
"""Two sets of numbers, as written and as read, that have nothing in common."""
_UTC: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Matched:
    """The rows of a batch that are proven readings, and what varies in them, all of one length.

    ``rows`` (ascending) are indices into the batch; ``kinds`` are indices into ``templates``, the readings
    that hold everything else. ``time`` has microseconds.
    """

    rows: Any
    kinds: Any
    templates: list[Reading]
    time: Any
    value: Any
    raw: Any
    seq: Any


@dataclass(frozen=True)
class _Cut:
    """Rows with all four places: their templates and the texts that were cut out, four a row."""

    rows: Any
    templates: Any
    texts: Any
    is_null: Any


def _bytes_of(values: Any) -> tuple[Any, Any]:
    """The bytes of a binary array without nulls, a word of zeros behind them, and its offsets."""
    _, offsets, data = values.buffers()
    at = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    first, last = int(at[0]), int(at[-1])
    padded = np.zeros(last - first + _WORD, np.uint8)
    if last > first:
        padded[:-_WORD] = np.frombuffer(data, np.uint8)[first:last]
    return padded, at - first


def _words(data: Any, at: Any) -> Any:
    """The eight bytes from each of these places on, as one little-endian number."""
    every = np.ndarray((len(data) - _WORD + 1,), np.dtype("<u8"), data.data, 0, (1,))
    return every[at]


def _cut(values: Any) -> _Cut | None:
    """Cuts the four texts out of all rows that have the four keys once each, in the usual order."""
    data, offsets = _bytes_of(values)
    commas = np.flatnonzero(data == _COMMA)
    if not commas.size:
        return None
    words = _words(data, commas + 1)
    found = np.empty((_SLOTS, len(values)), np.int64)
    good = np.ones(len(values), bool)
    for slot, key in enumerate(_KEYS):
        mask = np.uint64((1 << 8 * len(key)) - 1)
        hits = np.flatnonzero((words & mask) == np.uint64(int.from_bytes(key, "little")))
        if len(hits) == len(values):
            place = commas[hits]
            if (place >= offsets[:-1]).all() and (place < offsets[1:]).all():
                found[slot] = hits
                continue
        owner = np.searchsorted(offsets, commas[hits], "right") - 1
        good &= np.bincount(owner, minlength=len(values)) == 1
        found[slot, owner] = hits
    rows = np.flatnonzero(good)
    if len(rows) < len(values):
        found = found[:, rows]
    if not len(rows):
        return None
    last = len(commas) - 1
    begins = commas[found] + 1 + np.array([[len(key)] for key in _KEYS])
    ends = commas[np.minimum(found + 1, last)]
    ends[0] -= _AFTER_TIME
    whole = (found[-1] < last) & (ends > begins).all(axis=0) & (ends[-1] < offsets[rows + 1])
    whole &= (begins[1:] > ends[:-1]).all(axis=0)
    if not whole.all():
        rows, begins, ends = rows[whole], begins[:, whole], ends[:, whole]
        if not len(rows):
            return None
    return _split(data, offsets, rows, begins.T, ends.T)


def _split(data: Any, offsets: Any, rows: Any, begins: Any, ends: Any) -> _Cut:
    """Templates and texts of these rows, given where each text begins and ends (a row's in one line)."""
    is_null = (ends - begins == 4) & ((_words(data, begins) & np.uint64(0xFFFFFFFF)) == np.uint64(_NULL))
    # A null stays in its template; of a number the first byte stays, as the mark.
    first, last = offsets[rows], offsets[rows + 1]
    cut_from = np.where(is_null, ends, begins + 1)
    edges = np.empty((len(rows), 2 * _SLOTS + 2), np.int64)
    edges[:, 0], edges[:, -1] = first, last
    edges[:, 1:-1:2], edges[:, 2:-1:2] = cut_from, ends
    # What lies between the rows that are looked at is cut out too.
    bounds = np.concatenate(([0], edges.ravel(), [len(data)]))
    keep = np.zeros(len(bounds) - 1, bool)
    keep[1::2] = True
    texts = _slices(data, begins.ravel(), ends.ravel())
    marked = data.copy()
    marked[begins[~is_null]] = _MARK
    templates = marked[np.repeat(keep, np.diff(bounds))]
    lengths = (last - first) - (ends - cut_from).sum(axis=1)
    return _Cut(rows, _binary(templates, lengths, pa.binary()), texts, is_null)


def _slices(data: Any, begins: Any, ends: Any) -> Any:
    """Stretches of the bytes as an array of texts."""
    lengths = ends - begins
    behind = np.cumsum(lengths)
    every = np.arange(behind[-1]) + np.repeat(begins - (behind - lengths), lengths)
    return _binary(data[every], lengths, pa.string())


def _binary(data: Any, lengths: Any, kind: Any) -> Any:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    # Texts that aren't UTF-8 match no pattern.
    return pa.Array.from_buffers(kind, len(lengths), buffers)


def _proven(template: bytes) -> Reading | None:
    """A reading of this template, if its marks are the four fields and ``parse_reading`` takes it."""
    parts = template.split(bytes([_MARK]))
    readings = []
    for texts, (time_us, value, raw, seq) in _SAMPLES:
        values: list[float | None] = [value, raw]
        given = list(texts)
        # A number that is null stands in the template: value and raw are the second and third place.
        for place, key in ((2, b'"raw":null'), (1, b'"value":null')):
            if b"," + key in template:
                del given[place]
                values[place - 1] = None
        if len(parts) != len(given) + 1:
            return None
        sample = b"".join(piece for pair in zip(parts, [*given, b""], strict=True) for piece in pair)
        try:
            reading = parse_reading(sample)
        except InvalidReading:
            return None
        if (reading.time_us, reading.value, reading.raw, reading.seq) != (time_us, *values, seq):
            return None
        readings.append(reading)
    first, second = readings
    varied = {"time_us": first.time_us, "value": first.value, "raw": first.raw, "seq": first.seq}
    return first if replace(second, **varied) == first else None  # type: ignore[arg-type]


class Templates:
    """The templates a worker knows; ``most`` bounds how many, beyond that all are learnt anew."""

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._known: dict[bytes, Reading | None] = {}
        # Proving costs as much as reading two payloads: a template is worth it when it is met again.
        self._met: set[int] = set()

    def match(self, values: Any, received: Any) -> Matched | None:
        """The readings among these payloads (a binary array); ``received``: Kafka's times.

        Null payloads and those without a time of receipt are left alone.
        """
        lengths = pc.binary_length(values)
        known = pc.and_(pc.less_equal(lengths, MAX_READING_BYTES), received.is_valid())
        usable = np.flatnonzero(pc.fill_null(known, False).to_numpy(zero_copy_only=False))
        whole = len(usable) == len(values)
        cut = _cut(values if whole else values.take(pa.array(usable)))
        if cut is None:
            return None
        coded = cut.templates.dictionary_encode()
        kinds = coded.indices.to_numpy()
        found = self._look_up(coded.dictionary.to_pylist(), np.bincount(kinds))
        chosen = np.array([template is not None for template in found])[kinds]
        rows = cut.rows if whole else usable[cut.rows]
        return _plain(rows, kinds, found, cut, chosen, received)

    def _look_up(self, templates: list[bytes], counts: Any) -> list[Reading | None]:
        if len(self._known) > self._most:
            self._known.clear()
        if len(self._met) > self._most:
            self._met.clear()
        found: list[Reading | None] = []
        for template, count in zip(templates, counts.tolist(), strict=True):
            if template not in self._known:
                name = hash(template)
                if count == 1 and name not in self._met:
                    self._met.add(name)
                    found.append(None)
                    continue
                self._known[template] = _proven(template)
            found.append(self._known[template])
        return found


def _numbers(texts: Any, is_null: Any) -> tuple[Any, Any]:
    """Doubles, and which of them stand for themselves (null or plainly written)."""
    plain = pc.match_substring_regex(texts, _NUMBER).to_numpy(zero_copy_only=False)
    return pc.if_else(pa.array(plain), texts, None).cast(pa.float64()), plain | is_null


def _plain(
    rows: Any, kinds: Any, templates: list[Reading | None], cut: _Cut, chosen: Any, received: Any
) -> Matched | None:
    """Of the rows whose template is proven those whose four texts are plainly written and in range."""
    at = np.arange(0, _SLOTS * len(rows), _SLOTS)[chosen]
    if not at.size:
        return None
    rows, kinds, is_null = rows[chosen], kinds[chosen], cut.is_null[chosen]
    times, values, raws, seqs = (cut.texts.take(pa.array(at + slot)) for slot in range(_SLOTS))
    value, good = _numbers(values, is_null[:, 1])
    raw, good_raw = _numbers(raws, is_null[:, 2])
    good_time = pc.match_substring_regex(times, _TIME)
    good_seq = pc.match_substring_regex(seqs, _SEQ)
    time = pc.if_else(good_time, times, None).cast(_UTC)
    seq = pc.if_else(good_seq, seqs, None).cast(pa.int64())
    time_us = time.cast(pa.int64())
    latest_us = pc.add(received.take(pa.array(rows)).cast(pa.int64()), MAX_AHEAD_US)
    timely = pc.and_(pc.greater_equal(time_us, OLDEST_TIME_US), pc.less_equal(time_us, latest_us))
    # A time or seq that isn't plain is null by now, and so is what is compared with it.
    sound = pc.fill_null(pc.and_(timely, seq.is_valid()), False).to_numpy(zero_copy_only=False)
    good = good & good_raw & sound
    proven = [template for template in templates if template is not None]
    renumbered = np.cumsum([template is not None for template in templates]) - 1
    columns = (time, value, raw, seq)
    if not good.all():
        kept = pa.array(np.flatnonzero(good))
        rows, kinds = rows[good], kinds[good]
        columns = tuple(column.take(kept) for column in columns)
        if not len(rows):
            return None
    return Matched(rows, renumbered[kinds], proven, *columns)
