"""The session with a real Mosquitto: what is acknowledged when, and what comes again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from paho.mqtt import publish

from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.mqtt.session import MqttSession
from gateway.ports import Ack
from tests.support.forwarding import session_with
from tests.support.servers import eventually


class Message(NamedTuple):
    payload: bytes
    ack: Ack
    repeated: bool


@contextmanager
def session(broker: LocalMosquitto, *, at_once: bool = False) -> Iterator[tuple[MqttSession, list[Message]]]:
    """A link of one and the same client; ``at_once`` acknowledges in the network thread."""
    found: list[Message] = []

    def arrived(topic: str, payload: bytes, ack: Ack | None, retained: bool, repeated: bool) -> None:
        assert ack is not None
        # Before it is noted: who sees the last message here may end the session.
        if at_once:
            link.acknowledge(ack)
        found.append(Message(payload, ack, repeated))

    link = session_with(broker.host, broker.port, arrived)
    link.start()
    try:
        assert link.ready.wait(60)
        yield link, found
    finally:
        link.stop()


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
    assert [(message.payload, message.ack.message_id) for message in again] == [
        (message.payload, message.ack.message_id) for message in first
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
        assert (second.ack.message_id, second.payload) == (first.ack.message_id, b"second")
        link.acknowledge(first.ack)
    with session(mosquitto) as (_, found):
        assert [message.payload for message in received(found, 1)] == [b"second"]


def test_nothing_is_published_while_it_would_not_come_back(mosquitto: LocalMosquitto) -> None:
    with session(mosquitto) as (link, _):
        assert link.publish("own/x", b"1")
        mosquitto.kill()
        eventually(lambda: not link.ready.is_set())
        assert not link.publish("own/x", b"2")


def test_held_back_it_stays_away_and_the_broker_keeps_what_comes(mosquitto: LocalMosquitto) -> None:
    with session(mosquitto) as (link, found):
        link.hold()
        eventually(lambda: not link.ready.is_set())
        send(mosquitto, b"kept")
        assert found == []
        link.resume()
        assert [message.payload for message in received(found, 1)] == [b"kept"]


def test_two_with_one_id_are_reported_as_a_likely_takeover(
    mosquitto: LocalMosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    with session(mosquitto, at_once=True), session(mosquitto, at_once=True):
        eventually(lambda: "event=mqtt.session_taken_over certain=no" in caplog.text)


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
