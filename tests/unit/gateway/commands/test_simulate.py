"""A simulated fleet: the same for one seed, accounted for, with common weather, outages and faults."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Final

import pytest

from cloud.command_line import CommandError
from cloud.errors import Undelivered
from cloud.kafka.producer import KafkaSink
from cloud.wire.channel_records import CHANNELS_TOPIC, parse_channel
from cloud.wire.reading_records import RUNS_TOPIC, STATUS_TOPIC, Reading, parse_reading
from cloud.wire.site_records import SITES_TOPIC, parse_site
from cloud.wire.status_records import parse_status
from gateway.commands.demo.layout import MAST
from gateway.commands.simulate import FAULTS, Fleet, send, tell
from gateway.config import load
from gateway.ports import REPLAYED, Record
from tests.support.accounts import Accounts

END_S: Final = 1_795_000_200
DAYS: Final = 3
SEED: Final = 24
"""Of its three masts two are cut off, each has an outage, one two faults."""
PERIOD_S: Final = 900


@cache
def records(seed: int = SEED, gateways: int = 3, days: int = DAYS) -> list[Record]:
    fleet = Fleet(load(MAST, at_work=False), gateways, seed, PERIOD_S, END_S - days * 86_400, END_S)
    return [record for _, leaving in fleet.records() for record in leaving]


def readings() -> Iterator[Reading]:
    return (parse_reading(each.value) for each in records() if each.topic.startswith("mqtt."))


def test_a_seed_makes_the_same_fleet_and_another_one_another() -> None:
    again = records.__wrapped__(1, 1, 1)
    assert again == records(1, 1, 1)
    assert [each.value for each in records(2, 1, 1)] != [each.value for each in again]


def test_everything_sampled_is_accounted_for_once() -> None:
    counted = Accounts()
    parsers = {CHANNELS_TOPIC: parse_channel, SITES_TOPIC: parse_site, STATUS_TOPIC: parse_status}
    for at, record in enumerate(records()):
        if record.topic == RUNS_TOPIC:
            counted.take_run(record.value, at)
        elif record.topic in parsers:
            parsers[record.topic](record.value)
        else:
            assert REPLAYED in record.headers
            counted.take_reading(record.value)
    accounts = [run for gateway in sorted({of for of, _ in counted.records}) for run in counted.of(gateway)]
    assert len(accounts) > 3
    assert all(each.balanced and not each.pending and not each.repeats for each in accounts), accounts
    assert sum(each.stored for each in accounts) == sum(1 for _ in readings())
    assert {each.state for each in accounts} == {"stopped", "reset"}


def test_late_data_and_faults_are_there() -> None:
    last, late = defaultdict[str, int](int), 0
    for record in records():
        if record.topic.startswith("mqtt."):
            reading = parse_reading(record.value)
            newest = max(last.values(), default=0)
            late += reading.time_us < newest - 2 * PERIOD_S * 1_000_000
            last[reading.gateway] = max(last[reading.gateway], reading.time_us)
    assert late > 10
    qualities = [reading.quality for reading in readings()]
    assert qualities.count(9) > 0
    assert 0.8 < qualities.count(1) / len(qualities) < 1.0
    assert all(reading.cal is not None and reading.period_ms == PERIOD_S * 1000 for reading in readings())


def test_masts_have_the_weather_in_common_and_gusts_of_their_own() -> None:
    winds = defaultdict[str, dict[int, float]](dict)
    for reading in readings():
        if reading.channel == "cup-50m-a.wind_speed" and reading.quality == 1 and reading.value is not None:
            winds[reading.gateway][reading.time_us] = reading.value
    assert len(winds) == 3
    for one, other in pairwise(winds.values()):
        common = sorted(one.keys() & other.keys())
        likeness = statistics.correlation([one[at] for at in common], [other[at] for at in common])
        assert 0.5 < likeness < 0.99


def test_stories_have_restarts_outages_and_every_fault() -> None:
    stories = [tell(5, f"sim-{number}", ["a", "b"], 0, 30 * 86_400) for number in range(20)]
    for story in stories:
        assert all(one.end_s < two.begin_s for one, two in pairwise(story.runs))
        assert all(one[1] < two[0] for one, two in pairwise(story.offline))
    assert {fault.kind for story in stories for fault in story.faults} == set(FAULTS)
    runs = [run for story in stories for run in story.runs]
    assert {run.is_killed for run in runs} == {True, False}
    assert len({run.id for run in runs}) == len(runs)


def test_what_kafka_refuses_ends_it_with_the_remedy() -> None:
    class Refusing:
        reason = None
        open = 0

        def send(self, record: Record, token: None) -> bool:
            return True

        def poll(self, timeout_s: float = 0.0) -> list[tuple[None, Undelivered | None]]:
            return [(None, Undelivered("UNKNOWN_TOPIC_OR_PART: no such topic", False, True))]

    sink: KafkaSink[None] = Refusing()  # type: ignore[assignment] # all that is used of it
    fleet = Fleet(load(MAST, at_work=False), 1, 1, PERIOD_S, END_S - 86_400, END_S)
    with pytest.raises(CommandError, match="no such topic; are the topics there"):
        send(fleet, sink, 1e6, lambda *_: None)
