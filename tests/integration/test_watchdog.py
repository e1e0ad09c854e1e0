"""A whole daemon under a watchdog of a second, its parts wedged beneath it one after the other and released.

The wedges are put into the daemon's parts from here: the product has no switch for them.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.config import load
from gateway.daemon.build import build
from gateway.daemon.daemon import Daemon
from gateway.daemon.gateway import Gateway
from tests.support.config import config_text, cup, dht
from tests.support.servers import eventually

PERIOD_S = 1.0
CONFIG = config_text(
    cup(),
    dht(),
    outbox={"commit_interval_s": 0.2},
    kafka={"properties": {"delivery.timeout.ms": 1000}},
    board={"start": "2026-01-01T00:00:00Z", "speed": 50},
    status={"listen": ""},
)


@dataclass
class Systemd:
    """What systemd would receive, with the time when (monotonic)."""

    received: list[tuple[float, str]] = field(default_factory=list)

    def listen(self, at: socket.socket) -> None:
        while message := at.recv(4096).decode():
            self.received += [(time.monotonic(), line) for line in message.splitlines()]

    def pings(self) -> list[float]:
        return [when for when, line in self.received if line == "WATCHDOG=1"]

    def longest_silence_s(self, since_s: float) -> float:
        """Between pings from a moment until now."""
        moments = [since_s, *(when for when in self.pings() if when > since_s), time.monotonic()]
        return max(after - before for before, after in pairwise(moments))


@dataclass
class Mast:
    """A daemon in a thread of the test's."""

    daemon: Daemon
    systemd: Systemd


