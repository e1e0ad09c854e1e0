"""A real Mosquitto that drops: what we count is what is missing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from paho.mqtt import subscribe
from paho.mqtt.client import Client, topic_matches_sub
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from cloud.wire.reading_records import EVENTS_TOPIC
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.mqtt.broker_drops import TOPIC, BrokerDrops
from gateway.ports import Message
from tests.integration.test_mqtt_link import send
from tests.integration.test_third_party import forwarding, readings, send as send_all, settled
from tests.support.forwarding import Link, running
from tests.support.mast import records
from tests.support.servers import eventually, unique_name

SMALL = "sys_interval 1\nmax_inflight_messages 20\nmax_queued_messages 30\n"
FLOOD = 200


@contextmanager
def counting(
    broker: LocalMosquitto, topics: str = "sensors/#", *, acknowledging: bool = True
) -> Iterator[tuple[Link, BrokerDrops, set[bytes]]]:
    """A link that counts, and what has arrived there."""
    found: set[bytes] = set()
    drops = BrokerDrops("thisrun")

    def arrived(message: Message) -> None:
        assert topic_matches_sub(topics, message.topic)
        found.add(message.payload)
        if message.ack is not None and acknowledging:
            link.session.acknowledge(message.ack)

    link = Link(broker.host, broker.port, arrived, filters=[topics], drops=drops)
    with running(link):
        yield link, drops, found


def flood(broker: LocalMosquitto, first: int = 0) -> None:
    send(broker, *(b"%d" % number for number in range(first, first + FLOOD)))


def test_what_is_missing_after_we_stayed_away_is_what_is_counted(tmp_path: Path) -> None:
    with LocalMosquitto(tmp_path, settings=SMALL) as broker, counting(broker) as (link, drops, found):
        eventually(lambda: drops.count, until=lambda count: count == 0)
        link.take = False
        link.do(lambda: None)
        eventually(lambda: not link.ready.is_set())
        flood(broker)
        link.take = True
        eventually(lambda: drops.count or 0, until=lambda count: count == FLOOD - len(found) > 0)
        # All that was kept has come: the next one comes behind it.
        send(broker, b"last")
        eventually(lambda: b"last" in found)
        assert drops.count == FLOOD + 1 - len(found)


def test_a_slow_session_and_a_broker_that_begins_again(tmp_path: Path) -> None:
    with (
        LocalMosquitto(tmp_path, settings=SMALL) as broker,
        counting(broker, acknowledging=False) as (link, drops, found),
    ):
        flood(broker)
        # The broker counts aloud once a second, in the midst of a flood too.
        first = eventually(lambda: drops.count or 0, until=lambda count: count >= FLOOD - 20 - 30)
        assert first == FLOOD - 20 - 30
        broker.kill()
        eventually(lambda: not link.ready.is_set())
        broker.start()
        assert link.ready.wait(60)
        flood(broker, FLOOD)
        # More than before the restart: the counter alone would not show that it began again.
        flood(broker, 2 * FLOOD)
        eventually(lambda: drops.count, until=lambda count: count == first + 2 * FLOOD - 20 - 30)
        assert len(found) == 20 + 20


ACL = "topic readwrite sensors/#\ntopic readwrite own/#\nuser watcher\ntopic read $SYS/#\n"
DYNAMIC = {
    "defaultACLAccess": {
        "publishClientSend": True, "publishClientReceive": True, "subscribe": False, "unsubscribe": True
    },
    "anonymousGroup": "anyone",
    "groups": [{"groupname": "anyone", "roles": [{"rolename": "gateway"}]}],
    "roles": [
        {
            "rolename": "gateway",
            "acls": [
                {"acltype": "subscribePattern", "topic": "sensors/#", "allow": True},
                {"acltype": "subscribePattern", "topic": "own/#", "allow": True},
            ],
        }
    ],
}  # fmt: skip
PLUGIN = next(iter(Path("/usr/lib").glob("*/mosquitto_dynamic_security.so")), None)


@pytest.mark.parametrize("why", ["switched-off", "acl-file", "refused"])
def test_where_the_broker_publishes_nothing_the_number_is_unknown_and_all_else_flows(
    tmp_path: Path, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "acl").write_text(ACL)
    (tmp_path / "dynamic.json").write_text(json.dumps(DYNAMIC))
    assert PLUGIN is not None
    settings = {
        "switched-off": "sys_interval 0\n",
        "acl-file": f"sys_interval 1\nacl_file {tmp_path}/acl\n",
        "refused": f"sys_interval 1\nplugin {PLUGIN}\nplugin_opt_config_file {tmp_path}/dynamic.json\n",
    }[why]
    caplog.set_level("INFO")
    with LocalMosquitto(tmp_path, settings=settings) as broker, counting(broker) as (link, drops, found):
        if why == "refused":
            eventually(lambda: "event=mqtt.drops_unknown" in caplog.text)
        if why == "acl-file":
            # The broker publishes it, only not to us.
            subscribe.simple(  # type: ignore[no-untyped-call]
                TOPIC, hostname=broker.host, port=broker.port, auth={"username": "watcher"}
            )
        send(broker, b"one")
        eventually(lambda: found == {b"one"})
        assert link.ready.is_set()
        assert drops.count is None


@pytest.mark.parametrize("topics", ["$SYS/broker/publish/messages/#", TOPIC])
def test_one_who_forwards_the_counter_gets_it_too(tmp_path: Path, topics: str) -> None:
    with LocalMosquitto(tmp_path, settings=SMALL) as broker, counting(broker, topics) as (_, drops, found):
        eventually(lambda: drops.count, until=lambda count: count == 0)
        eventually(lambda: b"0" in found)


def test_a_forwards_filter_that_is_refused_is_reported_as_that_and_not_as_a_takeover(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "dynamic.json").write_text(json.dumps(DYNAMIC))
    settings = f"plugin {PLUGIN}\nplugin_opt_config_file {tmp_path}/dynamic.json\n"
    with LocalMosquitto(tmp_path, settings=settings) as broker:
        link = Link(broker.host, broker.port, filters=["forbidden"])
        link.start()
        begun_s = time.monotonic()
        try:
            eventually(lambda: caplog.text.count("event=mqtt.subscription_refused") >= 4)
            # Each after a longer pause.
            assert time.monotonic() - begun_s > 0.6
            assert not link.ready.is_set()
        finally:
            link.stop()
    assert "event=mqtt.session_taken_over" not in caplog.text


def publish_expiring(broker: LocalMosquitto, payload: bytes, qos: int, expiry_s: int) -> None:
    """At QoS 1 the broker has it when this returns; it may throw it away after ``expiry_s``."""
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.MessageExpiryInterval = expiry_s
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.connect(broker.host, broker.port)
    client.loop_start()
    try:
        client.publish("sensors/x", payload, qos=qos, properties=properties).wait_for_publish(10)
    finally:
        client.disconnect()
        client.loop_stop()


def test_messages_without_a_promise_go_without_being_counted(tmp_path: Path) -> None:
    with LocalMosquitto(tmp_path, settings=SMALL) as broker:
        with counting(broker) as (link, _, _):
            link.take = False
            link.do(lambda: None)
            eventually(lambda: not link.ready.is_set())
            publish_expiring(broker, b"at QoS 0", 0, 600)
            publish_expiring(broker, b"expires", 1, 1)
            publish_expiring(broker, b"stays", 1, 600)

        def session() -> tuple[set[bytes], int | None]:
            # Nothing is acknowledged: what the broker still has comes again each time.
            with counting(broker, acknowledging=False) as (_, drops, found):
                eventually(lambda: b"stays" in found and drops.count is not None)
                return found, drops.count

        assert eventually(session, until=lambda seen: seen[0] == {b"stays"}) == ({b"stays"}, 0)


def test_what_the_broker_dropped_while_the_gateway_was_dead_is_announced(
    provisioned: str, tmp_path: Path
) -> None:
    name = unique_name("mast")
    topic = "number/shed/temperature"
    with LocalMosquitto(tmp_path / "mosquitto", settings=SMALL) as broker:
        with forwarding(tmp_path, provisioned, broker, name) as mast:
            eventually(lambda: mast.status_now().get("broker_dropped"), until=lambda count: count == 0)
            # Its record on the broker has how far it had counted.
            eventually(lambda: mast.run_record()["broker_counter"], until=lambda counter: counter == 0)
            mast.kill()
        send_all(broker, [(topic, b"%d.5" % number) for number in range(FLOOD)])
        with forwarding(tmp_path, provisioned, broker, name) as mast:
            # What the broker has kept comes at once, its count when it next counts aloud.
            dropped = eventually(
                mast.status_now, until=lambda status: status["broker_dropped"] + status["received"] == FLOOD
            )["broker_dropped"]
            status = settled(mast, FLOOD - dropped)
            eventually(lambda: "event=broker.dropped" in mast.log.read_text())
            assert mast.stop() == 0
            record = mast.run_record()
    assert dropped == FLOOD - len(readings(provisioned, name, "temperature")) > 0
    assert (record["run"], record["broker_dropped"]) == (status["run"], dropped)
    events = [json.loads(found.value() or b"") for found in records(provisioned, [EVENTS_TOPIC])]
    announced = [each for each in events if (each["gateway"], each["event"]) == (name, "broker-dropped")]
    assert [(each["run"], each["count"], each["total"]) for each in announced] == [
        (status["run"], dropped, dropped)
    ]
