"""The session with a real Mosquitto: what is acknowledged when, and what comes again."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import publish, subscribe

from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.ports import Ack, Message
from tests.support.forwarding import Link, running, snapshot
from tests.support.servers import eventually


def acked(message: Message) -> Ack:
    assert message.ack is not None
    return message.ack


@contextmanager
def session(
    broker: LocalMosquitto, *, at_once: bool = False, file: Path | None = None
) -> Iterator[tuple[Link, list[Message]]]:
    """A link of one and the same client; ``at_once`` acknowledges as messages come."""
    found: list[Message] = []

    def arrived(message: Message) -> None:
        # Before it is noted: who sees the last message here may end the session.
        if at_once:
            link.session.acknowledge(acked(message))
        found.append(message)

    link = Link(broker.host, broker.port, arrived, file=file)
    with running(link):
        yield link, found


def send(broker: LocalMosquitto, *payloads: bytes) -> None:
    messages: list[Any] = [("sensors/x", payload, 1, False) for payload in payloads]
    publish.multiple(messages, hostname=broker.host, port=broker.port)


def received(found: list[Message], count: int) -> list[Message]:
    return eventually(lambda: found, until=lambda messages: len(messages) >= count)


def test_what_is_not_acknowledged_comes_again_flagged_and_under_its_id(mosquitto: LocalMosquitto) -> None:
    with session(mosquitto) as (_, found):
        send(mosquitto, b"one", b"two")
        first = received(found, 2)
    with session(mosquitto) as (_, found):
        again = received(found, 2)
    assert [(message.payload, acked(message).message_id) for message in again] == [
        (message.payload, acked(message).message_id) for message in first
    ]
    assert [message.repeated for message in (*first, *again)] == [False, False, True, True]


def test_an_acknowledgement_before_the_subscription_counts(mosquitto: LocalMosquitto) -> None:
    with session(mosquitto) as (_, found):
        send(mosquitto, *(b"%d" % number for number in range(15)))
        received(found, 15)
    with session(mosquitto, at_once=True) as (_, found):
        received(found, 15)
    with session(mosquitto, at_once=True) as (_, found):
        send(mosquitto, b"new")
        assert [message.payload for message in received(found, 1)] == [b"new"]


def test_an_acknowledgement_of_an_earlier_connection_is_void(mosquitto: LocalMosquitto) -> None:
    with session(mosquitto) as (link, found):
        send(mosquitto, b"first")
        (first,) = received(found, 1)
        mosquitto.kill()
        eventually(lambda: not link.ready.is_set())
        mosquitto.start()
        assert link.ready.wait(60)
        send(mosquitto, b"second")
        second = received(found, 2)[1]
        # The broker began to count from 1 again: the same id, another message.
        assert (acked(second).message_id, second.payload) == (acked(first).message_id, b"second")
        assert second.session == first.session + 1
        link.do(lambda: link.session.acknowledge(acked(first)))
    with session(mosquitto) as (_, found):
        assert [message.payload for message in received(found, 1)] == [b"second"]


def test_nothing_is_published_while_it_would_not_come_back(mosquitto: LocalMosquitto) -> None:
    with session(mosquitto) as (link, found):
        mosquitto.kill()
        eventually(lambda: not link.ready.is_set())
        link.do(lambda: link.session.publish("sensors/x", b"in vain"))
        mosquitto.start()
        assert link.ready.wait(60)
        link.do(lambda: link.session.publish("sensors/x", b"comes back"))
        assert [message.payload for message in received(found, 1)] == [b"comes back"]


def test_while_nothing_is_taken_the_broker_keeps_what_comes(mosquitto: LocalMosquitto) -> None:
    with session(mosquitto) as (link, found):
        link.take = False
        link.do(lambda: None)
        eventually(lambda: not link.ready.is_set())
        send(mosquitto, b"kept")
        assert found == []
        link.take = True
        assert [message.payload for message in received(found, 1)] == [b"kept"]


def retain(broker: LocalMosquitto, topic: str, payload: bytes) -> None:
    publish.single(topic, payload, qos=1, retain=True, hostname=broker.host, port=broker.port)


def test_a_retained_message_comes_with_a_new_filter_only_and_never_as_news_again(
    mosquitto: LocalMosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.mqtt.session._SETTLED_S", 0.3)
    file = tmp_path / "outbox.db.subscriptions"
    retain(mosquitto, "sensors/x", b"old")
    retain(mosquitto, "others/x", b"old too")
    with session(mosquitto, at_once=True, file=file) as (link, found):
        (first,) = received(found, 1)
        assert (first.payload, first.retained) == (b"old", True)
        link.do(lambda: link.session.refilter(["sensors/#", "others/#"]))
        assert received(found, 2)[1].payload == b"old too"
        # Live, a message isn't flagged as retained, though it is.
        retain(mosquitto, "sensors/x", b"new")
        assert [(each.payload, each.retained) for each in received(found, 3)[2:]] == [(b"new", False)]
        eventually(lambda: set(link.subscriptions._held.values()), until=lambda settled: settled == {True})
        link.subscriptions.tick(snapshot())
    # Another process, with the session of the one before, and one filter less.
    with session(mosquitto, at_once=True, file=file) as (_, found):
        publish.multiple(
            [("others/x", b"not wanted", 1, False), ("sensors/y", b"live", 1, False)],
            hostname=mosquitto.host,
            port=mosquitto.port,
        )
        received(found, 1)
    assert [each.payload for each in found] == [b"live"]


def test_retained_messages_that_were_not_acknowledged_are_news_in_the_next_run(
    mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    file = tmp_path / "outbox.db.subscriptions"
    for number in range(30):
        retain(mosquitto, f"sensors/{number}", b"%d" % number)
    # More than the broker sends before the first of them is acknowledged.
    with session(mosquitto, file=file) as (link, found):
        received(found, 20)
        link.subscriptions.tick(snapshot())
    with session(mosquitto, at_once=True, file=file) as (_, found):
        eventually(lambda: {each.payload for each in found}, until=lambda seen: len(seen) == 30)


def test_bytes_behind_the_end_of_a_connection_keep_nobody_busy() -> None:
    """A broker that dies leaves what it had sent: no packet can be made of it any more."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        link = Link("127.0.0.1", listener.getsockname()[1])
        link.start()
        try:
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(100)
                    # CONNACK, then a packet of a type that there isn't, and more.
                    connection.sendall(bytes([0x20, 2, 0, 0]) + bytes([0xF0, 0]) * 100)
            link.do(lambda: None)
        finally:
            link.stop()


