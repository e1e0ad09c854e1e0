"""A thousand commands while gateway, Kafka and Mosquitto are killed: each done once, or refused, and why."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cloud.kafka.librdkafka import DEFAULTS
from cloud.wire.command_records import Command
from cloud.wire.fields import format_time
from cloud.wire.reading_records import COMMANDS_TOPIC, EVENTS_TOPIC
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.faults.kafka import HurtBroker, Kafka
from tests.integration.test_commands import HEATER, results
from tests.support.config import config_text, cup
from tests.support.mast import GatewayProcess, records, run_gateway
from tests.support.servers import eventually, unique_name

pytestmark = [pytest.mark.system, pytest.mark.timeout(3600)]
Report = Callable[..., None]

ROUNDS, EACH = 40, 25


def command(mast: str, number: int, *, lasts_s: float = 3600) -> Command:
    """On and off in turn: then nearly each one switches."""
    now_us = time.time_ns() // 1000
    return Command(
        id=f"c{number}", gateway=mast, target="heater", action="switch",
        args={"state": "on" if number % 2 else "off"},
        issued_at=format_time(now_us), expires_at=format_time(now_us + round(lasts_s * 1e6)),
    )  # fmt: skip


def switches(kafka: str, mast: str) -> Counter[str]:
    """How often each command has switched the relay, by the events."""
    events = {each.value() or b"" for each in records(kafka, [EVENTS_TOPIC]) if each.key() == mast.encode()}
    why = (str(json.loads(event).get("why", "")) for event in events)
    return Counter(each.removeprefix("command ") for each in why if each.startswith("command "))


@pytest.fixture
def mast_text() -> Callable[[str], str]:
    def text(name: str) -> str:
        return config_text(
            cup(), gateway={"id": name}, actuator=[HEATER], commands={"allow": ["switch heater"]},
            outbox={"commit_interval_s": 0.5, "min_free_disk": 0},
        )  # fmt: skip

    return text


def test_a_thousand_commands_between_kills(
    tmp_path: Path, cloud: Kafka, hurt_broker: HurtBroker, mosquitto: LocalMosquitto,
    report: Report, full: bool, mast_text: Callable[[str], str],
) -> None:  # fmt: skip
    if not full:
        pytest.skip("minutes long: tests/unit/gateway/remote has each moment of a kill")
    name, chance = unique_name("mast"), random.Random(18)
    producer = Producer({**DEFAULTS, "bootstrap.servers": cloud.direct})
    kills: Counter[str] = Counter()
    with run_gateway(tmp_path, mast_text(name), name, cloud.direct, mosquitto) as mast:
        eventually(lambda: mast.status()["commands"]["problem"] is None and mast.sampled())
        for round_ in range(ROUNDS):
            for number in range(round_ * EACH, (round_ + 1) * EACH):
                # One in ten for so short that an outage outlasts it.
                sent = command(name, number, lasts_s=3600 if number % 10 else 1.5)
                producer.produce(COMMANDS_TOPIC, key=sent.key, value=sent.to_json())
                producer.poll(chance.uniform(0.0, 0.05))
            hurt(
                chance.choice(["gateway", "gateway", "kafka", "mosquitto", "nothing"]),
                mast,
                hurt_broker,
                kills,
            )
        assert producer.flush(120) == 0
        total = ROUNDS * EACH
        found = eventually(
            lambda: results(cloud.direct, name), 300, until=lambda found: len(found) >= total, poll_s=1
        )
        mast.stop()
    switched = switches(cloud.direct, name)
    outcomes = Counter(f"{of[0].outcome} {of[0].reason or ''}".strip() for of in found.values())
    report(commands=total, **dict(kills), **dict(outcomes), repeats=sum(map(len, found.values())) - total)
    assert set(found) == {f"c{number}" for number in range(total)}
    # A result that comes again is the same one: nothing was done in between.
    assert all(len({each.to_json() for each in of}) == 1 for of in found.values())
    assert set(outcomes) <= {"done", "refused EXPIRED", "unknown INTERRUPTED"}
    assert max(switched.values()) == 1
    done = {identity for identity, of in found.items() if of[0].outcome == "done"}
    unknown = {identity for identity, of in found.items() if of[0].outcome == "unknown"}
    assert set(switched) <= done | unknown
    assert outcomes["unknown INTERRUPTED"] <= kills["gateway"]


def hurt(what: str, mast: GatewayProcess, broker: HurtBroker, kills: Counter[str]) -> None:
    kills[what] += 1
    if what == "gateway":
        mast.kill()
        mast.launch()
        eventually(mast.sampled)
    elif what == "kafka":
        broker.kill()
        broker.start()
    elif what == "mosquitto":
        mast.mosquitto.kill()
        mast.mosquitto.start()
