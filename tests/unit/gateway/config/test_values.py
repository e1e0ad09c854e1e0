"""Topics and their filters; the overlap of filters against every short topic, as paho matches them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings, strategies as st
from paho.mqtt.client import topic_matches_sub

from cloud.toml_problems import WrongValue
from gateway.config.values import overlap, topic_filter, topic_root
from tests.support.examples import examples

_LEVELS = ("a", "b", "$x", "")
_TOPICS = ["/".join(levels) for depth in range(1, 5) for levels in product(_LEVELS, repeat=depth)]
_filters = st.builds(
    lambda levels, tail: "/".join([*levels, *tail]),
    st.lists(st.sampled_from([*_LEVELS, "+"]), min_size=1, max_size=3),
    st.sampled_from([[], ["#"]]),
) | st.just("#")


@settings(deadline=None, max_examples=examples(500))
@given(one=_filters, other=_filters)
def test_filters_overlap_where_a_topic_matches_both(one: str, other: str) -> None:
    # The empty topic counts, though no message can have it: "/#" and "+" are refused together.
    both = any(topic_matches_sub(one, topic) and topic_matches_sub(other, topic) for topic in _TOPICS)
    if one and other:
        assert overlap(one, other) is both
        assert overlap(other, one) is both


def test_wildcards_dont_reach_the_brokers_own_topics() -> None:
    assert not overlap("$SYS/x", "#")
    assert not overlap("+/x", "$SYS/x")
    assert overlap("$SYS/#", "$SYS/x")


@pytest.mark.parametrize("good", ["a", "+", "#", "a/+/b", "a/#", "/a", "a//b", "$SYS/#", "+/+", "é"])
def test_good_filters(good: str) -> None:
    assert topic_filter(good) == good


@pytest.mark.parametrize(
    ("parse", "bad"),
    [
        *((topic_filter, text) for text in ("", "a#", "#/a", "a/#/b", "a+", "+a/b", "a\0", "$share/g/a")),
        (topic_filter, "x" * 65_536),
        *((topic_root, text) for text in ("", "a/+", "#", "$a", "/a", "a/", "a//b", "a\0")),
    ],
)
def test_bad_filters_and_roots(parse: Callable[[str], str], bad: str) -> None:
    with pytest.raises(WrongValue):
        parse(bad)


def test_a_root_may_have_levels() -> None:
    assert topic_root("site/north") == "site/north"
