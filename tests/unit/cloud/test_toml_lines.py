"""Every key of a TOML text has the line and column where it is written."""

from __future__ import annotations

import tomllib
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cloud.toml_lines import KeyPath, Lines, Place, Scan, split_key

TEXT: Final = '''\
# a mast
top = 1   # top = 2
"a b".'c.d' = "x"
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


_SCALARS: Final = st.sampled_from(
    [
        "1",
        "-1.5e3",
        "true",
        '"a # [b] = {c}"',
        "'\"'",
        '"""x\ny = 1\n"""',
        "'''[[a]]\n'''",
        "07:32:00",
        '"\\""',
    ]
)
_GAPS: Final = st.sampled_from(["", " ", "\n", " # ]}\n", "\n\n\t"])


@st.composite
def _documents(draw: st.DrawFn) -> tuple[str, dict[KeyPath, int]]:
    """A text, and where in it each key was written."""
    text: list[str] = []
    written: dict[KeyPath, int] = {}

    def put(*pieces: str) -> None:
        text.extend(pieces)

    def here() -> int:
        return sum(map(len, text))

    def value(path: KeyPath, depth: int, *, one_line: bool) -> None:
        kind = draw(st.integers(0, 2)) if depth < 3 else 0
        if kind == 0:
            put(draw(_SCALARS.filter(lambda each: not one_line or "\n" not in each)))
        elif kind == 1:
            put("[")
            for position in range(draw(st.integers(0, 3))):
                put(", " if position else "", " " if one_line else draw(_GAPS))
                written[*path, position] = here()
                value((*path, position), depth + 1, one_line=one_line)
            put("" if one_line else draw(_GAPS), "]")
        else:
            put("{ ")
            for position in range(draw(st.integers(0, 3))):
                put(", " if position else "")
                pair(path, f"k{position}", depth + 1, one_line=True)
            put(" }")

    def pair(table: KeyPath, key: str, depth: int, *, one_line: bool = False) -> None:
        written[*table, key] = here()
        put(draw(st.sampled_from([key, f'"{key}"', f"'{key}'"])), draw(st.sampled_from([" = ", "=", "\t= "])))
        value((*table, key), depth, one_line=one_line)

    table: KeyPath = ()
    for number in range(draw(st.integers(1, 6))):
        put(draw(_GAPS.filter(lambda gap: not gap.endswith(" "))), draw(st.sampled_from(["", "  "])))
        match draw(st.integers(0, 3)):
            case 0:
                table = (f"t{number}",)
                written[table] = here()
                put(f"[t{number}] # [x]\n")
            case 1:
                elements = sum(len(path) == 2 and path[0] == "many" for path in written)
                table = ("many", elements)
                written.setdefault(("many",), here())
                written[table] = here()
                put("[[many]]\n")
            case _:
                pair(table, f"p{number}", 0)
                put(draw(st.sampled_from(["\n", " # = 1\n"])))
    return "".join(text), written


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_documents())
def test_places_are_where_the_keys_were_written(document: tuple[str, dict[KeyPath, int]]) -> None:
    text, written = document
    assert set(_paths(tomllib.loads(text))) == {(), *written}
    lines = Lines(text)
    for path, offset in written.items():
        before = text[:offset].split("\n")
        assert lines.of(path) == (len(before), len(before[-1]) + 1)
