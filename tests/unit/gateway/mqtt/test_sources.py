"""Each channel has one source: what becomes of topics that are alike in a channel's letters."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from cloud.wire.reading_records import DeadLetter, parse_dead_letter, parse_reading
from gateway.config.bridges.model import ForwardConfig, ForwardReading
from gateway.mqtt.intake import Intake
from gateway.sequences import Sequences
from tests.unit.gateway.mqtt.test_intake import FixedClock

METERS = ForwardConfig("zigbee2mqtt/+", "json", "energy", path="energy", counter_end=99999.0)


def station(*forwards: ForwardConfig) -> Intake:
    return Intake("mast-07", Sequences("thisrun"), "mqtt.{quantity}", FixedClock(), forwards)


def letters(intake: Intake, topic: str, payload: bytes) -> list[DeadLetter]:
    records = intake.accept(topic, payload) or ()
    return [parse_dead_letter(each.value) for each in records if each.topic == "gateway.dead-letter"]


def values(intake: Intake, topic: str, payload: bytes) -> list[tuple[str, float | None]]:
    records = intake.accept(topic, payload) or ()
    readings = [parse_reading(each.value) for each in records if each.topic != "gateway.dead-letter"]
    return [(reading.channel, reading.value) for reading in readings]


def test_two_meters_in_another_script_have_channels_of_their_own() -> None:
    intake, found = station(METERS), []
    for kitchen, store in ((1000.0, 100.0), (1000.3, 100.1)):
        found += values(intake, "zigbee2mqtt/кухня", b'{"energy": %f}' % kitchen)
        found += values(intake, "zigbee2mqtt/склад", b'{"energy": %f}' % store)
    assert [(channel, round(value or 0, 9)) for channel, value in found] == [
        ("zigbee2mqtt-xn--j1agri5c.energy", 0.3),
        ("zigbee2mqtt-xn--80aiqe2a.energy", 0.1),
    ]
    assert {channel.split("-xn--")[1][:-7].encode().decode("punycode") for channel, _ in found} == {
        "кухня",
        "склад",
    }


@pytest.mark.parametrize(
    "pair", [("Living Room", "Living.Room"), ("a:b", "a b"), ("a-b/c", "a/b-c"), ("a/", "a-"), ("ä b", "ä.b")]
)
def test_the_second_topic_of_a_channel_is_a_dead_letter(
    pair: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    intake = station(ForwardConfig("#", "number", "energy", counter_end=99999.0))
    assert values(intake, pair[0], b"1000") == []
    assert [each.reason for each in letters(intake, pair[1], b"100")] == ["CHANNEL_TAKEN"]
    assert [value for _, value in values(intake, pair[0], b"1000.5")] == [0.5]
    (letter,) = letters(intake, pair[1], b"100.5")
    assert (letter.reason, letter.seq, letter.source) == ("CHANNEL_TAKEN", 2, pair[1])
    assert letter.payload == b"100.5"
    logged = [each.getMessage() for each in caplog.records if "reason=CHANNEL_TAKEN" in each.getMessage()]
    for text in (letter.detail, *logged):
        assert all(topic in text for topic in pair)
    assert len(logged) == 2


def test_a_channel_is_free_again_once_the_forwards_are_others() -> None:
    shed = ForwardConfig("old/shed", "number", "energy", channel="shed", counter_end=99999.0)
    intake = station(shed)
    values(intake, "old/shed", b"10")
    # The same ones: the total goes on.
    intake.apply("mqtt.{quantity}", [shed])
    assert values(intake, "old/shed", b"12") == [("shed.energy", 2.0)]
    other = ForwardConfig("new/shed", "number", "energy", channel="shed", counter_end=99999.0)
    intake.apply("mqtt.{quantity}", [other])
    # Another meter's total is no step of the first one's.
    assert values(intake, "new/shed", b"500") == []
    assert values(intake, "new/shed", b"501") == [("shed.energy", 1.0)]


def test_two_readings_of_a_message_share_no_channel_either() -> None:
    both = (
        ForwardReading("energy", "a", channel="{1}", counter_end=99999.0),
        ForwardReading("energy", "b", channel="{2}", counter_end=99999.0),
    )
    intake = station(ForwardConfig("+/+", "json", readings=both))
    values(intake, "x/x", b'{"a": 1000}')
    assert [each.reason for each in letters(intake, "x/x", b'{"a": 1000, "b": 5}')] == ["CHANNEL_TAKEN"]


def test_a_long_topic_is_kept_short() -> None:
    intake = station(ForwardConfig("+/#", "number", "temperature", channel="{1}"))
    for number in range(200):
        intake.accept(f"{number}/{'x' * 65_000}", b"1")
    assert sum(len(claim.source) for claim in intake._claims.values()) < 200 * 400
    (letter,) = letters(intake, f"1/{'x' * 64_999}", b"1")
    assert letter.reason == "CHANNEL_TAKEN"


_TEXT = st.text(st.characters(exclude_characters="+#\0", exclude_categories=["Cs"]), min_size=1, max_size=9)
_ALIKE = st.text("aä -._:/я", min_size=1, max_size=5)
_TEMPLATES = st.sampled_from([None, "{1}", "x-{1}", "{1}_{1}"])


@given(topics=st.lists(_TEXT | _ALIKE, min_size=2, max_size=12), template=_TEMPLATES)
def test_no_channel_is_shared_by_two_topics_and_nothing_is_uncounted(
    topics: list[str], template: str | None
) -> None:
    forward = ForwardConfig("#", "number", "energy", channel=template, counter_end=1e9)
    intake = station(forward)
    totals: dict[str, int] = {}
    owner: dict[str, str] = {}
    given, counted = 0, 0
    for position, topic in enumerate(topics * 2):
        if topic.startswith("$"):
            continue
        given += 1
        step = position + 1
        total = totals[topic] = totals.get(topic, len(totals) * 1_000_000) + step
        for record in intake.accept(topic, b"%d" % total) or ():
            counted += 1
            if record.topic != "gateway.dead-letter":
                reading = parse_reading(record.value)
                assert owner.setdefault(reading.channel, topic) == topic
                assert reading.value == step
    assert given == counted + sum(intake.ignored.values())
