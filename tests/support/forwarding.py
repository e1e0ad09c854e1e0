"""A forwarder with its inbox, and sessions with the local broker, for tests that play what is around them."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from buffer.errors import OnDrop, ignore
from buffer.sqlite_outbox import SqliteOutbox
from cloud.kafka.producer import KafkaSink
from gateway.clock.hold import ClockHold
from gateway.config.model import MqttConfig
from gateway.forwarding.forwarder import Call, Forwarder, Inbox
from gateway.forwarding.outbox_writer import OutboxWriter
from gateway.forwarding.state import Pace, State
from gateway.mqtt.broker_drops import BrokerDrops
from gateway.mqtt.intake import Intake
from gateway.mqtt.session import MqttSession, Subscriptions
from gateway.ports import Ack, Message, Record, Sink, Snapshot, Undelivered
from tests.support.servers import eventually

Arrived = Callable[[Message], None]
Done = Callable[[Undelivered | None], None]


class PlayedSink(Protocol):
    """What a test plays: takes a record, and calls back with its outcome, at once or later."""

    delivery_timeout_s: float

    def send(self, record: Record, done: Done) -> bool: ...


class SinkOf:
    """A played sink as the forwarder uses it."""

    def __init__(self, played: PlayedSink, wake: Callable[[], None] = lambda: None) -> None:
        self._played = played
        self._wake = wake
        self._outcomes: deque[tuple[Any, Undelivered | None]] = deque()
        self.open = 0

    @property
    def usable(self) -> bool:
        return getattr(self._played, "usable", True)

    @property
    def delivery_timeout_s(self) -> float:
        return self._played.delivery_timeout_s

    def send(self, record: Record, token: object) -> bool:
        def done(undelivered: Undelivered | None) -> None:
            self._outcomes.append((token, undelivered))
            self._wake()

        taken = self._played.send(record, done)
        self.open += taken
        return taken

    def poll(self) -> Sequence[tuple[Any, Undelivered | None]]:
        outcomes = [self._outcomes.popleft() for _ in range(len(self._outcomes))]
        self.open -= len(outcomes)
        return outcomes


class Acks(list[Ack]):
    """A broker that keeps what it is sent, and hands over what ``arrives``."""

    def __init__(self) -> None:
        super().__init__()
        self.wake: Callable[[], None] = lambda: None
        self.taken: list[bool] = []
        """Whether messages were taken, each time that changed."""
        self.published: list[tuple[str, bytes]] = []
        self.echoes: dict[bytes, Ack] = {}
        """The PUBACK of what comes back once it is published, by its bytes."""
        self._session = 1
        self._arrived: deque[Message] = deque()

    def arrives(
        self, topic: str, payload: bytes, ack: Ack | None, *, retained: bool = False, repeated: bool = False
    ) -> None:
        self._arrived.append(Message(topic, payload, ack, retained, repeated, self._session))
        self.wake()

    def session_lost(self) -> None:
        self._session += 1

    @property
    def waiting(self) -> int:
        return len(self._arrived)

    def interest(self) -> tuple[None, int]:
        return None, 0

    def wake_s(self) -> float:
        return float("inf")

    def read(self, now_s: float, *, take: bool) -> Sequence[Message]:
        if self.taken[-1:] != [take]:
            self.taken.append(take)
        return [self._arrived.popleft() for _ in range(min(len(self._arrived), 100) if take else 0)]

    def write(self) -> None: ...

    def acknowledge(self, ack: Ack) -> None:
        self.append(ack)

    def publish(self, topic: str, payload: bytes) -> None:
        self.published.append((topic, payload))
        if payload in self.echoes:
            self.arrives(topic, payload, self.echoes[payload])

    def retain(self, messages: Mapping[str, bytes]) -> None:
        self.published += messages.items()


def make_forwarder(
    intake: Intake,
    live: PlayedSink | KafkaSink[Any],
    backlog: PlayedSink | KafkaSink[Any],
    outbox: SqliteOutbox,
    acks: Acks | None = None,
    commit_interval_s: float = 0.2,
    batch_s: float | None = None,
    *,
    hold: ClockHold | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    on_drop: OnDrop = ignore,
) -> Forwarder:
    """Not started; what other threads hand it goes to its ``inbox``, messages through ``arrive``."""
    inbox, broker = Inbox(), Acks() if acks is None else acks
    broker.wake = inbox.wake
    state = State(intake, Pace(commit_interval_s, batch_s), hold or ClockHold(), monotonic)
    writer = OutboxWriter(outbox, inbox.put)
    return Forwarder(inbox, state, _sink(live, inbox), _sink(backlog, inbox), writer, broker, on_drop)


def _sink(played: PlayedSink | KafkaSink[Any], inbox: Inbox) -> Sink[Any]:
    return played if isinstance(played, KafkaSink) else SinkOf(played, inbox.wake)


def arrive(
    forwarder: Forwarder,
    topic: str,
    payload: bytes,
    ack: Ack | None,
    *,
    retained: bool = False,
    repeated: bool = False,
) -> None:
    """A message comes from the forwarder's broker."""
    broker = forwarder._broker
    assert isinstance(broker, Acks)
    broker.arrives(topic, payload, ack, retained=retained, repeated=repeated)