def test_a_removal_is_published_until_the_broker_has_it(mosquitto: LocalMosquitto) -> None:
    retain(mosquitto, "homeassistant/a", b"old")
    with session(mosquitto) as (link, _):
        link.do(lambda: link.session.retain({"homeassistant/a": b"", "homeassistant/b": b"stays"}))
        eventually(lambda: link.session._retained, until=lambda kept: kept == {"homeassistant/b": b"stays"})
    kept = subscribe.simple("homeassistant/#", hostname=mosquitto.host, port=mosquitto.port)  # type: ignore[no-untyped-call]
    assert (kept.topic, kept.payload) == ("homeassistant/b", b"stays")


def test_two_with_one_id_are_reported_as_a_likely_takeover(
    mosquitto: LocalMosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    with session(mosquitto, at_once=True) as (one, _), session(mosquitto, at_once=True) as (other, _):
        eventually(lambda: "event=mqtt.session_taken_over certain=no" in caplog.text)
        eventually(lambda: one.session.taken_over or other.session.taken_over)


def test_a_takeover_is_over_once_a_connection_lasts(
    mosquitto: LocalMosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In place of half a minute; longer than either's connection while there are two.
    monkeypatch.setattr("gateway.mqtt.session._PROVEN_S", 4.0)
    with session(mosquitto, at_once=True) as (one, _):
        with session(mosquitto, at_once=True) as (other, _):
            eventually(lambda: one.session.taken_over or other.session.taken_over)
        one.session._short_lived = 3
        eventually(lambda: not one.session.taken_over)


def test_a_broker_that_is_restarted_again_and_again_is_no_takeover(
    mosquitto: LocalMosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    with session(mosquitto, at_once=True) as (link, _):
        for _ in range(4):
            mosquitto.kill()
            eventually(lambda: not link.ready.is_set())
            mosquitto.start()
            assert link.ready.wait(60)
    assert caplog.text.count("event=mqtt.disconnected") == 4
    assert "event=mqtt.session_taken_over" not in caplog.text
