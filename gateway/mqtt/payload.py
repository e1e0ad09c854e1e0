"""What other devices' payloads hold: a number, or a number (and perhaps a time) somewhere in a JSON document.

Pure. A payload without it raises InvalidReading, whose reason becomes a dead letter's.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Final

from cloud.wire.reading_records import OLDEST_TIME_US, InvalidReading, parse_time
from gateway.config.bridges.model import DropIf, ForwardConfig

_NUMBER: Final = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE
)
# No double needs more digits, and one that has them is no sensor's.
_MAX_NUMBER_BYTES: Final = 512
# 1e11 s is the year 5138, 1e11 ms is 1973: between 2000 and then the two can't be mistaken for each other.
_FIRST_MILLISECONDS: Final = 1e11
_LATEST_TIME_US: Final = 253_402_300_799_999_999


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
    """The number or the JSON document that a payload of a forward is. Raises InvalidReading."""
    return parse_document(payload) if forward.payload == "json" else parse_number(payload)


def measure(parsed: object, forward: ForwardConfig) -> Measured:
    """The measurement in a parsed payload of a ``number`` or ``json`` forward.

    Raises InvalidReading; AbsentValue where nothing, or null, stands at an optional path.
    """
    path, found, time_us = forward.path or "", parsed, None
    if forward.payload == "json":
        found = _optional(parsed, path) if forward.optional else find(parsed, path)
    raw = _as_number(found, path)
    if forward.time_path is not None:
        time_us = _as_time_us(find(parsed, forward.time_path), forward.time_path)
    value = raw * forward.scale + forward.offset
    if not math.isfinite(value):
        raise InvalidReading("NOT_FINITE", f"{raw} is not finite after scale and offset")
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


def parse_number(payload: bytes) -> float:
    """The one decimal number that a payload is, white space around it allowed. Raises InvalidReading."""
    if len(payload) > _MAX_NUMBER_BYTES:
        raise InvalidReading("NOT_A_NUMBER", f"{len(payload)} bytes are no number")
    text = _text(payload)
    if _NUMBER.fullmatch(text) is None:
        raise InvalidReading("NOT_A_NUMBER", f"{text[:40]!r} is no decimal number")
    return _finite(float(text), text[:40])


def parse_document(payload: bytes) -> object:
    """The JSON document that a payload is. Raises InvalidReading.

    NaN and Infinity, which some devices send though JSON has none, matter only at a forward's path.
    """
    text = _text(payload)
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
    except InvalidReading:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidReading("NOT_JSON", str(error)) from error


def _text(payload: bytes) -> str:
    try:
        text = payload.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise InvalidReading("NOT_UTF8", f"byte {error.start} is not UTF-8") from error
    if not text:
        raise InvalidReading("EMPTY", "the payload is empty")
    return text


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise InvalidReading("DUPLICATE_FIELD", "a field stands twice in one object")
    return fields


def find(document: object, path: str) -> object:
    """What stands at a path: keys and positions with dots between. Raises InvalidReading."""
    found = document
    for level in path.split("."):
        if isinstance(found, dict) and level in found:
            found = found[level]
        elif isinstance(found, list) and level.isascii() and level.isdigit() and int(level) < len(found):
            found = found[int(level)]
        else:
            raise InvalidReading("NO_SUCH_PATH", f"there is nothing at {path}")
    return found


def _optional(document: object, path: str) -> object:
    try:
        found = find(document, path)
    except InvalidReading as problem:
        raise AbsentValue(problem.reason, problem.detail) from problem
    if found is None:
        raise AbsentValue("NO_SUCH_PATH", f"null stands at {path}")
    return found


def _as_number(found: object, path: str) -> float:
    # A JSON true is a Python int.
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise InvalidReading("NOT_A_NUMBER", f"a JSON {_kind(found)} stands at {path}")
    try:
        return _finite(float(found), path)
    except OverflowError as error:
        raise InvalidReading("NOT_FINITE", f"{path} is too large for a double") from error


def _as_time_us(found: object, path: str) -> int:
    """RFC 3339 with a zone, or seconds or milliseconds since the epoch."""
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        raise InvalidReading("BAD_TIME", f"a JSON {_kind(found)} stands at {path}")
    try:
        if isinstance(found, str):
            time_us = parse_time(found)
        else:
            time_us = round(found * (1_000_000 if abs(found) < _FIRST_MILLISECONDS else 1_000))
    except (ValueError, OverflowError) as error:
        raise InvalidReading("BAD_TIME", f"{path}: {error}") from error
    if time_us < OLDEST_TIME_US:
        raise InvalidReading("TIME_TOO_OLD", f"{path} is before 2000")
    if time_us > _LATEST_TIME_US:
        raise InvalidReading("BAD_TIME", f"{path} is after the year 9999")
    return time_us


def _finite(number: float, what: str) -> float:
    if not math.isfinite(number):
        raise InvalidReading("NOT_FINITE", f"{what} is not finite")
    return number


def _kind(found: object) -> str:
    names = {type(None): "null", bool: "boolean", str: "string", dict: "object", list: "array"}
    return names.get(type(found), "number")
