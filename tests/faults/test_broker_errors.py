"""Topics that are missing, forbidden or short of replicas wait; every other one flows live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.config import load
from gateway.forwarding.sinks import KafkaSinks
from gateway.ports import ParkedTopic, Record
from tests.faults.kafka import Kafka
from tests.faults.mast import Mast
from tests.support.config import config_text, cup, write_config
from tests.support.servers import eventually, unique_name

pytestmark = pytest.mark.system
Report = Callable[..., None]


Act = Callable[[Kafka, str], None]


@dataclass(frozen=True)
class Trouble:
    """What happens to a topic before the start and in the midst of it, and how it is mended."""

    before_start: Act | None
    hurt: Act | None
    mend: Act


def _replicate(cloud: Kafka, topic: str) -> None:
    cloud.delete(topic)
    cloud.create_with_a_replica_that_is_down(topic)


TROUBLES = {
    # Before the start: deleting a topic deletes what has arrived in it.
    "unknown topic": Trouble(Kafka.delete, None, Kafka.create),
    "not authorized": Trouble(None, Kafka.forbid_writing, Kafka.allow_writing),
    "not enough replicas": Trouble(
        _replicate,
        lambda cloud, topic: cloud.require_replicas(topic, 2),
        lambda cloud, topic: cloud.require_replicas(topic, 1),
    ),
}


def _share_through_outbox(mast: Mast) -> float:
    """How many of the next readings that Kafka takes come from the outbox: of other topics, therefore."""
    live, before = mast.in_kafka("pressure"), mast.status()
    mast.sample(300)
    eventually(lambda: mast.in_kafka("pressure"), until=lambda now: now > live + 80)
    # The status is of the daemon's last turn, which may have been before these.
    after = eventually(mast.status, until=lambda now: _taken(now) > _taken(before))
    return float((after["drained"] - before["drained"]) / (_taken(after) - _taken(before)))


def _taken(status: dict[str, Any]) -> int:
    """How many readings Kafka has taken so far."""
    return int(status["drained"] + status["confirmed"])


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_one_topic_takes_nothing(
    trouble: Trouble, mast: Mast, cloud: Kafka, report: Report, full: bool
) -> None:
    if trouble.before_start == _replicate and not full:
        pytest.skip("only with --full: two other reasons for the same")
    sick = mast.topics["wind_speed"]
    if trouble.before_start is not None:
        trouble.before_start(cloud, sick)
    mast.start()
    mast.sample(100)
    if trouble.hurt is not None:
        mast.delivered()
        trouble.hurt(cloud, sick)
    eventually(lambda: mast.status()["outbox_records"], until=lambda waiting: waiting >= 80)
    # Pressure is two readings in five: it goes out meanwhile, and not through the outbox. A slow machine may
    # send it there for a while, so one stretch in which it doesn't is enough.
    eventually(lambda: _share_through_outbox(mast), 120, until=lambda stored: stored <= 0.5)
    waiting = mast.status()["outbox_records"]
    if trouble.before_start == Kafka.delete and not full:
        # librdkafka requests a topic it has given up once in a minute or so; a new process does at once.
        mast.stop()
        trouble.mend(cloud, sick)
        mast.start()
    else:
        trouble.mend(cloud, sick)
    mast.delivered(90)
    mast.sample(50)
    mast.stop()
    reckoning = mast.reckon()
    reckoning.balance()
    report(reckoning.figures(), waiting=waiting)
    assert not reckoning.refused


def test_a_topic_with_a_replica_too_few_is_said_to_lack_it(cloud: Kafka, tmp_path: Path) -> None:
    """Kafka answers NOT_ENOUGH_REPLICAS, which librdkafka repeats by itself and reports to nobody."""
    topic = unique_name("mqtt.short")
    cloud.create_with_a_replica_that_is_down(topic)
    cloud.require_replicas(topic, 2)
    text = config_text(cup(), kafka={"bootstrap_servers": cloud.direct})
    sinks = KafkaSinks.open(load(write_config(tmp_path, text)))

    def refusal() -> str | None:
        assert sinks.live.poll(0.1) == []
        return sinks.refusal((), answering=False)

    try:
        assert sinks.live.send(Record(topic, b"key", b"{}", ()), None)  # type: ignore[arg-type]
        eventually(refusal, 30, until="replicas".__eq__)
        assert f"1 of 2 replicas of {topic}" in str(sinks.problem(answering=False))
        assert sinks.refusal(()) is None
        parked = ParkedTopic(0.0, "no delivery report while others came: min.insync.replicas?")
        assert sinks.refusal([parked]) == "replicas"
    finally:
        sinks.close()
