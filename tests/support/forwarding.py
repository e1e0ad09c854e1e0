"""A forwarder with its inbox, and sessions with the local broker, for tests that play what is around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from buffer.drops import OnDrop, ignore
from gateway.clock.hold import ClockHold
from gateway.config.model import MqttConfig
from gateway.forwarding.forwarder import Forwarder
from gateway.forwarding.inbox import Inbox
from gateway.forwarding.kafka_health import Pace
from gateway.forwarding.outbox_writer import OutboxWriter
from gateway.forwarding.state import State
from gateway.mqtt.broker_drops import BrokerDrops
from gateway.mqtt.intake import Intake
from gateway.mqtt.session import MqttSession
from gateway.ports import Ack, Outbox, Sink, Snapshot

Arrived = Callable[[str, bytes, Ack | None, bool, bool], None]


class Acks(list[Ack]):
    """A broker that keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.resumed = 0

    def acknowledge(self, ack: Ack) -> None:
        self.append(ack)

    def resume(self) -> None:
        self.resumed += 1


def make_forwarder(
    intake: Intake,
    live: Sink,
    backlog: Sink,
    outbox: Outbox,
    acks: Acks | None = None,
    commit_interval_s: float = 0.2,
    batch_s: float | None = None,
    *,
    hold: ClockHold | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    on_drop: OnDrop = ignore,
) -> Forwarder:
    """Not started; what other threads hand it goes to its ``inbox``."""
    inbox = Inbox()
    state = State(inbox, intake, Pace(commit_interval_s, batch_s), hold or ClockHold(), monotonic)
    writer = OutboxWriter(outbox, inbox.put)
    return Forwarder(state, live, backlog, writer, Acks() if acks is None else acks, on_drop)


class _OwnTopic:
    names = ("own/run",)

    def arrived(self, topic: str, payload: bytes) -> bool:
        return False


class _Messages:
    def __init__(self, arrived: Arrived) -> None:
        self._arrived = arrived

    def arrived(self, topic: str, payload: bytes, ack: Ack | None, *, retained: bool, repeated: bool) -> bool:
        self._arrived(topic, payload, ack, retained, repeated)
        return False

    def session_lost(self) -> None: ...


def session_with(
    host: str,
    port: int,
    arrived: Arrived = lambda *_: None,
    *,
    filters: Iterable[str] = ("sensors/#",),
    drops: BrokerDrops | None = None,
    login: tuple[str, str | None] | None = None,
) -> MqttSession:
    """A session of one and the same client, not started."""
    username, password = login or (None, None)
    config = MqttConfig(host=host, port=port, username=username, password=password)
    will = ("own/status", b"")
    return MqttSession(config, "link", filters, _Messages(arrived), _OwnTopic(), will, drops)


def snapshot(at_s: float = 0.0, **changed: Any) -> Snapshot:
    """A turn of the main loop in which all is well."""
    well: dict[str, Any] = {
        "ended": False,
        "synced": True,
        "uplink": "healthy",
        "reachable_s": 0.0,
        "outbox_problem": None,
        "mqtt_connected": True,
        "confirmed_ago_s": 0.6,
        "outbox_share": 0.001,
        "channels": 12,
        "silent": (),
        "stuck": (),
        "descriptions": {},
        "counts": {"outbox_records": 0},
    }
    return Snapshot(at_s=at_s, **{**well, **changed})
