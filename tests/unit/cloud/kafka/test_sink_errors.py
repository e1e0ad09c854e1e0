"""What librdkafka reports while Kafka is away: each reason once, and the one that stands."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from cloud.kafka import listener_probe
from cloud.kafka.listener_probe import Fault
from cloud.kafka.producer import KafkaSink
from tests.support.servers import eventually

DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


def refused(after_ms: int) -> KafkaError:
    text = f"k:9092/bootstrap: Connect to 10.0.0.1:9092 failed: refused (after {after_ms}ms in state CONNECT)"
    return KafkaError(KafkaError._TRANSPORT, text)


def login(after_ms: int) -> KafkaError:
    text = f"k:9092/1: SASL authentication error: invalid credentials (after {after_ms}ms in state AUTH_REQ)"
    return KafkaError(KafkaError._AUTHENTICATION, text)


def test_a_wrong_password_shows_though_the_outage_began_with_another_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink = KafkaSink[None]("127.0.0.1:1", "client", {})
    with caplog.at_level(logging.WARNING):
        for error in (refused(0), DOWN, refused(3), DOWN, login(302), DOWN, login(305)):
            sink._on_error(error)
    assert [record.getMessage().partition("str=")[2] for record in caplog.records] == [
        f'"{error.str()}"}}' for error in (refused(0), DOWN, login(302))
    ]
    assert (sink.problem or "").startswith("_AUTHENTICATION: k:9092/1: SASL authentication error")
    sink.close()


def test_a_second_fault_of_the_listener_takes_the_place_of_the_first(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # librdkafka's words are the same for both.
    refused_by_tls = KafkaError(KafkaError._SSL, "SSL handshake failed: certificate verify failed")
    expired, elsewhere = Fault("certificate", "it has expired"), Fault("certificate", "it is another host's")
    found: list[Fault | None] = [expired]
    monkeypatch.setattr(listener_probe, "listener_fault", lambda servers, properties: found[0])
    monkeypatch.setattr(listener_probe, "_AGAIN_S", 0.05)
    sink = KafkaSink[None]("127.0.0.1:1", "client", {"security.protocol": "SSL"})

    def reason() -> str | None:
        sink._on_error(refused_by_tls)
        sink._on_error(DOWN)
        return sink.reason

    def becomes(fault: Fault) -> None:
        found[0] = fault
        eventually(reason, 20, until=lambda now: now == fault.text)

    with caplog.at_level(logging.WARNING):
        becomes(expired)
        becomes(elsewhere)
        sink._on_error(login(302))
        assert (sink.reason or "").startswith("_AUTHENTICATION")
        becomes(expired)
        sink._on_error(login(302))
    sink.close()
    said = [record.getMessage() for record in caplog.records]
    assert [text for text in said if "listener_refuses" in text] == [
        f"event=kafka.listener_refuses reason={each.text}" for each in (expired, elsewhere, expired)
    ]
    assert len([text for text in said if "_AUTHENTICATION" in text]) == 2


def test_an_unreachable_kafka_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(listener_probe, "listener_fault", lambda servers, properties: asked.append(servers))
    monkeypatch.setattr(listener_probe, "_AGAIN_S", 0.0)
    sink = KafkaSink[None]("127.0.0.1:1", "client", {})
    for _ in range(10):
        sink._on_error(refused(0))
        sink._on_error(DOWN)
    sink.close()
    eventually(lambda: asked, 20, until=lambda found: len(found) == 2)


def test_what_kafka_refuses_is_a_word_too() -> None:
    sink = KafkaSink[None]("127.0.0.1:1", "client", {})
    words = [sink.refusal]
    for error in (refused(0), login(302), DOWN, KafkaError(KafkaError._SSL, "certificate verify failed")):
        sink._on_error(error)
        words.append(sink.refusal)
    assert words == [None, "unreachable", "login", "login", "unreachable"]
    sink._listener.fault = Fault("certificate", "the broker's certificate has expired")
    assert (sink.refusal, sink.reason) == ("certificate", "the broker's certificate has expired")
    sink.close()
    broken = KafkaSink[None]("127.0.0.1:1", "client", {"ssl.ca.location": "/nowhere/ca.pem",
                                                       "security.protocol": "SSL"})  # fmt: skip
    assert broken.refusal == "config"
    broken.close()
