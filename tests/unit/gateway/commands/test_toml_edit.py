"""Only the intended values change; every other byte stays."""

from __future__ import annotations

import re
import tomllib
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

import pytest
from hypothesis import given, strategies as st

from gateway.commands.commissioning.swap import ORDER, CannotSwap, edited, number_text, string_text

NEW: Mapping[str, str] = {"serial": '"1795"', "slope": "0.761", "offset": "0.37", "calibrated": "2026-10-02"}

COMMENTED = b"""# a mast
[[sensor]]   # first
name = "cup"  # the cup
slope = 0.765     # m/s per Hz
height_m = 50
[[sensor]]
name = "other"
slope = 0.765
"""


def test_a_value_is_replaced_and_missing_keys_follow_the_calibration() -> None:
    after = edited(COMMENTED, "cup", NEW)
    assert after.decode().splitlines() == [
        "# a mast",
        "[[sensor]]   # first",
        'name = "cup"  # the cup',
        "slope = 0.761     # m/s per Hz",
        'serial = "1795"',
        "calibrated = 2026-10-02",
        "offset = 0.37",
        "height_m = 50",
        "[[sensor]]",
        'name = "other"',
        "slope = 0.765",
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            b'[[sensor]]\nname = "cup"\nexpires = 2027-01-01 # old\nslope = 1\n',
            b'[[sensor]]\nname = "cup"\nslope = 1\n',
        ),
        (b'[[sensor]]\nname = "cup"\nexpires = 2027-01-01', b'[[sensor]]\nname = "cup"\n'),
    ],
)
def test_a_key_is_removed_with_its_line(before: bytes, after: bytes) -> None:
    assert edited(before, "cup", {}, ["expires", "lab"]) == after


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (b'[[sensor]]\nname = "cap"\n', "no sensor 'cup'"),
        (b'[[sensor]]\nname = "cup"\n[[sensor]]\nname = "cup"\n', "there are 2 sensors called 'cup'"),
        (b"[[sensor]\n", "the file is no TOML: "),
        (b'[[sensor]]\nname = "cup\xff"\n', "the file is no TOML: "),
        (b'sensor = [ { name = "cup", slope = 1 } ]\n', "sensors between braces can't be edited"),
        (b'"sensor" = [ { "name" = "cup", slope.x = 1 } ]\n', "sensors between braces can't be edited"),
        (b'[[sensor]]\nname = "cup"\nslope.x = 1\n', "can't be edited safely"),
    ],
)
def test_what_cannot_be_edited_is_refused(before: bytes, why: str) -> None:
    with pytest.raises(CannotSwap, match=why.replace("(", r"\(")):
        edited(before, "cup", {"slope": "0.761"})


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("0.765", "0.765"),
        ("0.7650", "0.7650"),
        (" 1 ", "1"),
        (".765", "0.765"),
        ("1.", "1.0"),
        ("-0.24", "-0.24"),
        ("1e-3", "1e-3"),
        ("007", "7.0"),
    ],
)
def test_numbers_as_people_type_them(typed: str, written: str) -> None:
    assert number_text(typed) == written
    assert tomllib.loads(f"x = {written}")["x"] == float(typed)


@pytest.mark.parametrize(
    "typed", ["0,765", "nan", "inf", "1e999", "", "1 # c", "true", "1_000", "0x10", "1\n"]
)
def test_what_is_no_number(typed: str) -> None:
    if typed == "1\n":
        assert number_text(typed) == "1"
        return
    with pytest.raises(ArgumentTypeError, match="is not a number"):
        number_text(typed)


# Whole configs, put together from pieces of every style. Each piece has its owner, so what the
# bytes must be afterwards is known without looking for anything.

_SPACE = st.sampled_from(["", " ", "  ", "\t"])
_COMMENT = st.sampled_from(["", " # slope = 1", "\t#x", '  # [[sensor]] name = "cup"'])
_BLANK = st.sampled_from(["", "\n", "# a comment, slope = 3\n", "  \n\n", "#\n"])
_VALUES: Mapping[str, list[str]] = {
    "model": ['"NRG 40H"', "'NRG'", '"""\nNRG"""', '"a # b"'],
    "serial": ['"1"', "'x y'", '"\\u00fc = [["'],
    "lab": ['"Example"', "'''\nslope = 2\n'''"],
    "certificate": ['"26-0312"'],
    "calibrated": ["2026-03-12"],
    "expires": ["2028-03-12"],
    "recalibrate_months": ["24"],
    "slope": ["0.765", "1", "7.65e-1", "+0.765"],
    "offset": ["0.35", "-0.2", "0"],
    "range": ["[0, 75]", "[ # of the maker\n  0,\n  75, # m/s\n]"],
    "adc": ["{ address = 0x48, input = 0 }", "{ slope = 1 }"],
    "quality.slope": ["1"],
    "height_m": ["50"],
}