class Gate:
    """Wedges whoever comes through while it is closed; who is inside, is counted."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.waiting = 0

    def __call__(self) -> None:
        self.waiting += 1
        self.open.wait()


@contextmanager
def behind(target: Any, name: str, before: Callable[[], None]) -> Iterator[None]:
    """Have something done before each call of a method."""
    call = getattr(target, name)

    def called(*arguments: Any, **named: Any) -> Any:
        before()
        return call(*arguments, **named)

    setattr(target, name, called)
    try:
        yield
    finally:
        setattr(target, name, call)


@pytest.fixture(scope="module")
def mast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mast]:
    """Kafka is a port that takes connections and sends nothing: an uplink as slow as one can be."""
    directory = tmp_path_factory.mktemp("watched")
    path, address = directory / "gateway.toml", str(directory / "notify")
    path.write_text(CONFIG)
    with (
        pytest.MonkeyPatch.context() as patch,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening,
        socket.create_server(("127.0.0.1", 0)) as silent,
        LocalMosquitto(directory / "broker") as mosquitto,
    ):
        listening.bind(address)
        patch.setenv("NOTIFY_SOCKET", address)
        patch.setenv("WATCHDOG_USEC", str(int(PERIOD_S * 1e6)))
        patch.setenv("WATCHDOG_PID", str(os.getpid()))
        patch.setattr("gateway.daemon.daemon._TICK_S", 0.1)
        patch.setattr("gateway.daemon.daemon._KAFKA_GRACE_S", 0.2)
        # As far below the watchdog's patience as it is with the real ones.
        patch.setattr("gateway.forwarding.forwarder._IDLE_S", 0.05)
        patch.setattr(signal, "signal", lambda *_: None)
        systemd = Systemd()
        listener = threading.Thread(target=systemd.listen, args=(listening,))
        listener.start()
        kafka = f"127.0.0.1:{silent.getsockname()[1]}"
        overrides = {"mqtt.port": mosquitto.port, "kafka.bootstrap_servers": kafka}
        daemon = build(load(path, overrides), path, overrides)
        running = threading.Thread(target=daemon.run, args=(None,))
        running.start()
        try:
            eventually(systemd.pings, 20)
            eventually(daemon.gateway.session.ready.is_set, 20)
            yield Mast(daemon, systemd)
        finally:
            daemon.gateway.life.stop.set()
            running.join()
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                last.sendto(b"", address)
            listener.join()
    lines = [line for _, line in systemd.received]
    assert lines[0] == "READY=1"
    assert lines.index("STOPPING=1") == len(lines) - 2
    assert "WATCHDOG=1" not in lines[lines.index("STOPPING=1") :]


def pings_go_on(mast: Mast) -> None:
    before = len(mast.systemd.pings())
    eventually(lambda: len(mast.systemd.pings()), 20, until=lambda n: n > before)


@pytest.mark.parametrize(
    ("wedged", "method", "part"),
    [
        (lambda gateway: gateway.forwarder._uplink, "turn", "forwarder"),
        (lambda gateway: gateway.forwarder.outbox._outbox, "append", "outbox-writer"),
        (lambda gateway: gateway.last, "note", "sampler-"),
        (lambda gateway: gateway.samplers, "check", "main-loop"),
        (lambda gateway: gateway.session, "read", "forwarder"),
        (lambda gateway: gateway.kafka.live, "poll", "forwarder"),
    ],
    ids=["forwarder", "outbox writer", "sampler", "main loop", "network", "poll"],
)
def test_a_wedged_part_ends_the_pings(
    wedged: Callable[[Gateway], Any], method: str, part: str, mast: Mast
) -> None:
    pings_go_on(mast)
    gate = Gate()
    with behind(wedged(mast.daemon.gateway), method, gate):
        try:
            eventually(lambda: gate.waiting, 20)
            stuck = eventually(lambda: mast.daemon.gateway.watchdog.stuck, 20)
            # No other part counts as stuck: what waits for the wedged one has nothing to do, or goes on.
            assert all(each.startswith(part) for each in stuck), stuck
            since_s = time.monotonic()
            # Three pings would have come.
            eventually(lambda: time.monotonic() - since_s, 5, until=lambda passed_s: passed_s > PERIOD_S / 2)
            assert [when for when in mast.systemd.pings() if when > since_s] == []
            lines = [line for when, line in mast.systemd.received if when > since_s]
            assert any(line.startswith(f"STATUS=stuck, systemd is to restart it: {part}") for line in lines)
        finally:
            gate.open.set()
    pings_go_on(mast)


@pytest.mark.parametrize(
    ("idle", "method", "part"),
    [
        (lambda gateway: gateway.forwarder._uplink, "_store", "forwarding"),
        (lambda gateway: gateway.forwarder._backlog, "turn", "draining"),
    ],
    ids=["forwarding", "draining"],
)
def test_a_forwarder_that_comes_round_and_forwards_nothing_ends_the_pings(
    idle: Callable[[Gateway], Any], method: str, part: str, mast: Mast, monkeypatch: pytest.MonkeyPatch
) -> None:
    pings_go_on(mast)
    with monkeypatch.context() as patch:
        patch.setattr(idle(mast.daemon.gateway), method, lambda *_, **__: None)
        eventually(lambda: mast.daemon.gateway.watchdog.stuck, 20, until=lambda stuck: stuck == (part,))
    pings_go_on(mast)


def test_neither_a_slow_fsync_nor_a_silent_uplink_ends_the_pings(mast: Mast) -> None:
    forwarder = mast.daemon.gateway.forwarder
    since_s, stored = time.monotonic(), forwarder.counters.stored
    outbox = forwarder.outbox._outbox
    # Each commit takes longer than systemd's period, and the writer is at it all the time.
    with behind(outbox, "append", lambda: time.sleep(1.2 * PERIOD_S)):
        eventually(
            lambda: mast.daemon.gateway.forwarder.counters.stored, 30, until=lambda now: now > stored + 200
        )
        eventually(lambda: time.monotonic() - since_s, 30, until=lambda passed_s: passed_s > 3 * PERIOD_S)
    assert mast.systemd.longest_silence_s(since_s) < PERIOD_S
    assert forwarder.uplink == "spilling"


def test_a_driver_that_hangs_does_not_end_the_pings(mast: Mast) -> None:
    since_s, gate = time.monotonic(), Gate()
    sampler = next(one.sampler for one in mast.daemon.gateway.samplers._supervised if one.name == "cup")
    # Far longer than pings are late on a machine that is busy.
    sampler._timeout_s = 4 * PERIOD_S
    with behind(sampler._driver, "read", gate):
        try:
            eventually(lambda: mast.daemon.gateway.samplers.abandoned, 40, until=lambda n: n == 1)
            # The simulated mast's time stood still meanwhile; it goes on with another driver.
            before = mast.daemon.gateway.context.sequences.last("cup.wind_speed")
            eventually(
                lambda: mast.daemon.gateway.context.sequences.last("cup.wind_speed"),
                20,
                until=lambda n: n > before,
            )
        finally:
            gate.open.set()
    assert mast.systemd.longest_silence_s(since_s) < 3 * PERIOD_S


def test_status_and_reload_are_sent_to_systemd(mast: Mast) -> None:
    line = eventually(
        lambda: [line for _, line in mast.systemd.received if line.startswith("STATUS=3 channels")], 20
    )[-1]
    assert "; uplink spilling; " in line
    assert "; kafka: " in line
    before_us = time.monotonic_ns() // 1000
    mast.daemon._reload.requested.set()
    at = eventually(
        lambda: [n for n, (_, line) in enumerate(mast.systemd.received) if line == "RELOADING=1"], 20
    )[0]
    name, _, reloading_us = mast.systemd.received[at + 1][1].partition("=")
    assert name == "MONOTONIC_USEC"
    assert before_us <= int(reloading_us) <= time.monotonic_ns() // 1000
    eventually(lambda: "READY=1" in [line for _, line in mast.systemd.received[at + 2 :]], 20)
