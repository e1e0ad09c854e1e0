"""A thread that dies can't be mended in its process: the daemon reports which, accounts for all, ends with 1.

Each test breaks one part of a real daemon so that it raises what it promises never to raise.
"""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import subscribe

from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.config import load
from gateway.daemon.build import build
from gateway.daemon.daemon import Daemon
from gateway.daemon.gateway import Gateway
from tests.support.config import config_text, cup
from tests.support.outbox import in_outbox

CONFIG = config_text(
    cup(),
    outbox={"commit_interval_s": 0.2},
    board={"start": "2026-01-01T00:00:00Z", "speed": 50},
    status={"listen": ""},
)


class ContractBroken(RuntimeError):
    """What no part may raise."""


def broken_once(daemon: Daemon, call: Callable[..., Any]) -> Callable[..., Any]:
    """A call that raises once, when a few readings have been sampled and the local broker takes records."""
    raised = threading.Event()

    def call_or_raise(*arguments: Any, **named: Any) -> Any:
        gateway = daemon.gateway
        sampled = gateway.context.sequences.last("cup.wind_speed")
        if not raised.is_set() and sampled >= 20 and gateway.session.ready.is_set():
            raised.set()
            raise ContractBroken
        return call(*arguments, **named)

    return call_or_raise


class BrokenProducer:
    """Stands before a producer whose ``poll`` raises once."""

    def __init__(self, daemon: Daemon, producer: Any) -> None:
        self._producer = producer
        self.poll = broken_once(daemon, producer.poll)

    def __len__(self) -> int:
        return len(self._producer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)


@pytest.fixture
def signals() -> Iterator[None]:
    """The daemon takes the signals; pytest gets them back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, action in before.items():
        signal.signal(number, action)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(
    ("owner", "part"),
    [
        (lambda gateway: gateway.session, "read"),
        (lambda gateway: gateway.kafka.live, "_producer"),
        (lambda gateway: gateway.kafka.backlog, "_producer"),
        (lambda gateway: gateway.forwarder, "_settle"),
        (lambda gateway: gateway.forwarder.outbox._outbox, "size_bytes"),
    ],
    ids=["mqtt", "live sink", "backlog sink", "forwarder", "outbox writer"],
)
def test_a_dead_thread_ends_the_daemon_with_1_and_nothing_unaccounted(
    owner: Callable[[Gateway], Any],
    part: str,
    mosquitto: LocalMosquitto,
    nowhere: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.daemon.daemon._TICK_S", 0.2)
    monkeypatch.setattr("gateway.daemon.daemon._KAFKA_GRACE_S", 0.2)
    path = tmp_path / "gateway.toml"
    path.write_text(CONFIG)
    overrides = {"mqtt.port": mosquitto.port, "kafka.bootstrap_servers": nowhere}
    daemon = build(load(path, overrides), path, overrides)
    broken, whole = owner(daemon.gateway), getattr(owner(daemon.gateway), part)
    replaced = BrokenProducer(daemon, whole) if part == "_producer" else broken_once(daemon, whole)
    setattr(broken, part, replaced)
    # Whoever doesn't notice would run for ever.
    deadline = threading.Timer(120, daemon.gateway.life.stop.set)
    deadline.start()
    try:
        with caplog.at_level(logging.INFO):
            assert daemon.run(None) == 1
    finally:
        deadline.cancel()
    assert "event=thread.died threads=forwarder remedy=restart" in caplog.text
    stored = {seq for _, _, seq in in_outbox(tmp_path / "outbox.db", "mast-07")}
    message = subscribe.simple(  # type: ignore[no-untyped-call]
        "fieldgate/mast-07/run", hostname=mosquitto.host, port=mosquitto.port
    )
    record = json.loads(message.payload)
    assert record["state"] == "stopped"
    last = record["last_seq"]["cup.wind_speed"]
    announced = set()
    for drop in record.get("dropped", ()):
        assert drop["reason"] == "NOT_STORED"
        for lost in drop["ranges"]:
            first, _, end = lost.rpartition(" ")[2].partition("-")
            announced |= set(range(int(first), int(end) + 1))
    assert last >= 20
    assert stored | announced == set(range(1, last + 1))
