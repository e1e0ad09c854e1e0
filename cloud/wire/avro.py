"""Avro's binary encoding, as far as records of readings need it; any writer's schema within that can be read.

Bounded: each item of an array or map takes at least one byte, so what is decoded is of the payload's size,
and no schema refers to itself. Source: Apache Avro 1.11.1, Specification, "Binary Encoding". Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from struct import Struct, error as StructError
from typing import Any, Final

import msgspec

_DOUBLE: Final = Struct("<d")
_FLOAT: Final = Struct("<f")
_MAX_DEPTH: Final = 4
_ARRAYS: Final = {"array": "items", "map": "values"}

Read = Callable[[bytes, int], tuple[Any, int]]
"""The value that begins at a byte, and where it ends. Raises one of ``UNREADABLE``."""
UNREADABLE: Final = (ValueError, IndexError, StructError)


class UnusableSchema(ValueError):
    """A schema that is no record of plain values."""


# Writing.


def long(number: int) -> bytes:
    """An ``int`` or ``long``."""
    zigzag = (number << 1) ^ (number >> 63)
    if zigzag < 128:
        return bytes((zigzag,))
    written = bytearray()
    while zigzag > 127:
        written.append(zigzag & 127 | 128)
        zigzag >>= 7
    written.append(zigzag)
    return bytes(written)


def text(value: str) -> bytes:
    """A ``string``."""
    encoded = value.encode()
    return long(len(encoded)) + encoded


double: Final = _DOUBLE.pack
"""A ``double``."""


def optional(value: Any, write: Callable[[Any], bytes]) -> bytes:
    """A union of ``null`` and another type, in this order."""
    return b"\0" if value is None else b"\2" + write(value)


def texts(values: Iterable[str]) -> bytes:
    """An ``array`` of strings."""
    items = list(map(text, values))
    return b"".join((long(len(items)), *items, b"\0")) if items else b"\0"


# Reading.


def record_reader(schema: str) -> Callable[[bytes, int], dict[str, Any]]:
    """What decodes a record of a schema (JSON) that begins at a byte and ends with the payload.

    Logical types are left out: a time is its number. Raises UnusableSchema; what it returns raises one of
    ``UNREADABLE``.
    """
    try:
        parsed = msgspec.json.decode(schema)
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise UnusableSchema("is no record")
        fields = tuple((str(field["name"]), _reader(field["type"], 0)) for field in parsed["fields"])
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError) as error:
        raise UnusableSchema(f"{type(error).__name__}: {error}") from error

    def read(data: bytes, at: int) -> dict[str, Any]:
        record = {}
        for name, read_field in fields:
            record[name], at = read_field(data, at)
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes are left over")
        return record

    return read


def _reader(schema: Any, depth: int) -> Read:
    if depth > _MAX_DEPTH:
        raise UnusableSchema(f"is nested over {_MAX_DEPTH} deep")
    if isinstance(schema, list):
        return _union(tuple(_reader(branch, depth + 1) for branch in schema))
    if not isinstance(schema, Mapping):
        if schema not in _PLAIN:
            raise UnusableSchema(f"has a value of the type {schema}")
        return _PLAIN[schema]
    kind = schema["type"]
    if kind == "enum":
        return _enum(tuple(map(str, schema["symbols"])))
    if kind in _ARRAYS:
        item = _reader(schema[_ARRAYS[kind]], depth + 1)
        if item is _null:
            # It takes no byte, so a payload of ten could have any number of them.
            raise UnusableSchema(f"has a {kind} of nulls")
        return _array(item) if kind == "array" else _map(item)
    return _reader(kind, depth + 1)


def _null(data: bytes, at: int) -> tuple[None, int]:
    return None, at


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise ValueError("is no boolean")
    return data[at] == 1, at + 1


def _long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    zigzag, shift = byte & 127, 7
    while byte > 127:
        byte = data[at]
        at += 1
        zigzag |= (byte & 127) << shift
        shift += 7
        if shift > 70 or zigzag >> 64:
            raise ValueError("is a number over 64 bits")
    return (zigzag >> 1) ^ -(zigzag & 1), at


def _double(data: bytes, at: int) -> tuple[float, int]:
    return _DOUBLE.unpack_from(data, at)[0], at + 8


def _float(data: bytes, at: int) -> tuple[float, int]:
    return _FLOAT.unpack_from(data, at)[0], at + 4


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _long(data, at)
    end = at + length
    if length < 0 or end > len(data):
        raise ValueError("ends too early")
    return data[at:end], end


def _text(data: bytes, at: int) -> tuple[str, int]:
    found, end = _bytes(data, at)
    return str(found, "utf-8"), end


_PLAIN: Final[Mapping[Any, Read]] = {
    "null": _null, "boolean": _boolean, "int": _long, "long": _long, "float": _float, "double": _double,
    "bytes": _bytes, "string": _text,
}  # fmt: skip


def _union(branches: tuple[Read, ...]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        number, at = _long(data, at)
        if number < 0:
            raise ValueError("is no branch of a union")
        return branches[number](data, at)

    return read


def _enum(symbols: tuple[str, ...]) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        number, at = _long(data, at)
        if number < 0:
            raise ValueError("is no symbol")
        return symbols[number], at

    return read


def _array(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at = _long(data, at)
            if count == 0:
                return items, at
            if count < 0:
                # The size of the block in bytes follows, for those who skip it.
                count, (_, at) = -count, _long(data, at)
            for _ in range(count):
                value, at = item(data, at)
                items.append(value)

    return read


def _map(item: Read) -> Read:
    def pair(data: bytes, at: int) -> tuple[tuple[str, Any], int]:
        name, at = _text(data, at)
        value, at = item(data, at)
        return (name, value), at

    pairs = _array(pair)

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        items, at = pairs(data, at)
        return dict(items), at

    return read