Owner = tuple[int, str] | None
"""Whose value a piece is: the sensor's number and the key."""


class _Pieces:
    def __init__(self, draw: Callable[..., Any]) -> None:
        self._draw = draw
        self.all: list[tuple[str, Owner]] = []

    def put(self, *texts: str) -> None:
        self.all += [(text, None) for text in texts]

    def any(self, *of: st.SearchStrategy[str]) -> None:
        self.put(*(self._draw(each) for each in of))

    def pair(self, sensor: int, key: str, values: Sequence[str]) -> None:
        quoted = self._draw(st.sampled_from(["{}", '"{}"', "'{}'"]))
        self.put(".".join(quoted.format(part) for part in key.split(".")))
        self.any(_SPACE)
        self.put("=")
        self.any(_SPACE)
        self.all.append((self._draw(st.sampled_from(values)), (sensor, key)))
        self.any(_SPACE)


@st.composite
def configs(draw: Callable[..., Any]) -> tuple[list[tuple[str, Owner]], int]:
    """A config in pieces, and how many sensors it has; they are called s0, s1 …"""
    count = draw(st.integers(1, 3))
    pieces = _Pieces(draw)
    pieces.put("\ufeff" if draw(st.booleans()) else "")
    pieces.any(_BLANK)
    pieces.put('[gateway]\nid = "mast" # slope = 4\n')
    for sensor in range(count):
        keys = draw(st.lists(st.sampled_from(sorted(_VALUES)), unique=True, max_size=7))
        keys.insert(draw(st.integers(0, len(keys))), "name")
        pieces.any(_BLANK, _SPACE)
        pieces.any(st.sampled_from(["[[sensor]]", '[["sensor"]]', "[[ sensor ]]"]), _COMMENT)
        pieces.put("\n")
        for key in keys:
            pieces.any(_BLANK, _SPACE)
            pieces.pair(sensor, key, _VALUES.get(key, [f'"s{sensor}"', f"'s{sensor}'"]))
            pieces.any(_COMMENT)
            pieces.put("\n")
        if draw(st.booleans()):
            more = "[sensor.more]\nslope = 9\nname = 's0'\n"
            pieces.any(st.sampled_from([more, "[[other]]\nslope = 9\n"]))
    if draw(st.booleans()):
        pieces.all.pop()
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    return [(text.replace("\n", newline), owner) for text, owner in pieces.all], count


_NEW_VALUES: Mapping[str, st.SearchStrategy[str]] = {
    key: {
        "slope": st.floats(0.01, 9, allow_nan=False).map(repr),
        "offset": st.floats(-5, 5, allow_nan=False).map(repr),
        "calibrated": st.dates(date(1950, 1, 1)).map(str),
        "expires": st.dates(date(1950, 1, 1)).map(str),
    }.get(key, st.text("aü \"'\\#=[]{}", min_size=1, max_size=8).map(string_text))
    for key in ORDER
    if key != "recalibrate_months"
}


def _value(text: str) -> object:
    return tomllib.loads(f"x = {text}")["x"]


@given(configs(), st.data())
def test_only_the_intended_values_change(
    config: tuple[list[tuple[str, Owner]], int], data: st.DataObject
) -> None:
    pieces, count = config
    sensor = data.draw(st.integers(0, count - 1))
    keys = data.draw(st.lists(st.sampled_from(sorted(_NEW_VALUES)), unique=True, min_size=1))
    values = {key: data.draw(_NEW_VALUES[key]) for key in keys}
    content = "".join(text for text, _ in pieces).encode()
    after = edited(content, f"s{sensor}", values)

    # What tomllib reads: the wanted values there, all else as before.
    before_raw, after_raw = (tomllib.loads(each.decode("utf-8-sig")) for each in (content, after))
    wanted = {key: _value(text) for key, text in values.items()}
    before_raw["sensor"][sensor].update(wanted)
    assert after_raw == before_raw

    # The bytes: each wanted value in its own piece, each missing one in a text of its own.
    replaced = "".join(
        values[owner[1]]
        if owner is not None
        and owner[0] == sensor
        and owner[1] in values
        and _value(text.replace("\r\n", "\n")) != wanted[owner[1]]
        else text
        for text, owner in pieces
    )
    there = {owner[1] for _, owner in pieces if owner is not None and owner[0] == sensor}
    added = [f"{key} = {values[key]}" for key in values if key not in there]
    assert replaced.encode() in _without_each(after, added)


def _without_each(text: bytes, added: Sequence[str]) -> set[bytes]:
    """What is left when each of these was taken out once, with its line's indent and end."""
    if not added:
        return {text}
    pair = re.escape(added[0].encode())
    ways = (rb"(?<=\n)[ \t]*" + pair + rb"\r?\n", rb"\r?\n[ \t]*" + pair + rb"$")
    return {
        left
        for way in ways
        for found in re.finditer(way, text)
        for left in _without_each(text[: found.start()] + text[found.end() :], added[1:])
    }
