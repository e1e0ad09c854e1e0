"""An old record must not overtake a newer one: Kafka keeps the last of a key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.forwarding.compacted_topics import CompactedTopics
from gateway.forwarding.record_codec import to_bytes
from gateway.ports import Record
from tests.support.forwarding import Done, make_forwarder
from tests.support.outbox import TemporaryOutbox
from tests.support.servers import eventually
from tests.unit.gateway.forwarding.test_forwarder_metered import BarredSink
from tests.unit.gateway.forwarding.test_forwarder_silence import ScriptedSink
from tests.unit.gateway.mqtt.test_intake import intake


class HoldingSink(ScriptedSink):
    """Takes records and reports nothing of them until it is released."""

    def __init__(self) -> None:
        super().__init__(lambda record: False)
        self.held: list[Done] = []

    def send(self, record: Record, done: Done) -> bool:
        self.held.append(done)
        return super().send(record, done)

    def release(self) -> None:
        for done in self.held:
            done(None)


def run_record(revision: Any, state: str = "running", run: str = "r1") -> Record:
    value = json.dumps({"run": run, "state": state, "revision": revision}).encode()
    return Record("gateway.runs", f"mast-07/{run}".encode(), value, ())


def test_of_one_run_only_older_records_are_stale() -> None:
    compacted = CompactedTopics("thisrun")
    assert not compacted.is_stale(run_record(1))
    compacted.delivered(run_record(5))
    compacted.delivered(run_record(3))
    assert compacted.is_stale(run_record(4))
    assert not compacted.is_stale(run_record(5))
    assert not compacted.is_stale(run_record(6))
    assert not compacted.is_stale(run_record(4, run="r2"))


@pytest.mark.parametrize("state", ["stopped", "killed"])
def test_nothing_comes_after_a_run_s_closing_record(state: str) -> None:
    compacted = CompactedTopics("thisrun")
    # A killed run is closed from its last retained record, which may be older than what it stored.
    compacted.delivered(run_record(60, state))
    assert compacted.is_stale(run_record(61, "ended"))
    assert not compacted.is_stale(run_record(60, state))


@pytest.mark.parametrize("value", [b"", b"[]", b"{", b'{"revision":"x"}', b'{"revision":true}', b"null"])
def test_a_record_without_a_revision_is_older_than_any_with_one(value: bytes) -> None:
    compacted = CompactedTopics("thisrun")
    bare = Record("gateway.runs", b"mast-07/r1", value, ())
    compacted.delivered(bare)
    assert not compacted.is_stale(bare)
    compacted.delivered(run_record(1))
    assert compacted.is_stale(bare)


def channel_record(revision: int, channel: str = "cup.wind_speed", topic: str = "gateway.channels") -> Record:
    value = json.dumps({"revision": revision, "in_force": revision % 2 == 1}).encode()
    return Record(topic, f"mast-07/{channel}/5d1c0a7e".encode(), value, ())


def test_a_channels_records_are_kept_apart_from_a_runs() -> None:
    compacted = CompactedTopics("thisrun")
    same_key = Record("gateway.runs", channel_record(1).key, channel_record(9).value, ())
    assert compacted.delivered(same_key) is None
    assert not compacted.is_stale(channel_record(1))
    assert compacted.delivered(channel_record(2)) is None
    assert compacted.is_stale(channel_record(1))
    assert not compacted.is_stale(channel_record(2))
    assert not compacted.is_stale(channel_record(1, "baro.pressure"))


def test_a_channel_record_that_was_overtaken_is_returned() -> None:
    """Both were under way, through two producers: the old one has come last, and that is what Kafka keeps."""
    compacted = CompactedTopics("thisrun")
    assert compacted.delivered(channel_record(2)) is None
    assert compacted.delivered(channel_record(1)) == channel_record(2)
    assert compacted.delivered(channel_record(2)) is None
    assert compacted.is_stale(channel_record(1))
    # A run's isn't: its next one comes within a minute.
    compacted.delivered(run_record(2))
    assert compacted.delivered(run_record(1)) is None


@pytest.mark.parametrize("topic", ["gateway.channels", "gateway.sites"])
def test_a_record_that_is_on_its_way_makes_older_ones_stale(topic: str) -> None:
    compacted = CompactedTopics("thisrun")
    compacted.entered(channel_record(2, topic=topic))
    assert compacted.is_stale(channel_record(1, topic=topic))
    assert not compacted.is_stale(channel_record(2, topic=topic))
    # Of a run only what Kafka has counts: no start sends it again.
    compacted.entered(run_record(2))
    assert not compacted.is_stale(run_record(1))


def status(run: str, revision: int | None, state: str = "online") -> Record:
    value = json.dumps({"run": run, "revision": revision, "state": state}).encode()
    return Record("gateway.status", b"mast-07", value, ())


def test_of_statuses_this_runs_newest_counts() -> None:
    compacted = CompactedTopics("thisrun")
    will = status("earlier", None, "offline")
    compacted.entered(status("thisrun", 2))
    assert compacted.is_stale(status("thisrun", 1))
    assert compacted.is_stale(status("earlier", 9, "offline"))
    assert compacted.is_stale(will)
    assert not compacted.is_stale(status("thisrun", 2))
    # A will that is on its way, or has come after it, is no newer status.
    compacted.entered(will)
    assert compacted.delivered(will) == status("thisrun", 2)
    assert compacted.is_stale(will)


def test_without_a_status_of_this_run_those_of_others_go_in_their_order() -> None:
    compacted = CompactedTopics("thisrun")
    compacted.delivered(status("r1", 9, "offline"))
    for record in (status("r2", 1), status("r1", 1)):
        assert not compacted.is_stale(record)
        assert compacted.delivered(record) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [(channel_record(1), channel_record(2)), (status("earlier", 7, "offline"), status("thisrun", 1))],
    ids=["channel", "status"],
)
def test_an_overtaken_record_is_sent_again(old: Record, new: Record) -> None:
    outbox = TemporaryOutbox()
    outbox.append([to_bytes(old)])
    live, backlog = ScriptedSink(lambda record: True), HoldingSink()
    forwarder = make_forwarder(intake()[0], live, backlog, outbox)
    forwarder.start()
    try:
        eventually(lambda: backlog.held)
        forwarder.inbox.announce(new)
        eventually(lambda: forwarder.counters.confirmed, until=lambda confirmed: confirmed == 1)
        assert live.sent == [new]
        backlog.release()
        eventually(lambda: live.sent, until=lambda sent: len(sent) == 2)
    finally:
        forwarder.stop(grace_s=1.0)
    assert live.sent == [new] * 2


def test_other_topics_are_never_stale() -> None:
    compacted = CompactedTopics("thisrun")
    event = Record("gateway.events", b"mast-07/r1", run_record(1).value, ())
    compacted.delivered(run_record(5))
    compacted.delivered(event)
    assert not compacted.is_stale(event)


def test_only_the_latest_runs_are_remembered() -> None:
    compacted = CompactedTopics("thisrun")
    for number in range(1_001):
        compacted.delivered(run_record(2, run=f"r{number}"))
    assert not compacted.is_stale(run_record(1, run="r0"))
    assert compacted.is_stale(run_record(1, run="r1"))


def test_what_was_stored_before_a_newer_record_was_sent_is_forgotten() -> None:
    outbox = TemporaryOutbox()
    outbox.append([to_bytes(run_record(1)), to_bytes(run_record(7, run="r0"))])
    live, backlog = ScriptedSink(lambda record: True), BarredSink(lambda record: True)
    forwarder = make_forwarder(intake()[0], live, backlog, outbox)
    forwarder.start()
    try:
        forwarder.inbox.announce(run_record(2))
        eventually(lambda: forwarder.counters.confirmed, until=lambda confirmed: confirmed == 1)
        backlog.barred = False
        eventually(lambda: forwarder.outbox.records, until=lambda left: left == 0)
    finally:
        forwarder.stop(grace_s=0.0)
    assert [record.key for record in backlog.sent] == [b"mast-07/r0"]
