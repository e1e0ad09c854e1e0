"""Registers of Modbus devices: numbers of one to four words, and which are read in one request. Pure.

Source: MODBUS Application Protocol Specification V1.1b3; SunSpec Device Information Model Specification.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

RegisterType = Literal["u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64"]
WordOrder = Literal["big", "little"]
ByteOrder = Literal["big", "little"]
Table = Literal["holding", "input", "coil", "discrete"]

BITS: Final = ("coil", "discrete")
"""The tables of single bits."""
_FORMATS: Final[Mapping[RegisterType, str]] = {
    "u16": ">H", "s16": ">h", "u32": ">I", "s32": ">i", "u64": ">Q", "s64": ">q", "f32": ">f", "f64": ">d",
}  # fmt: skip
_ENDS: Final[Mapping[ByteOrder, str]] = {"big": ">", "little": "<"}
SCALE_LIMIT: Final = 10
"""SunSpec's scale factors are powers of ten from -10 to 10."""


@dataclass(frozen=True, slots=True)
class Block:
    """Adjacent registers of one table, read by one request."""

    table: Table
    address: int
    count: int


def width(kind: RegisterType) -> int:
    """How many registers a number has."""
    return struct.calcsize(_FORMATS[kind]) // 2


def decode(
    words: Sequence[int], kind: RegisterType, order: WordOrder = "big", byte_order: ByteOrder = "big"
) -> float:
    """The number in its words (0 to 65535 each), as the device sent it."""
    ordered = words if order == "big" else words[::-1]
    packed = struct.pack(f"{_ENDS[byte_order]}{len(words)}H", *ordered)
    number: float = struct.unpack(_FORMATS[kind], packed)[0]
    return number


def encode(
    number: float, kind: RegisterType, order: WordOrder = "big", byte_order: ByteOrder = "big"
) -> tuple[int, ...]:
    """The words of a number; one beyond the type's range becomes the nearest that stands for a value."""
    if kind[0] != "f":
        lowest, highest = limits(kind)
        number = min(max(round(number), lowest), highest)
    packed = struct.pack(_FORMATS[kind], number)
    words = struct.unpack(f"{_ENDS[byte_order]}{len(packed) // 2}H", packed)
    return words if order == "big" else words[::-1]


def limits(kind: RegisterType) -> tuple[int, int]:
    """The least and the greatest value of a whole-number type, without its code for "not implemented"."""
    bits = int(kind[1:])
    return (1 - (1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 2)


def is_missing(number: float, kind: RegisterType, codes: Sequence[int], *, sunspec: bool) -> bool:
    """Whether a number stands for no value: not finite, one of the device's codes, or SunSpec's of its type.

    A code is the number itself (-9999) or its bits as manuals print them (0x8000).
    """
    if not math.isfinite(number):
        return True
    if kind[0] == "f":
        return number in codes
    lowest, highest = limits(kind)
    bits = int(number) & ((1 << int(kind[1:])) - 1)
    return number in codes or bits in codes or (sunspec and not lowest <= number <= highest)


def scaled(number: float, scale: int) -> float:
    """A number times a power of ten; NaN where that is none of SunSpec's scale factors."""
    if abs(scale) > SCALE_LIMIT:
        return math.nan
    # A quotient of whole numbers is the nearest float: 2301 with -1 is 230.1.
    return number / 10**-scale if scale < 0 else float(number * 10**scale)


def counter_end(kind: RegisterType, scale: int = 0) -> float:
    """Where a counter of this type begins again at 0; NaN where that is nowhere."""
    return math.nan if kind[0] == "f" else 2.0 ** int(kind[1:]) * 10.0**scale


def plan(spans: Iterable[Block], gap: int, most: int) -> tuple[Block, ...]:
    """The requests that read all spans: those up to ``gap`` registers apart in one, of ``most`` at most."""
    planned: list[Block] = []
    for span in sorted(set(spans), key=lambda each: (each.table, each.address, each.count)):
        end = span.address + span.count
        last = planned[-1] if planned else None
        if (
            last is not None
            and last.table == span.table
            and span.address - (last.address + last.count) <= gap
            and end - last.address <= most
        ):
            planned[-1] = Block(last.table, last.address, max(last.count, end - last.address))
        else:
            planned.append(span)
    return tuple(planned)
