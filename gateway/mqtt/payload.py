"""What other devices' payloads hold, and what the steps of a forward make of them. Pure.

A payload is a number, or a JSON document with a number (and perhaps a time) somewhere. Devices print JSON by
hand: a value that is none (``nan``, nothing) costs itself, the others stay. A payload without the number
raises InvalidReading, whose reason becomes a dead letter's.

Steps are compiled once for each topic. All that they don't name stays as it came, numbers with all their
digits. Where a list stands on the way to a field, ``keep``, ``drop`` and ``mask`` go through it: a field that
must not leave the mast is found in each of its objects.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial, reduce
from operator import delitem
from typing import Any, Final

import msgspec

from cloud.wire.bounds import LAST_YEAR, TIMES_US, is_within
from cloud.wire.fields import load_object
from cloud.wire.reading_records import OLDEST_TIME_US, InvalidReading
from gateway.config.bridges.model import DropIf, ForwardConfig, Step
from gateway.config.values import EACH, path_levels

_NUMBER: Final = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE
)
# No double needs more digits, and one that has them is no sensor's.
_MAX_NUMBER_BYTES: Final = 512
_BLANK: Final = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\ufeff\0"
"""White space, a byte order mark, a C string's end."""
_MARGIN: Final = _BLANK + "".join(map(chr, range(0x20)))
"""What may stand around a payload, STX and ETX of a serial line too."""
_LITERAL: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null", re.ASCII)
# Possessive, and a string ends with the payload, so that each byte is looked at a fixed number of times.
_TOKEN: Final = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*+(?:"|\\?\Z))|(?P<bare>(?<=:)[^"{}\[\],]++|[^ \t\r\n"{}\[\],:]++)'
    r"|(?P<gap>[:,\[](?=[ \t\r\n]*+,)|:(?=[ \t\r\n]*+[}\]]))|(?P<last>,(?=[ \t\r\n]*+[}\]]))",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?|[\x00-\x1f]')
# 1e11 s is the year 5138, 1e11 ms is 1973, and so on: between 2000 and then no two can be mistaken for each
# other.
_FIRST_MILLISECONDS, _FIRST_MICROSECONDS, _FIRST_NANOSECONDS = 1e11, 1e14, 1e17
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?) ?(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII | re.IGNORECASE,
)
_EPOCH_TIME: Final = re.compile(r"\d{1,20}(?:\.\d{1,9})?", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STATES: Final[Mapping[str, float]] = {"on": 1.0, "true": 1.0, "off": 0.0, "false": 0.0}
NO_BATCH: Final = (None,)
"""Stands in place of positions in an array."""
_MOST_ITEMS: Final = 10_000
"""The bound of a message, and of a request by HTTP."""


@dataclass(frozen=True, slots=True)
class Measured:
    """``raw`` as it stands in the payload, ``value`` after scale and offset.

    ``time_us`` is the payload's own time, microseconds since the epoch, None where it has none.
    """

    raw: float
    value: float
    time_us: int | None


class AbsentValue(InvalidReading):
    """Nothing, or null, stands at an optional path."""


def parse(payload: bytes, forward: ForwardConfig) -> object:
    """The text or the JSON document that a payload of a forward is. Raises InvalidReading."""
    return parse_document(payload) if forward.payload == "json" else _text(payload)


def items(parsed: object, forward: ForwardConfig) -> Sequence[int | None]:
    """The positions of a batch's readings in their array, in the order of time; None alone without any.

    Raises InvalidReading where they are too many.
    """
    path, time_path = forward.path or "", forward.time_path or ""
    before = path_levels(path)[: path_levels(path).index(EACH)]
    found = None
    with suppress(InvalidReading):
        found = find(parsed, ".".join(f'"{level}"' for level in before)) if before else parsed
    if not isinstance(found, list) or not found:
        return NO_BATCH
    if len(found) > _MOST_ITEMS:
        raise InvalidReading("TOO_LARGE", f"{len(found)} readings at {path}, at most {_MOST_ITEMS}")

    def order(item: int) -> float:
        try:
            return _as_time_us(find(parsed, time_path, item), time_path, forward.utc_offset)
        except InvalidReading:
            return math.inf

    return sorted(range(len(found)), key=order)


def measure(
    parsed: object, forward: ForwardConfig, item: int | None = None, *, state: bool = False
) -> Measured:
    """The measurement in a parsed payload of a ``number`` or ``json`` forward; ``item``: of an array.

    ``state``: a state, which may be ON or OFF, true or false. Raises InvalidReading; AbsentValue where
    nothing, or null, stands at an optional path.
    """
    path, found, time_us = forward.path or "", parsed, None
    if forward.payload == "json":
        found = _optional(parsed, path, item) if forward.optional else find(parsed, path, item)
    raw = _as_number(found, path, forward.words, state=state)
    if forward.time_path is not None:
        at = find(parsed, forward.time_path, item)
        time_us = _as_time_us(at, forward.time_path, forward.utc_offset)
    value = raw * forward.scale + forward.offset
    if not is_within(value):
        raise InvalidReading("OUT_OF_RANGE", f"{raw} is beyond all bounds after scale and offset")
    return Measured(raw, value, time_us)


def unwanted(value: float, drop_if: DropIf | None) -> bool:
    """Whether a value is one that the config excludes."""
    if drop_if is None:
        return False
    return (
        (drop_if.below is not None and value < drop_if.below)
        or (drop_if.above is not None and value > drop_if.above)
        or (drop_if.equals is not None and value == drop_if.equals)
    )


def parse_document(payload: bytes) -> object:
    """The JSON document that a payload is. Raises InvalidReading.

    What isn't JSON is read as far as it can be read in one way alone.
    """
    try:
        return json.loads(_text(payload), object_pairs_hook=_unique_keys)
    except RecursionError as error:
        raise InvalidReading("NOT_JSON", str(error)) from error
    except ValueError as error:
        problem = error if isinstance(error, InvalidReading) else InvalidReading("NOT_JSON", str(error))
    with suppress(ValueError, RecursionError):
        found: object = json.loads(mended(payload), object_pairs_hook=_unique_keys)
        if isinstance(found, dict | list):
            return found
    raise problem


def mended(payload: bytes) -> str:
    """A document in which what is no JSON value is a text, so that its neighbours can be read.

    Nothing where a value should be is an empty text; a comma before a bracket, and what comes after a C
    string's end, goes; bytes that aren't UTF-8 are replaced.
    """
    text = payload.decode("utf-8", "replace").strip(_MARGIN).partition("\0")[0]
    return _TOKEN.sub(_mend, text)


def _mend(found: re.Match[str]) -> str:
    part, kind = found[0], found.lastgroup
    if kind == "text":
        return _ESCAPE.sub(_escape, part)
    if kind == "bare":
        bare = part.strip(_BLANK)
        is_value = not bare or (len(bare) < _MAX_NUMBER_BYTES and _LITERAL.fullmatch(bare) is not None)
        return bare if is_value else json.dumps(bare.strip("'"))
    return f'{part}""' if kind == "gap" else ""


def _escape(found: re.Match[str]) -> str:
    if found[0][0] != "\\":
        return f"\\u{ord(found[0]):04x}"
    return found[0] if found[1] else "\\\\"


def _text(payload: bytes) -> str:
    try:
        text = payload.decode("utf-8").strip(_MARGIN)
    except UnicodeDecodeError as error:
        raise InvalidReading("NOT_UTF8", f"byte {error.start} is not UTF-8") from error
    if not text:
        raise InvalidReading("EMPTY", "the payload is empty")
    return text


class _Twice:
    """Stands for the values of a key that stands twice in an object with two values."""


_TWICE: Final = _Twice()


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        for key, value in pairs:
            # A JSON true equals 1 for Python, and no nan equals another.
            if repr(value) != repr(fields[key]):
                fields[key] = _TWICE
    return fields


def find(document: object, path: str, item: int | None = None) -> object:
    """What stands at a path: keys and positions with dots between. Raises InvalidReading."""
    found, levels = document, path_levels(path)
    if item is not None:
        levels = tuple(str(item) if level == EACH else level for level in levels)
    for level in levels:
        if isinstance(found, dict) and level in found:
            found = found[level]
        elif isinstance(found, list) and level.isascii() and level.isdigit() and int(level) < len(found):
            found = found[int(level)]
        else:
            raise _wrong(found, path, "NO_SUCH_PATH", f"there is nothing at {path}{_hint(found, levels)}")
    return found


def _hint(found: object, levels: Sequence[str]) -> str:
    """What to write where dots of a key were taken for those between keys."""
    ends = range(2, len(levels) + 1)
    keys = (".".join(levels[begin:end]) for end in ends for begin in range(end - 1))
    key = next((key for key in keys if isinstance(found, dict) and key in found), None)
    return "" if key is None else f': write the key in quotes, "{key}"'


def _wrong(found: object, path: str, reason: str, detail: str) -> InvalidReading:
    if found is _TWICE:
        return InvalidReading("DUPLICATE_FIELD", f"a key on the way to {path} stands twice, with two values")
    return InvalidReading(reason, detail)


def _optional(document: object, path: str, item: int | None) -> object:
    try:
        found = find(document, path, item)
    except InvalidReading as problem:
        if problem.reason != "NO_SUCH_PATH":
            raise
        raise AbsentValue(problem.reason, problem.detail) from problem
    if found is None:
        raise AbsentValue("NO_SUCH_PATH", f"null stands at {path}")
    return found


def _as_number(found: object, path: str, words: Mapping[str, float] | None, *, state: bool) -> float:
    kind = type(found)
    try:
        if kind is float or kind is int:
            return _bounded(float(found), path)  # type: ignore[arg-type]
    except OverflowError as error:
        raise InvalidReading("NOT_FINITE", f"{path} is too large for a double") from error
    text = str(found).strip() if isinstance(found, str | bool) else None
    if text is not None and (words is not None or state):
        known = {word.casefold(): number for word, number in (words or {}).items()}
        number = ({**_STATES, **known} if state else known).get(text.casefold())
        if number is not None:
            return number
    if text is None or isinstance(found, bool):
        raise _wrong(found, path, "NOT_A_NUMBER", f"a JSON {_kind(found)} stands at {path}")
    if len(text) > _MAX_NUMBER_BYTES or _NUMBER.fullmatch(text) is None:
        where = f" at {path}" if path else ""
        raise InvalidReading("NOT_A_NUMBER", f"{text[:40]!r}{where} is no decimal number")
    return _bounded(float(text), path or text[:40])


def _as_time_us(found: object, path: str, offset: str | None) -> int:
    """ISO 8601 with a zone, or with the offset, or seconds, milli-, micro- or nanoseconds since the epoch."""
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        raise _wrong(found, path, "BAD_TIME", f"a JSON {_kind(found)} stands at {path}")
    try:
        time_us = _of_text(found.strip(), offset) if isinstance(found, str) else _since_epoch(found)
    except (ValueError, OverflowError) as error:
        raise InvalidReading("BAD_TIME", f"{path}: {error}") from error
    if time_us < OLDEST_TIME_US:
        raise InvalidReading("TIME_TOO_OLD", f"{path} is before 2000")
    if time_us >= TIMES_US.stop:
        raise InvalidReading("BAD_TIME", f"{path} is after the year {LAST_YEAR}")
    return time_us


def _of_text(text: str, offset: str | None) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        if _EPOCH_TIME.fullmatch(text):
            return _since_epoch(int(text) if text.isdigit() else float(text))
        raise ValueError(f"{text[:40]!r} is no time such as 2026-11-21T07:35:00Z")
    moment, zone = match[1], match[2] or offset
    if zone is None:
        raise ValueError(f"{text[:40]!r} has no time zone, and utc_offset doesn't say it")
    since = datetime.fromisoformat(moment + (zone if zone[0] in "+-" else "Z")) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _since_epoch(number: float) -> int:
    size = abs(number)
    if size < _FIRST_MILLISECONDS:
        return round(number * 1_000_000)
    if size < _FIRST_MICROSECONDS:
        return round(number * 1_000)
    return round(number if size < _FIRST_NANOSECONDS else number / 1_000)


def _bounded(number: float, what: str) -> float:
    if not math.isfinite(number):
        raise InvalidReading("NOT_FINITE", f"{what} is not finite")
    if not is_within(number):
        raise InvalidReading("OUT_OF_RANGE", f"{what} is beyond all bounds")
    return number


def _kind(found: object) -> str:
    names = {type(None): "null", bool: "boolean", str: "string", dict: "object", list: "array"}
    return names.get(type(found), "number")


MASK: Final = "***"

Fields = dict[str, Any]
Levels = tuple[str, ...]
Change = Callable[[Any], bool]
"""Changes a document in place; False where its message is not to go on."""

_decode: Final = msgspec.json.Decoder(float_hook=Decimal).decode
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


def compiled(steps: Iterable[Step], fill: Callable[[str], str]) -> tuple[Change, ...]:
    """The steps as functions; ``fill`` puts into a text what stands for the topic's wildcards."""
    return tuple(_compile(step, fill) for step in steps)


def apply(changes: Iterable[Change], document: Any) -> bool:
    """Change a document; False where its message is not to go on. Raises InvalidReading."""
    return all(change(document) for change in changes)


def nested(fields: Mapping[str, Any]) -> Fields:
    """Values by path as an object."""
    made: Fields = {}
    _set([(path_levels(path), value) for path, value in fields.items()], made)
    return made


def transform(changes: Iterable[Change], payload: bytes) -> bytes | None:
    """The payload that goes on, None where the message doesn't. Raises InvalidReading."""
    try:
        try:
            fields = load_object(payload, _decode)
        except InvalidReading as problem:
            fields = _mended(payload, problem)
        return _encode(fields) if apply(changes, fields) else None
    except ArithmeticError as error:
        raise InvalidReading("NOT_FINITE", "a number's exponent is beyond all bounds") from error
    except RecursionError as error:
        raise InvalidReading("NOT_JSON", "is nested too deeply") from error


def _mended(payload: bytes, problem: InvalidReading) -> Fields:
    """Reads a message that a bare nan keeps from being JSON: no field may be lost for that."""
    try:
        return load_object(mended(payload).encode(), _decode)
    except InvalidReading:
        raise problem from None


def hides(steps: Iterable[Step]) -> bool:
    """Whether something of a message must not leave."""
    return any(step.keep or step.drop or step.mask for step in steps)


def _compile(step: Step, fill: Callable[[str], str]) -> Change:
    if step.where is not None:
        return partial(_holds, _conditions(step.where))
    if step.unless is not None:
        excluded = _conditions(step.unless)
        return lambda document: not _holds(excluded, document)
    if step.keep is not None:
        return partial(_keep, _tree(step.keep))
    for paths, act in ((step.drop, delitem), (step.mask, _mask)):
        if paths is not None:
            return partial(_at_each, act, [path_levels(path) for path in paths])
    if step.rename is not None:
        return partial(_rename, [(path_levels(old), path_levels(new)) for old, new in step.rename.items()])
    values = {
        path: fill(value) if isinstance(value, str) else value for path, value in (step.set or {}).items()
    }
    return partial(_set, [(path_levels(path), value) for path, value in values.items()])


def _conditions(fields: Mapping[str, Any]) -> list[tuple[str, frozenset[tuple[bool, Any]]]]:
    return [
        (path, frozenset(_comparable(each) for each in (value if isinstance(value, list) else [value])))
        for path, value in fields.items()
    ]


def _comparable(value: Any) -> tuple[bool, Any]:
    """A JSON true is a Python 1, and 0.1 is another number with all the digits of a double."""
    return isinstance(value, bool), float(value) if isinstance(value, Decimal) else value


def _holds(conditions: Iterable[tuple[str, frozenset[tuple[bool, Any]]]], document: Any) -> bool:
    for path, allowed in conditions:
        try:
            found = find(document, path)
        except InvalidReading:
            return False
        if isinstance(found, dict | list) or _comparable(found) not in allowed:
            return False
    return True


def _tree(paths: Iterable[str]) -> Fields:
    """Paths as nested names, of which the last are empty."""
    tree: Fields = {}
    for path in paths:
        reduce(lambda branch, level: branch.setdefault(level, {}), path_levels(path), tree)
    return tree


def _keep(tree: Fields, fields: Fields) -> bool:
    kept = _kept(fields, tree)
    fields.clear()
    fields.update(kept)
    return True


def _kept(found: Any, tree: Fields) -> Any:
    """What a tree names of an object, or of each object in a list; what has no fields is left out."""
    if isinstance(found, list):
        return [_kept(each, tree) for each in found if isinstance(each, dict | list)]
    return {
        name: _kept(value, tree[name]) if tree[name] else value
        for name, value in found.items()
        if name in tree and (not tree[name] or isinstance(value, dict | list))
    }


def _holders(found: Any, path: Levels) -> Iterator[Fields]:
    """The objects that have the last name of a path."""
    if isinstance(found, list):
        for each in found:
            yield from _holders(each, path)
    elif isinstance(found, dict) and path[0] in found:
        if len(path) == 1:
            yield found
        else:
            yield from _holders(found[path[0]], path[1:])


def _mask(holder: Fields, name: str) -> None:
    holder[name] = MASK


def _at_each(act: Callable[[Fields, str], None], paths: Iterable[Levels], fields: Fields) -> bool:
    for path in paths:
        for holder in _holders(fields, path):
            act(holder, path[-1])
    return True


def _rename(names: Iterable[tuple[Levels, Levels]], fields: Fields) -> bool:
    # All are taken before the first is put back: two may exchange their names.
    moved = []
    for old, new in names:
        holder: Any = fields
        for level in old[:-1]:
            holder = holder.get(level) if isinstance(holder, dict) else None
        if isinstance(holder, dict) and old[-1] in holder:
            moved.append((new, holder.pop(old[-1])))
    for new, value in moved:
        holder = _object_for(new, fields)
        if new[-1] in holder:
            raise InvalidReading("FIELD_EXISTS", f"there is something at {'.'.join(new)} already")
        holder[new[-1]] = value
    return True


def _set(values: Iterable[tuple[Levels, Any]], fields: Fields) -> bool:
    for path, value in values:
        _object_for(path, fields)[path[-1]] = value
    return True


def _object_for(path: Levels, fields: Fields) -> Fields:
    """The object that a path's last name belongs into, made where there is none."""
    for level in path[:-1]:
        fields = fields.setdefault(level, {})
        if not isinstance(fields, dict):
            raise InvalidReading("NOT_AN_OBJECT", f"there is no object at {level} of {'.'.join(path)}")
    return fields
