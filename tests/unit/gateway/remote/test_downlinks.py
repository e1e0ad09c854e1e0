"""Where a downlink publishes a record, by its key; what it refuses; and where it reads on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from cloud.errors import CloudError
from cloud.kafka.readers import Partition, TopicReader, TopicRecord
from gateway.config import check, load
from gateway.config.bridges.model import DownlinkConfig
from gateway.remote.downlinks import Downlinks, Refused, destination
from tests.support.config import config_text, write_config

ALL = DownlinkConfig("settings", "devices/{key}/set")
OWN = DownlinkConfig("settings", "devices/{key}/set", key_prefix="mast-07/")


@pytest.mark.parametrize(
    ("downlink", "key", "topic"),
    [
        (ALL, b"fan", "devices/fan/set"),
        (ALL, b"shed/fan", "devices/shed/fan/set"),
        (ALL, "Lüfter".encode(), "devices/Lüfter/set"),
        (OWN, b"mast-07/fan", "devices/fan/set"),
        (OWN, b"mast-08/fan", None),
        (OWN, None, None),
        (DownlinkConfig("settings", "devices/all"), None, "devices/all"),
        (DownlinkConfig("settings", "devices/all"), b"\xff", "devices/all"),
    ],
)
def test_the_key_gives_the_topic(downlink: DownlinkConfig, key: bytes | None, topic: str | None) -> None:
    assert destination(downlink, key) == topic


@pytest.mark.parametrize(
    ("downlink", "key", "reason"),
    [
        (ALL, None, "NO_KEY"),
        (ALL, b"", "NO_KEY"),
        (OWN, b"mast-07/", "NO_KEY"),
        (ALL, b"+", "BAD_KEY"),
        (ALL, b"fan/#", "BAD_KEY"),
        (ALL, b"fan\x00", "BAD_KEY"),
        (ALL, b"fan\n", "BAD_KEY"),
        (ALL, "fan\u2028".encode(), "BAD_KEY"),
        (ALL, b"\xff", "BAD_KEY"),
        (ALL, b"k" * 1100, "BAD_KEY"),
    ],
)
def test_a_key_that_gives_no_topic_is_refused(
    downlink: DownlinkConfig, key: bytes | None, reason: str
) -> None:
    with pytest.raises(Refused) as refused:
        destination(downlink, key)
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("topic", "gateway.commands", "must not begin with"),
        ("topic", "__consumer_offsets", "must not begin with"),
        ("topic", "a b", "must be 1 to 249"),
        ("mqtt_topic", "{key}", "must begin with a level of its own"),
        ("mqtt_topic", "set-{key}/x", "must begin with a level of its own"),
        ("mqtt_topic", "set/{topic}", "may have {key} only, not {topic}"),
        ("mqtt_topic", "set/#", "wildcards"),
        ("mqtt_topic", "$SYS/{key}", 'must not begin with "$"'),
        ("mqtt_topic", "fieldgate/x", "the gateway's own topics"),
        ("mqtt_topic", "shed/{key}", "a [[forward]], which would send it to Kafka again"),
        ("begin", "now", "must be"),
    ],
)
def test_a_config_that_could_do_harm_is_refused(tmp_path: Path, key: str, value: str, problem: str) -> None:
    table = {"topic": "settings", "mqtt_topic": "set/{key}"} | {key: value}
    forward = [{"filter": "shed/fan/+", "payload": "raw"}]
    config, problems = check(
        write_config(tmp_path, config_text(gateway={"id": "mast"}, forward=forward, downlink=[table]))
    )
    assert config is None
    assert [problem in each.message for each in problems] == [True], problems


def test_alerts_may_come_down_and_a_topic_once(tmp_path: Path) -> None:
    table = {"topic": "gateway.alerts", "mqtt_topic": "alerts/{key}", "retain": True}
    path = write_config(tmp_path, config_text(gateway={"id": "mast"}, downlink=[table]))
    assert load(path).downlinks == (DownlinkConfig("gateway.alerts", "alerts/{key}", retain=True),)
    path = write_config(tmp_path, config_text(gateway={"id": "mast"}, downlink=[table, table]))
    assert "is that of a [[downlink]] already" in check(path)[1][0].message


class Kafka:
    """A topic of one partition."""

    def __init__(self, values: int) -> None:
        self.begun: dict[Partition, int] = {("settings", 0): 0}
        self.committed: dict[Partition, int] = {}
        self._records = [TopicRecord(("settings", 0), each, b"fan", b"%d" % each) for each in range(values)]
        self.reads = 0

    def read(self, _timeout_s: float) -> TopicRecord | None:
        self.reads += 1
        return self._records.pop(0) if self._records else None

    def commit(self, positions: dict[Partition, int]) -> None:
        self.committed |= positions

    def lag(self, _topic: str, _positions: object) -> int:
        return 0


class Opened(Downlinks):
    """With a reader of the test's."""

    def begin(self, kafka: Kafka) -> TopicReader:
        reader = cast(TopicReader, kafka)
        self._begin(reader, self._config)
        return reader


@pytest.fixture
def sent() -> list[tuple[bytes, Callable[[bool], None]]]:
    return []


@pytest.fixture
def downlinks(tmp_path: Path, sent: list[Any]) -> Opened:
    table = {"topic": "settings", "mqtt_topic": "set/{key}"}
    config = load(write_config(tmp_path, config_text(gateway={"id": "mast"}, downlink=[table])))

    def publish(_topic: str, payload: bytes, _retain: bool, done: Callable[[bool], None]) -> bool:
        sent.append((payload, done))
        return True

    return Opened(config, publish, lambda *_, **__: None, lambda _: None, threading.Event())  # type: ignore[arg-type]


def test_the_position_moves_past_what_is_acknowledged_up_to_the_first_that_is_not(
    downlinks: Opened, sent: list[tuple[bytes, Callable[[bool], None]]]
) -> None:
    kafka = Kafka(3)
    reader = downlinks.begin(kafka)
    for _ in range(3):
        downlinks._take(reader, 0)
    sent[1][1](True)
    downlinks._take(reader, 0)
    downlinks._turn(reader)
    assert kafka.committed == {("settings", 0): 0}
    sent[0][1](True)
    downlinks._take(reader, 0)
    downlinks._kept_at_s = float("-inf")
    downlinks._turn(reader)
    assert kafka.committed == {("settings", 0): 2}


def test_so_many_are_open_at_most(downlinks: Opened, sent: list[Any]) -> None:
    kafka = Kafka(100)
    reader = downlinks.begin(kafka)
    for _ in range(100):
        downlinks._take(reader, 0)
    assert (len(sent), kafka.reads) == (50, 50)


def test_what_the_broker_could_not_queue_is_read_again(downlinks: Opened, sent: list[Any]) -> None:
    reader = downlinks.begin(Kafka(1))
    downlinks._take(reader, 0)
    sent[0][1](False)
    with pytest.raises(CloudError, match="queue is full"):
        downlinks._take(reader, 0)
