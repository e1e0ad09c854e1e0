"""Every key of a TOML text has the line and column where it is written."""

from __future__ import annotations

import tomllib
from typing import Any, Final

import pytest

from cloud.toml_lines import KeyPath, Lines, Place, Scan, split_key

TEXT: Final = '''\
# a mast
top = 1   # top = 2
"a b".'c.d' = "x \\" # [y]"
[gateway] # [[sensor]]
  id = "m"
  where.lat = 1
[[sensor]]
name = "one"
range = [ # [1]
  0,
  # 3
  [ 75, 1979-05-27 07:32:00 ], ] # 8
[sensor.adc]
address = 0x48
[[ "sensor" ]]
text = """
[[sensor]]
name = "no""""
more = \'\'\'
x = 1\'\'\'\'\'
adc = { address = 0x49, more.deep = { x = [] }, "é" = "}" }
[sensor.other]
[[sensor.part]]
[[sensor.part]]
n = -inf
[gateway.under]
'''

PLACES: Final[dict[KeyPath, Place]] = {
    ("top",): (2, 1),
    ("a b",): (3, 1),
    ("a b", "c.d"): (3, 1),
    ("gateway",): (4, 1),
    ("gateway", "id"): (5, 3),
    ("gateway", "where"): (6, 3),
    ("gateway", "where", "lat"): (6, 3),
    ("sensor",): (7, 1),
    ("sensor", 0): (7, 1),
    ("sensor", 0, "name"): (8, 1),
    ("sensor", 0, "range"): (9, 1),
    ("sensor", 0, "range", 0): (10, 3),
    ("sensor", 0, "range", 1): (12, 3),
    ("sensor", 0, "range", 1, 0): (12, 5),
    ("sensor", 0, "range", 1, 1): (12, 9),
    ("sensor", 0, "adc"): (13, 1),
    ("sensor", 0, "adc", "address"): (14, 1),
    ("sensor", 1): (15, 1),
    ("sensor", 1, "text"): (16, 1),
    ("sensor", 1, "more"): (19, 1),
    ("sensor", 1, "adc"): (21, 1),
    ("sensor", 1, "adc", "address"): (21, 9),
    ("sensor", 1, "adc", "more"): (21, 25),
    ("sensor", 1, "adc", "more", "deep"): (21, 25),
    ("sensor", 1, "adc", "more", "deep", "x"): (21, 39),
    ("sensor", 1, "adc", "é"): (21, 49),
    ("sensor", 1, "other"): (22, 1),
    ("sensor", 1, "part"): (23, 1),
    ("sensor", 1, "part", 0): (23, 1),
    ("sensor", 1, "part", 1): (24, 1),
    ("sensor", 1, "part", 1, "n"): (25, 1),
    ("gateway", "under"): (26, 1),
}


def _paths(value: Any, path: KeyPath = ()) -> list[KeyPath]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, item in items for each in _paths(item, (*path, key)))]


def test_every_key_of_every_style_has_its_place() -> None:
    lines = Lines(TEXT)
    assert set(_paths(tomllib.loads(TEXT))) == {(), *PLACES}
    assert {path: lines.of(path) for path in PLACES} == PLACES


def test_values_begin_and_end_where_they_are_written() -> None:
    scan = Scan(TEXT)
    texts = {path: TEXT[start:end] for path, (start, end) in scan.values.items()}
    assert texts["top",] == "1"
    assert texts["sensor", 0, "range"] == "[ # [1]\n  0,\n  # 3\n  [ 75, 1979-05-27 07:32:00 ], ]"
    assert texts["sensor", 0, "range", 1, 1] == "1979-05-27 07:32:00"
    assert texts["sensor", 1, "text"] == '"""\n[[sensor]]\nname = "no""""'
    assert texts["sensor", 1, "adc", "more", "deep"] == "{ x = [] }"
    headings = {("sensor",), ("sensor", 0), ("gateway",), ("gateway", "where"), ("a b",)}
    assert not headings & texts.keys()


def test_a_key_that_is_not_there_has_the_place_of_its_table() -> None:
    lines = Lines(TEXT)
    assert lines.of(("sensor", 1, "adc", "input")) == (21, 1)
    assert lines.of(("sensor", 2)) == (7, 1)
    assert lines.of(("mqtt", "port")) == (1, 1)
    assert Lines("").of(("gateway",)) == (1, 1)


def test_windows_line_ends_and_nesting_without_end() -> None:
    assert Lines("a = 1\r\n\r\n[b]\r\nc = 2\r\n").of(("b", "c")) == (4, 1)
    depth = 5000
    assert Lines("a = " + "[" * depth + "]" * depth + "\nb = 1").of(("b",)) == (2, 1)


@pytest.mark.parametrize("text", ["a = ", "a = [1", "[a\nb = 1", "a 1", "a = {b}", '"a', "a = ]", "=", "\0"])
def test_a_text_that_is_no_toml_has_the_places_before_the_mistake(text: str) -> None:
    assert Lines("first = 1\n" + text).of(("first",)) == (1, 1)


@pytest.mark.parametrize(
    ("text", "parts"),
    [("a", ("a",)), ("a.b-1", ("a", "b-1")), ('"a.b" . c', ("a.b", "c")), ("'x=y'.z", ("x=y", "z"))],
)
def test_a_dotted_key_is_split(text: str, parts: tuple[str, ...]) -> None:
    assert split_key(text) == parts


@pytest.mark.parametrize("text", ["", "a b", "a\n", "a = 1\nb", "a..b", "é"])
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        split_key(text)
