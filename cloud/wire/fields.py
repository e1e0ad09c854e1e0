"""Strict JSON for all that is on the wire: one object, typed fields, finite numbers, times with a zone.

The structs of the records' modules have the fields and their types; msgspec decodes and encodes
them. Whatever is not what it claims to be raises InvalidFields with a word for tables and a sentence for
people; nothing is guessed. The last counts of a key that stands twice in an object.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec

from cloud.wire.bounds import FIRST_YEAR, LAST_YEAR, TIMES_US

_RFC3339: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:[0-5]\d)", re.ASCII | re.IGNORECASE
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_DEPTH: Final = 32
"""How deep an unknown field may be nested: a bound of our own, so that it doesn't depend on a stack's."""
MAX_LABEL: Final = 64
"""Characters of a label that has no bound of its own."""

_NO_NUMBER: Final = re.compile(rb"NaN|Infinity")
_REASONS: Final = (
    ("Object missing", "MISSING_FIELD"),
    ("Number out of range", "NOT_FINITE"),
    ("Expected `str` matching", "BAD_NAME"),
    ("Expected `str` of length", "BAD_NAME"),
    ("Invalid enum value '", "BAD_NAME"),
    ("Invalid enum value", "OUT_OF_RANGE"),
    ("Expected `int` <", "OUT_OF_RANGE"),
    ("Expected `int` >", "OUT_OF_RANGE"),
    ("Expected `float` <", "OUT_OF_RANGE"),
    ("Expected `float` >", "OUT_OF_RANGE"),
    ("Invalid RFC3339 encoded date", "BAD_TIME"),
)
"""How msgspec's sentences begin, and our words for them; any other is about a type."""

_LISTS: Final = (list, tuple)
UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises over bytes that aren't what a decoder is for."""


class InvalidFields(ValueError):
    """Bytes that are not what they should be: ``reason`` is a word for tables, ``detail`` for people."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def format_time(time_us: int) -> str:
    """RFC 3339 in UTC with milliseconds (microseconds where there are any)."""
    spec = "microseconds" if time_us % 1000 else "milliseconds"
    moment = _EPOCH + timedelta(microseconds=time_us)
    return moment.isoformat(timespec=spec).removesuffix("+00:00") + "Z"


def parse_time(text: str) -> int:
    """Microseconds since the epoch of an RFC 3339 time with a zone. Raises ValueError."""
    if _RFC3339.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is not RFC 3339 with a time zone")
    since = datetime.fromisoformat(text.upper()) - _EPOCH
    time_us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if time_us not in TIMES_US:
        raise ValueError(f"{text[:40]!r} is outside the years {FIRST_YEAR} to {LAST_YEAR} in UTC")
    return time_us


def time_of(name: str, text: str) -> int:
    """Microseconds since the epoch of a field's text."""
    try:
        return parse_time(text)
    except (ValueError, OverflowError) as error:
        raise InvalidFields("BAD_TIME", f"{name}: {error}") from error


def check_name(name: str, text: str, pattern: re.Pattern[str]) -> None:
    """Refuse a text that isn't wholly of this pattern."""
    if pattern.fullmatch(text) is None:
        raise InvalidFields("BAD_NAME", f"{name} {text[:40]!r} does not match {pattern.pattern}")


def check_label(name: str, text: str | None, longest: int = MAX_LABEL) -> None:
    """Refuse a text for people that is too long or has what can't be printed."""
    if text is not None and (len(text) > longest or not text.isprintable()):
        raise InvalidFields("BAD_NAME", f"{name} must be at most {longest} printable characters")


def load_object(payload: bytes, decode: Callable[[bytes], Any] = msgspec.json.decode) -> dict[str, Any]:
    """Exactly one JSON object, or InvalidFields."""
    if not payload.strip():
        raise InvalidFields("EMPTY", "the payload is empty")
    try:
        payload.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidFields("NOT_UTF8", f"byte {error.start} is not UTF-8") from error
    try:
        fields = decode(payload)
    except UNDECODABLE as error:
        raise InvalidFields(_reason_of_syntax(payload, str(error)), str(error)) from error
    if not isinstance(fields, dict):
        raise InvalidFields("NOT_AN_OBJECT", f"a JSON {type(fields).__name__} is no object")
    return fields


def _reason_of_syntax(payload: bytes, problem: str) -> str:
    if problem.startswith("Number out of range"):
        return "NOT_FINITE"
    if "trailing characters" in problem:
        return "TRAILING_BYTES"
    place = re.search(r"invalid character \(byte (\d+)\)", problem)
    return "NOT_FINITE" if place and _NO_NUMBER.match(payload, int(place[1])) else "NOT_JSON"


def to_json(fields: dict[str, Any]) -> bytes:
    """The bytes of a record. Raises ValueError where a number isn't finite: JSON can't write it."""
    _check_finite(fields.values())
    return msgspec.json.encode(fields)


def _check_finite(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError(f"{value} is not JSON compliant")
        elif isinstance(value, dict):
            _check_finite(value.values())
        elif isinstance(value, _LISTS):
            _check_finite(value)


def split_object(
    payload: bytes, max_bytes: int, names: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The fields of these names in one JSON object, and what else there is. Raises InvalidFields."""
    if len(payload) > max_bytes:
        raise InvalidFields("TOO_LARGE", f"{len(payload)} bytes, at most {max_bytes}")
    fields = load_object(payload)
    known = {name: fields.pop(name) for name in names if name in fields}
    _check_depth(fields)
    return known, fields or None


def _check_depth(fields: dict[str, Any]) -> None:
    level: list[Any] = [fields]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
        if not below:
            return
        level = below
    raise InvalidFields("NOT_JSON", f"an unknown field is nested over {MAX_DEPTH} deep")


T = TypeVar("T")


def convert(fields: dict[str, Any], kind: type[T]) -> T:
    """A struct or dataclass of fields that are decoded already. Raises InvalidFields."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        problem = str(error)
        reason = next((word for sign, word in _REASONS if problem.startswith(sign)), "WRONG_TYPE")
        raise InvalidFields(reason, problem) from error