def taken_in(forwarder: Forwarder) -> None:
    """Wait until the forwarder has read what has arrived."""
    broker = forwarder._broker
    assert isinstance(broker, Acks)
    eventually(lambda: broker.waiting, until=lambda waiting: waiting == 0)


def echoed_sample(forwarder: Forwarder, record: Record, ack: Ack | None) -> None:
    """One of our own readings; its echo comes once it is published, if it has a PUBACK."""
    broker = forwarder._broker
    assert isinstance(broker, Acks)
    if ack is not None:
        broker.echoes[record.value] = ack
    forwarder.inbox.sampled(record, "fieldgate/mast-07/x")


class _OwnTopic:
    names = ("own/run",)

    def arrived(self, topic: str, payload: bytes) -> bool:
        return False


class Link:
    """A session of one and the same client, and a loop that drives it, in a thread of its own."""

    def __init__(
        self,
        host: str,
        port: int,
        arrived: Arrived = lambda message: None,
        *,
        filters: Iterable[str] = ("sensors/#",),
        drops: BrokerDrops | None = None,
        login: tuple[str, str | None] | None = None,
        file: Path | None = None,
    ) -> None:
        username, password = login or (None, None)
        config = MqttConfig(host=host, port=port, username=username, password=password)
        self._inbox = Inbox()
        subscriptions = Subscriptions(file or Path(tempfile.gettempdir()) / "no-such-file", filters)
        self.subscriptions = subscriptions
        will, counted = ("own/status", b""), drops or BrokerDrops("link")
        self.session = MqttSession(
            config, "link", subscriptions, _OwnTopic(), will, self._inbox.wake, counted
        )
        self.ready = self.session.ready
        self.take = True
        self._arrived = arrived
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def do(self, function: Callable[[], None]) -> None:
        """Have something done by the loop, and wait for it."""
        done = threading.Event()

        def call() -> None:
            function()
            done.set()

        self._inbox.put(Call(call))
        assert done.wait(30)

    def stop(self, last: Mapping[str, bytes] | None = None) -> None:
        self._ended.set()
        self._inbox.wake()
        self._thread.join(30)
        assert not self._thread.is_alive()
        # The daemon, too, publishes last: the broker answers once it has read all PUBACKs. One that is still
        # writing to a closed connection doesn't read what is left there.
        self.session.stop({"own/last": b""} if last is None else last)

    def _run(self) -> None:
        session = self.session
        while not self._ended.is_set():
            now_s = time.monotonic()
            while (event := self._inbox.take()) is not None:
                assert isinstance(event, Call)
                event.function()
            messages = session.read(now_s, take=self.take)
            for message in messages:
                self._arrived(message)
            session.write()
            wait_s = 0.0 if messages else min(max(session.wake_s() - time.monotonic(), 0.0), 0.1)
            self._inbox.sleep(wait_s, *session.interest())


@contextmanager
def running(link: Link) -> Iterator[Link]:
    """A link, connected and subscribed."""
    link.start()
    try:
        assert link.ready.wait(60)
        yield link
    finally:
        link.stop()


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
        "durable": True,
        "stuck": (),
        "descriptions": {},
        "parked": {},
        "counts": {"outbox_records": 0},
    }
    return Snapshot(at_s=at_s, **{**well, **changed})
