"""Strict JSON for all that is on the wire: one object, typed fields, finite numbers, times with a zone.

Pure: standard library only. Whatever can't be taken for what it claims to be raises InvalidFields with a word
for tables and a sentence for people; nothing is guessed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

_RFC3339: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)
_WRITABLE_TIMES_US: Final = range(-62_135_596_800_000_000, 253_402_300_800_000_000)
"""The years 1 to 9999 in UTC: no other time can be written in RFC 3339."""
MAX_DEPTH: Final = 32
"""How deep an unknown field may be nested."""


class InvalidFields(ValueError):
    """Bytes that are not what they should be: ``reason`` is a word for tables, ``detail`` for people."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def format_time(time_us: int) -> str:
    """RFC 3339 in UTC with milliseconds (microseconds where there are any)."""
    spec = "microseconds" if time_us % 1000 else "milliseconds"
    moment = datetime.fromtimestamp(time_us // 1_000_000, UTC).replace(microsecond=time_us % 1_000_000)
    return moment.isoformat(timespec=spec).replace("+00:00", "Z")


def parse_time(text: str) -> int:
    """Microseconds since the epoch of an RFC 3339 time with a zone. Raises ValueError."""
    if _RFC3339.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is not RFC 3339 with a time zone")
    moment = datetime.fromisoformat(text.upper())
    whole = moment.replace(microsecond=0)
    time_us = int(whole.timestamp()) * 1_000_000 + moment.microsecond
    if time_us not in _WRITABLE_TIMES_US:
        raise ValueError(f"{text[:40]!r} is outside the years 1 to 9999 in UTC")
    return time_us


def _refuse_constant(name: str) -> float:
    raise InvalidFields("NOT_FINITE", f"{name} is not a number JSON knows")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise InvalidFields("DUPLICATE_FIELD", "a field stands twice in one object")
    return fields


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)


def load_object(payload: bytes) -> dict[str, Any]:
    """Exactly one JSON object, or InvalidFields."""
    if not payload.strip():
        raise InvalidFields("EMPTY", "the payload is empty")
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidFields("NOT_UTF8", f"byte {error.start} is not UTF-8") from error
    try:
        fields, end = _DECODER.raw_decode(text.lstrip())
    except InvalidFields:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidFields("NOT_JSON", str(error)) from error
    rest = text.lstrip()[end:].strip()
    if rest:
        raise InvalidFields("TRAILING_BYTES", f"{rest[:20]!r} follows the object")
    if not isinstance(fields, dict):
        raise InvalidFields("NOT_AN_OBJECT", f"a JSON {type(fields).__name__} is no object")
    return fields


def _check_unknown(fields: dict[str, Any]) -> None:
    """Refuse what could not be sent on: our own bounds, so that it doesn't depend on anyone's stack."""
    level: list[Any] = [fields]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, float) and not math.isfinite(value):
                raise InvalidFields("NOT_FINITE", "an unknown field holds a number beyond a double")
        if not below:
            return
        level = below
    raise InvalidFields("NOT_JSON", f"an unknown field is nested over {MAX_DEPTH} deep")


_ABSENT: Final = object()


class Fields:
    """Takes typed fields out of a parsed object; what is left over is ``extra``."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.left = fields

    def take(self, name: str) -> Any:
        """A field as it stands; MISSING_FIELD without it."""
        value = self.left.pop(name, _ABSENT)
        if value is _ABSENT:
            raise InvalidFields("MISSING_FIELD", f"{name} is missing")
        return value

    def text(self, name: str, pattern: re.Pattern[str]) -> str:
        """A string of this pattern."""
        value = self.take(name)
        if not isinstance(value, str):
            raise InvalidFields("WRONG_TYPE", f"{name} must be a string")
        if pattern.fullmatch(value) is None:
            raise InvalidFields("BAD_NAME", f"{name} {value[:40]!r} does not match {pattern.pattern}")
        return value

    def label(self, name: str, longest: int = 64) -> str | None:
        """A short printable string, or null; absent counts as null."""
        value = self.left.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, str):
            raise InvalidFields("WRONG_TYPE", f"{name} must be a string")
        if len(value) > longest or not value.isprintable():
            raise InvalidFields("BAD_NAME", f"{name} must be at most {longest} printable characters")
        return value

    def integer(self, name: str, lowest: int, highest: int) -> int:
        """A whole number within these bounds, both included."""
        value = self.take(name)
        if type(value) is not int:
            raise InvalidFields("WRONG_TYPE", f"{name} must be a whole number")
        if not lowest <= value <= highest:
            raise InvalidFields("OUT_OF_RANGE", f"{name} {value} is outside {lowest} to {highest}")
        return value

    def number(self, name: str, *, required: bool = False) -> float | None:
        """A finite number, or null; absent counts as null unless it is required."""
        value = self.take(name) if required else self.left.pop(name, None)
        if value is None:
            return None
        if type(value) is not int and type(value) is not float:
            raise InvalidFields("WRONG_TYPE", f"{name} must be a number or null")
        try:
            number = float(value)
        except OverflowError as error:
            raise InvalidFields("NOT_FINITE", f"{name} is too large for a double") from error
        if not math.isfinite(number):
            raise InvalidFields("NOT_FINITE", f"{name} is not finite")
        return number

    def time(self, name: str = "time") -> int:
        """Microseconds since the epoch."""
        value = self.take(name)
        if not isinstance(value, str):
            raise InvalidFields("WRONG_TYPE", f"{name} must be a string")
        try:
            return parse_time(value)
        except (ValueError, OverflowError) as error:
            raise InvalidFields("BAD_TIME", str(error)) from error

    def rest(self) -> Mapping[str, Any] | None:
        """What this version doesn't know; it must be finite too, or no one could send it on."""
        if not self.left:
            return None
        _check_unknown(self.left)
        return self.left
