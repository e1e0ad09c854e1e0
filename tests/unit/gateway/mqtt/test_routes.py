"""Which forward a topic belongs to, and what its channel is called."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st
from paho.mqtt.client import topic_matches_sub

from gateway.config.bridges.model import ForwardConfig
from gateway.mqtt.intake import Routes


def number(topic_filter: str, channel: str | None = None) -> ForwardConfig:
    return ForwardConfig(topic_filter, "number", "temperature", channel=channel)


def raw(topic_filter: str, channel: str | None = None) -> ForwardConfig:
    return ForwardConfig(topic_filter, "raw", channel=channel)


@pytest.mark.parametrize(
    ("forward", "topic", "channel"),
    [
        (number("sensors/+/temperature"), "sensors/shed/temperature", "sensors-shed-temperature.temperature"),
        (number("sensors/+/temperature", "{1}"), "sensors/shed/temperature", "shed.temperature"),
        (number("+/+/t", "{2}_at_{1}"), "farm/shed/t", "shed_at_farm.temperature"),
        (number("farm/#", "x-{1}"), "farm/a/b", "x-a-b.temperature"),
        (number("farm/#", "x-{1}"), "farm", "x-.temperature"),
        (number("farm/#", "{1}"), "farm", None),
        (number("farm/+", "{1}"), "farm/", None),
        (number("t", "shed"), "t", "shed.temperature"),
        (number("+"), "Stall Süd.1", "xn--Stall_Sd_1-geb.temperature"),
        (number("+"), "Stall 1:2.3", "Stall_1_2_3.temperature"),
        (number("+/+", "{2}-{1}"), "Süd/1", "1-xn--Sd-xka.temperature"),
        (number("+"), "ü" * 125, None),
        (number("+"), "x" * 128, "x" * 128 + ".temperature"),
        (number("+"), "x" * 129, None),
        (number("+"), "x" * 300, None),
        (raw("devices/+/up/#"), "devices/7/up/blob", "devices-up.raw"),
        (raw("#"), "anything", "raw.raw"),
        (raw("devices/+", "blobs"), "devices/7", "blobs.raw"),
    ],
)
def test_channels(forward: ForwardConfig, topic: str, channel: str | None) -> None:
    route = Routes([forward]).find(topic)
    assert route is not None
    assert route.forward is forward
    assert route.channel == channel


def test_each_topic_finds_its_own_forward() -> None:
    forwards = [number("a/+/t"), raw("b/#"), ForwardConfig("a/+/r"), number("$SYS/broker/load")]
    routes = Routes(forwards)
    topics = ["a/x/t", "b", "b/c/d", "a/x/r", "$SYS/broker/load", "a/x", "c", "$SYS/x"]
    for _ in range(2):
        found = [routes.find(topic) for topic in topics]
        assert [None if route is None else forwards.index(route.forward) for route in found] == [
            *(0, 1, 1, 2, 3),
            *(None, None, None),
        ]


_levels = st.lists(st.sampled_from(["a", "b", "", "é", "$x"]), min_size=1, max_size=4)


@given(
    levels=_levels,
    pattern=st.lists(st.sampled_from(["a", "b", "+"]), min_size=1, max_size=3),
    tail=st.sampled_from([[], ["#"]]),
    template=st.sampled_from([None, "x", "{1}"]),
)
def test_a_topic_is_found_exactly_where_its_filter_matches(
    levels: list[str], pattern: list[str], tail: list[str], template: str | None
) -> None:
    topic, topic_filter = "/".join(levels), "/".join([*pattern, *tail])
    if template == "{1}" and "+" not in pattern and not tail:
        template = None
    route = Routes([number(topic_filter, template)]).find(topic)
    assert (route is not None) == topic_matches_sub(topic_filter, topic)
    if route is not None and route.channel is not None:
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,128}\.temperature", route.channel)
