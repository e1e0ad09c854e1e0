"""What steps make of a message's JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cloud.wire.reading_records import InvalidReading
from gateway.config.bridges.model import Step
from gateway.mqtt.payload import apply, compiled, hides, transform


def after(payload: bytes | dict[str, Any], *steps: Step) -> bytes | None:
    """What goes on of a payload."""
    given = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return transform(compiled(steps, lambda text: text.replace("{1}", "pump")), given)


def changed(document: dict[str, Any], *steps: Step) -> Any:
    """What goes on of an object."""
    result = after(document, *steps)
    return None if result is None else json.loads(result)


DEVICE = {
    "state": "on",
    "alarm": True,
    "level": 2.5,
    "user": {"name": "bob", "password": "secret"},
    "log": [{"user": {"password": "old"}, "n": 1}, "text", [{"user": {"password": "older"}}]],
}
MASKED = {"password": "***"}


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Step(keep=("state", "user.name")), {"state": "on", "user": {"name": "bob"}}),
        (Step(keep=("log.n",)), {"log": [{"n": 1}, [{}]]}),
        (Step(keep=("state.x", "none")), {}),
        (Step(drop=("log", "user.password", "level.x")), {**DEVICE, "user": {"name": "bob"}, "log": ...}),
        (Step(drop=("user", "alarm", "level", "log.user")), {"state": "on", "log": [{"n": 1}, "text", [{}]]}),
        (Step(mask=("user",)), {**DEVICE, "user": "***"}),
        (
            Step(mask=("log.user.password", "absent")),
            {**DEVICE, "log": [{"user": MASKED, "n": 1}, "text", [{"user": MASKED}]]},
        ),
        (Step(rename={"level": "depth"}), {**DEVICE, "level": ..., "depth": 2.5}),
        (
            Step(rename={"user.name": "operator", "state": "pump.state"}),
            {
                **DEVICE,
                "user": {"password": "secret"},
                "operator": "bob",
                "state": ...,
                "pump": {"state": "on"},
            },
        ),
        (Step(rename={"state": "alarm", "alarm": "state"}), {**DEVICE, "state": True, "alarm": "on"}),
        (Step(rename={"absent": "state", "level.x": "y"}), DEVICE),
        (
            Step(set={"site": "north", "user.name": "{1}", "a.b": False}),
            {**DEVICE, "site": "north", "user": {"name": "pump", "password": "secret"}, "a": {"b": False}},
        ),
    ],
)  # fmt: skip
def test_a_step_changes_what_it_names_and_nothing_else(step: Step, expected: dict[str, Any]) -> None:
    # ... stands for a field that is gone.
    assert changed(DEVICE, step) == {name: value for name, value in expected.items() if value is not ...}


@pytest.mark.parametrize(
    ("conditions", "holds"),
    [
        ({"state": "on"}, True),
        ({"state": ["off", "on"]}, True),
        ({"state": "ON"}, False),
        ({"alarm": True}, True),
        ({"alarm": 1}, False),
        ({"alarm": "true"}, False),
        ({"level": 2.5}, True),
        ({"level": [2, 2.5]}, True),
        ({"level": "2.5"}, False),
        ({"log.0.n": 1}, True),
        ({"log.0.n": True}, False),
        ({"log": "text"}, False),
        ({"user.name": "bob", "state": "on"}, True),
        ({"user.name": "bob", "state": "off"}, False),
        ({"absent": "x"}, False),
        ({"state.x": "on"}, False),
    ],
)
def test_where_and_unless_are_each_others_contrary(conditions: dict[str, Any], holds: bool) -> None:
    assert (changed(DEVICE, Step(where=conditions)) is not None) == holds
    assert (changed(DEVICE, Step(unless=conditions)) is not None) == (not holds)


def test_steps_are_taken_in_their_order_and_end_with_a_message_that_is_not_to_go_on() -> None:
    moved = Step(rename={"state": "pump"}), Step(where={"pump": "on"}), Step(keep=("pump",))
    assert changed(DEVICE, *moved) == {"pump": "on"}
    assert changed(DEVICE, *reversed(moved)) is None
    stopped = Step(where={"state": "off"}), Step(rename={"level": "state"})
    assert changed(DEVICE, *stopped) is None


def test_0_1_is_equal_to_0_1_and_a_number_keeps_its_digits() -> None:
    numbers = b'{"a":0.1,"b":21.50,"c":123456789012345678901234567890,"d":0.12345678901234567891,"e":1E+400}'
    assert after(numbers, Step(where={"a": 0.1})) == numbers


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "EMPTY"),
        (b"\xff", "NOT_UTF8"),
        (b"warm", "NOT_JSON"),
        (b"[1]", "NOT_AN_OBJECT"),
        (b'"text"', "NOT_AN_OBJECT"),
        (b'{"a": 1e999999999999999999999}', "NOT_FINITE"),
        (b'{"a": 1} {"a": 2}', "TRAILING_BYTES"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "NOT_JSON"),
        (b'{"a": {"b": 1}, "x": 2}', "FIELD_EXISTS"),
        (b'{"a": {"b": 1}, "y": 2}', "NOT_AN_OBJECT"),
    ],
)
def test_what_steps_cannot_be_taken_of_is_refused(payload: bytes, reason: str) -> None:
    with pytest.raises(InvalidReading) as refused:
        after(payload, Step(rename={"a.b": "x"}), Step(set={"y.z": 1}))
    assert refused.value.reason == reason


@pytest.mark.parametrize("depth", range(100, 1100, 50))
def test_no_depth_is_too_much_for_one_part_and_not_for_another(depth: int) -> None:
    nest = b'{"a":' + b"[" * depth + b'{"b":1}' + b"]" * depth + b"}"
    for step in (Step(drop=("a.b",)), Step(mask=("a.b",)), Step(keep=("a.b",))):
        with suppress(InvalidReading):
            assert after(nest, step) is not None


def test_what_takes_something_away_hides_it() -> None:
    assert all(hides([step]) for step in (Step(keep=("a",)), Step(drop=("a",)), Step(mask=("a",))))
    assert not hides([Step(set={"a": 1}), Step(rename={"a": "b"}), Step(where={"a": 1})])


_NAMES = st.sampled_from("abc")
_LEAVES = st.none() | st.booleans() | st.integers() | st.sampled_from(["", "on"]) | st.floats(-9, 9)
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3)
)
_DOCUMENTS = st.dictionaries(_NAMES, _VALUES, max_size=3)
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map(".".join)

Leaf = tuple[tuple[str, ...], Any]


def leaves(found: Any, names: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """What is in a document, each with the names on the way to it: an oracle that knows no steps."""
    if isinstance(found, dict):
        for name, value in found.items():
            yield from leaves(value, (*names, name))
    elif isinstance(found, list):
        for each in found:
            yield from leaves(each, names)
    else:
        yield names, found


def within(leaf: Leaf, path: str) -> bool:
    names = tuple(path.split("."))
    return leaf[0][: len(names)] == names


@given(document=_DOCUMENTS, path=_PATHS)
def test_keep_and_drop_share_a_document_out(document: dict[str, Any], path: str) -> None:
    all_of_it = list(leaves(document))
    kept, rest = changed(document, Step(keep=(path,))), changed(document, Step(drop=(path,)))
    assert list(leaves(kept)) == [leaf for leaf in all_of_it if within(leaf, path)]
    assert list(leaves(rest)) == [leaf for leaf in all_of_it if not within(leaf, path)]


@given(document=_DOCUMENTS, path=_PATHS)
def test_nothing_is_left_of_what_is_masked_and_all_of_the_rest(document: dict[str, Any], path: str) -> None:
    masked = changed(document, Step(mask=(path,)))
    assert {leaf for leaf in leaves(masked) if within(leaf, path)} <= {(tuple(path.split(".")), "***")}
    assert [leaf for leaf in leaves(masked) if not within(leaf, path)] == [
        leaf for leaf in leaves(document) if not within(leaf, path)
    ]
    assert changed(masked, Step(mask=(path,))) == masked


@given(document=_DOCUMENTS, name=_NAMES)
def test_a_new_name_and_the_old_one_again_change_nothing(document: dict[str, Any], name: str) -> None:
    there, back = Step(rename={name: "x.y"}), Step(rename={"x.y": name})
    assert changed(document, there, back, Step(drop=("x",))) == document


@given(document=_DOCUMENTS, value=st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=3))
def test_where_finds_what_set_has_set(document: dict[str, Any], value: Any) -> None:
    assert changed(document, Step(set={"x.y": value}), Step(where={"x.y": value})) == {
        **document,
        "x": {"y": value},
    }


@given(document=_DOCUMENTS)
def test_steps_that_find_nothing_change_no_byte(document: dict[str, Any]) -> None:
    payload = json.dumps(document, separators=(",", ":")).encode()
    nothing = Step(drop=("x.y",)), Step(mask=("x",)), Step(rename={"x": "y"}), Step(unless={"x": 1})
    found = after(payload, *nothing)
    assert found is not None
    assert json.loads(found, parse_float=Decimal) == json.loads(payload, parse_float=Decimal)


@given(
    payload=st.binary(max_size=40) | st.text('{}[]":,.012eE-abctruefalsn ', max_size=40).map(str.encode),
    steps=st.lists(
        st.builds(Step, keep=st.tuples(_PATHS)) | st.builds(Step, mask=st.tuples(_PATHS))
        | st.builds(Step, rename=st.dictionaries(_PATHS, _PATHS, min_size=1, max_size=1))
        | st.builds(Step, set=st.dictionaries(_PATHS, st.integers(), min_size=1, max_size=1))
        | st.builds(Step, where=st.dictionaries(_PATHS, st.integers(), min_size=1, max_size=1)),
        max_size=4,
    ),
)  # fmt: skip
def test_whatever_comes_is_an_object_afterwards_or_is_refused(payload: bytes, steps: list[Step]) -> None:
    try:
        found = after(payload, *steps)
    except InvalidReading:
        return
    assert found is None or isinstance(json.loads(found), dict)


def test_conditions_hold_of_a_document_that_is_a_list() -> None:
    changes = compiled([Step(where={"0.state": "on"})], str)
    assert apply(changes, [{"state": "on"}])
    assert not apply(changes, [{"state": "off"}])
    assert not apply(changes, 21.5)
