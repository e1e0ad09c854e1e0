"""The session with the local Mosquitto: MQTT 3.1.1, driven by the loop that owns it.

Invariants: no call blocks, for names are resolved and connections made by a thread of their own; nothing is
published without a connection; a PUBACK belongs to one connection, and is void after it, since the broker
sends again what was not acknowledged; a retained message of other devices comes with a new subscription only.

Not MQTT 5: paho makes an object of properties for each packet, which doubles what a message costs.

Paho's client gets a connection that was made elsewhere, and reads and writes it in large pieces.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessageInfo, topic_matches_sub
from paho.mqtt.enums import CallbackAPIVersion, MessageType, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.exception import MalformedPacket
from paho.mqtt.reasoncodes import ReasonCode

from cloud.backoff import Backoff
from gateway.config.model import MqttConfig
from gateway.mqtt.broker_drops import TOPIC as DROPS_TOPIC, BrokerDrops
from gateway.ports import Ack, Message, OwnTopics, Snapshot
from gateway.system.atomic_file import read_state, write_state

_Filters = dict[Annotated[str, msgspec.Meta(min_length=1)], bool]


class Subscriptions:
    """Which filters the broker's session of this gateway has, kept beside the outbox.

    The broker sends what it retains with each SUBSCRIBE, and we subscribe at each connect, since a broker may
    restore an older session. Retained messages of a filter that the session had before are therefore no news:
    forwarded again at each connect they would be readings twice. A filter is *settled* once all that was
    retained has been acknowledged; until then retained messages are news, though the connection breaks in
    between.

    ``wanted`` are the filters of the config in force. Owned by the loop, but for ``tick``.
    """

    def __init__(self, path: Path, wanted: Iterable[str]) -> None:
        self._path = path
        self.wanted = tuple(wanted)
        # By filter of the session, whether it is settled.
        self._held: Mapping[str, bool] = read_state(
            path, lambda stored: msgspec.convert(stored["filters"], _Filters), {}
        )
        self._stored = self._held
        self._news: tuple[str, ...] = ()

    def request(self) -> list[str]:
        """What is wanted is requested now; the filters to end, which an earlier config had."""
        self._news = tuple(each for each in self.wanted if not self._held.get(each))
        return sorted(self._held.keys() - set(self.wanted))

    def session_lost(self) -> None:
        """The broker has no session of ours any more."""
        self._held = {}

    def accepted(self) -> None:
        """The broker has all that is wanted, and nothing else."""
        self._held = {each: self._held.get(each, False) for each in self.wanted}

    def settled(self) -> None:
        """All that was retained has come and is acknowledged."""
        if self._news:
            self._held, self._news = dict.fromkeys(self._held, True), ()

    def is_news(self, topic: str) -> bool:
        """Whether a retained message may be one that was not taken before."""
        return any(topic_matches_sub(each, topic) for each in self._news)

    def tick(self, _snapshot: Snapshot) -> None:
        """Store what the session has; the main thread calls, as the loop must not wait for a disk."""
        held = self._held
        if held != self._stored and write_state(self._path, {"filters": held}):
            self._stored = held


_PIECE_BYTES: Final = 64 << 10

Arrived = Callable[[bytes, bytes, int | None, bool, bool], object]
"""Takes a message: topic, payload, message id (None at QoS 0), whether it is retained, whether repeated."""


class BufferedClient(Client):
    """Connects by a socket that is connected already; ``arrived`` takes each message, of QoS 0 or 1.

    Paho itself reads each packet in four, makes three objects of a message, and queues each PUBACK by itself:
    half of what a small message cost. All other packets are paho's.
    """

    prepared: socket.socket | None = None

    def __init__(self, client_id: str, arrived: Arrived) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=False,
            protocol=MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        # Paho leaves all writing to ``loop_write`` where this is set.
        self.on_socket_register_write = lambda *_: None
        self._arrived = arrived
        self._received = bytearray()
        self._pubacks = bytearray()
        self._published = bytearray()
        self.has_more = False
        """Whether packets may have been received that were not handled yet."""

    def receive(self, most: int) -> None:
        """Read what has come and handle so many of its packets; the rest stays for the next call."""
        if self._sock is None:
            return
        problem = MQTTErrorCode.MQTT_ERR_SUCCESS if self.has_more else self._read()
        received, begin = self._received, 0
        try:
            while most and not problem and (place := _body(received, begin)):
                problem = self._handle(received, begin, *place)
                begin, most = place[1], most - 1
        except MalformedPacket:
            problem = MQTTErrorCode.MQTT_ERR_PROTOCOL
        del received[:begin]
        self.has_more = not (most or problem)
        self._loop_rc_handle(problem)

    def puback(self, message_id: int) -> None:
        """Acknowledge a message with the next ``loop_write``; those of a turn are queued as one packet."""
        self._pubacks += b"\x40\x02" + message_id.to_bytes(2)

    def publish_once(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish at QoS 1 with the next ``loop_write``, and not again should the connection break."""
        name = topic.encode()
        length = 4 + len(name) + len(payload)
        packet = self._published
        packet.append(MessageType.PUBLISH | 2 | retain)
        while length > 0x7F:
            packet.append(length & 0x7F | 0x80)
            length >>= 7
        packet.append(length)
        packet += len(name).to_bytes(2) + name + self._mid_generate().to_bytes(2) + payload

    def publish(self, *arguments: Any, **named: Any) -> MQTTMessageInfo:
        """Publish as paho does, behind all that was published once before: a topic retains the last."""
        self._queue_published()
        return super().publish(*arguments, **named)

    def _queue_published(self) -> None:
        if self._published:
            published, self._published = self._published, bytearray()
            # Paho only compares the kind, with that of messages which it awaits no PUBACK for.
            self._packet_queue(MessageType.PUBACK, published, 0, 0)

    def want_write(self) -> bool:
        """Whether anything waits to be sent."""
        return bool(self._pubacks or self._published) or super().want_write()

    def loop_write(self) -> MQTTErrorCode:
        """Send what waits, as far as the connection takes it."""
        if self._pubacks:
            pubacks, self._pubacks = self._pubacks, bytearray()
            self._packet_queue(MessageType.PUBACK, pubacks, 0, 0)
        self._queue_published()
        return super().loop_write()

    def _create_socket_connection(self) -> socket.socket:
        prepared, self.prepared = self.prepared, None
        self._received, self._pubacks, self.has_more = bytearray(), bytearray(), False
        self._published = bytearray()
        if prepared is None:
            raise ConnectionError("no connection was made")
        return prepared

    def _read(self) -> MQTTErrorCode:
        try:
            piece = self._sock_recv(_PIECE_BYTES)
        except BlockingIOError:
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        except OSError:
            piece = b""
        self._received += piece
        self._last_bytes_received = time.monotonic()
        return MQTTErrorCode.MQTT_ERR_SUCCESS if piece else MQTTErrorCode.MQTT_ERR_CONN_LOST

    def _handle(self, received: bytearray, begin: int, body: int, end: int) -> MQTTErrorCode:
        """Handle one packet. Raises MalformedPacket."""
        command = received[begin]
        if command == MessageType.PUBACK and int.from_bytes(received[body:end]) not in self._out_messages:
            # It answers what was published once.
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        if command & 0xF0 != MessageType.PUBLISH:
            self._in_packet["command"], self._in_packet["remaining_length"] = command, end - body
            self._in_packet["packet"] = received[body:end]
            return self._packet_handle()
        qos, topic = command >> 1 & 3, body + 2
        text = topic + int.from_bytes(received[body:topic])
        payload = text + 2 if qos else text
        if qos > 1 or payload > end:
            raise MalformedPacket(f"a message of QoS {qos} and {end - body} bytes")
        message_id = int.from_bytes(received[text:payload]) if qos else None
        retained, repeated = command & 1 != 0, command & 8 != 0
        self._arrived(
            bytes(received[topic:text]), bytes(received[payload:end]), message_id, retained, repeated
        )
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _sock_send(self, buf: bytes | bytearray) -> int:
        if self._out_packet and isinstance(self._sock, socket.socket):
            # The kernel sends it with the packets that follow.
            return self._sock.send(buf, socket.MSG_MORE)
        return super()._sock_send(buf)


def _body(received: bytearray, begin: int) -> tuple[int, int] | None:
    """Where a packet's body begins and ends, None where not all of it is there. Raises MalformedPacket."""
    length = shift = 0
    for at in range(begin + 1, min(begin + 5, len(received))):
        length |= (received[at] & 0x7F) << shift
        shift += 7
        if received[at] < 0x80:
            end = at + 1 + length
            return (at + 1, end) if end <= len(received) else None
    if len(received) >= begin + 5:
        raise MalformedPacket("its length has more than four bytes")
    return None


def is_local(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


log = logging.getLogger(__name__)

# A broker on this machine loses what others publish until we are back: it costs next to nothing to try.
_LOCAL_RETRY_S: Final = 0.05
_FIRST_RETRY_S: Final = 0.1
_LONGEST_RETRY_S: Final = 2.0
_LAST_MESSAGES_S: Final = 2.0
_CONNECT_TIMEOUT_S: Final = 3.0
_PROVEN_S: Final = 30.0
# MQTT 3.1.1 doesn't report that another client has taken the session: so many connections that end so soon.
_SHORT_S: Final = 5.0
_SUSPICIOUS: Final = 3
# Above about 100 paho gets slower, not faster.
_IN_FLIGHT: Final = 100
_QUEUED: Final = 10_000
_MISC_EVERY_S: Final = 1.0
# A broker sends what it retains right behind SUBACK, as far as its window has room.
_SETTLED_S: Final = 2.0
# A few milliseconds' work: late messages don't wait for more.
_MOST_MESSAGES: Final = 200


class MqttSession:
    """One session with manual acknowledgement; reconnects for ever.

    Messages of ``own`` topics go to ``own``, all others come from ``read``. ``will`` (topic, payload) is what
    the broker publishes, retained, when this process can't. ``wake`` ends the loop's sleep, from any thread.
    ``drops`` counts what the broker has dropped, where it publishes that.
    """

    def __init__(
        self,
        config: MqttConfig,
        client_id: str,
        subscriptions: Subscriptions,
        own: OwnTopics,
        will: tuple[str, bytes],
        wake: Callable[[], None],
        drops: BrokerDrops,
    ) -> None:
        self._address = (config.host, config.port)
        self._local = is_local(config.host)
        self._subscriptions = subscriptions
        self._own = own
        self._own_names = own.names
        self._wake = wake
        self._drops = drops
        self._request: int | None = None
        self._drops_request: int | None = None
        self._retained: dict[str, bytes] = {}
        self._removals: dict[int, str] = {}
        self._deliveries: dict[int, Callable[[bool], None]] = {}
        self._messages: list[Message] = []
        self._session = 1
        self._connection = 0
        # Messages in flight come right behind CONNACK: they may be acknowledged before we are subscribed.
        self._connected = False
        self._connected_at_s = float("-inf")
        self._short_lived = 0
        self._take = True
        # Retained messages of new filters, by id, until they are acknowledged.
        self._news: set[int] = set()
        self._news_at_s = float("inf")
        self._connecting = False
        self._opened: socket.socket | Exception | None = None
        self._connect_at_s = float("-inf")
        self._backoff = Backoff(_FIRST_RETRY_S, _LONGEST_RETRY_S)
        self._unreachable = False
        self._misc_at_s = float("-inf")
        self.ready = threading.Event()
        """Set while connected and subscribed; any thread may read it."""
        client = BufferedClient(client_id, self._on_message)
        client.max_inflight_messages_set(_IN_FLIGHT)
        client.max_queued_messages_set(_QUEUED)
        client.will_set(will[0], will[1], qos=1, retain=True)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_publish = self._on_publish
        client.connect_async(config.host, config.port, config.keepalive_s)
        self._client = client
        self.log_in(config.login)

    # What the loop calls.

    @property
    def taken_over(self) -> bool:
        """Whether another client seems to take the session again and again: a gateway with this id."""
        return self._short_lived >= _SUSPICIOUS

    def interest(self) -> tuple[int | None, int]:
        """The connection's descriptor, and what to wait for there."""
        connection = self._client.socket()
        if connection is None:
            return None, 0
        return connection.fileno(), select.POLLIN | (select.POLLOUT if self._client.want_write() else 0)

    def wake_s(self) -> float:
        """When ``read`` is due whatever comes."""
        if self._client.socket() is not None:
            # Mostly a turn comes by itself before.
            return float("-inf") if self._client.has_more else self._misc_at_s + _MISC_EVERY_S
        return float("inf") if self._connecting or not self._take else self._connect_at_s

    def read(self, now_s: float, *, take: bool) -> Sequence[Message]:
        """Connect where it is due, and read; without ``take`` stay away: the broker keeps what it has."""
        self._take = take
        client = self._client
        if client.socket() is None:
            self._connect(now_s)
        elif take:
            client.receive(_MOST_MESSAGES)
        elif self._connected:
            client.disconnect()
        if now_s >= self._misc_at_s:
            self._misc_at_s = now_s + _MISC_EVERY_S
            client.loop_misc()
            if self._connected and now_s - self._connected_at_s > _PROVEN_S:
                self._short_lived = 0
            if self.ready.is_set() and not self._news and now_s >= self._news_at_s + _SETTLED_S:
                self._subscriptions.settled()
        messages, self._messages = self._messages, []
        return messages

    def write(self) -> None:
        """Send what waits to be sent, as far as the connection takes it."""
        if self._client.want_write():
            self._client.loop_write()

    def acknowledge(self, ack: Ack) -> None:
        """Send a PUBACK, unless its connection is gone."""
        if ack.connection == self._connection and self._connected:
            self._client.puback(ack.message_id)
            self._news.discard(ack.message_id)

    def publish(self, topic: str, payload: bytes) -> None:
        """Publish at QoS 1, while subscribed: what is published before would not come back to us."""
        if self.ready.is_set():
            self._client.publish_once(topic, payload)

    def deliver(self, topic: str, payload: bytes, retain: bool, done: Callable[[bool], None]) -> None:
        """Publish at QoS 1, again after a reconnect; ``done``: the broker has it, or it can't be queued."""
        try:
            published = self._client.publish(topic, payload, qos=1, retain=retain)
        except ValueError:
            done(False)
            return
        if published.rc in (MQTTErrorCode.MQTT_ERR_SUCCESS, MQTTErrorCode.MQTT_ERR_NO_CONN):
            self._deliveries[published.mid] = done
        else:
            done(False)

    def retain(self, messages: Mapping[str, bytes]) -> None:
        """Publish these, retained, now and at every connect; an empty one until the broker has removed it."""
        changed = {topic: each for topic, each in messages.items() if self._retained.get(topic) != each}
        self._retained |= changed
        self._publish_retained(changed)

    def log_in(self, login: tuple[str, str | None] | None) -> None:
        """Connect as this user, with this password, from the next connect on: the broker asks then."""
        self._client.username_pw_set(*(login or (None, None)))

    def refilter(self, filters: Iterable[str]) -> None:
        """Subscribe to these from now on, without a new connection."""
        before, self._subscriptions.wanted = self._subscriptions.wanted, tuple(filters)
        if self._connected:
            self._subscribe([each for each in self._subscriptions.wanted if each not in before])

    # What the main thread calls, once the loop has ended.

    def stop(self, last: Mapping[str, bytes]) -> None:
        """Publish last retained messages, as far as there is a connection, disconnect and end."""
        client, end_s = self._client, time.monotonic() + _LAST_MESSAGES_S
        if self.ready.is_set():
            published = [client.publish(topic, each, qos=1, retain=True) for topic, each in last.items()]
            while (
                client.socket() is not None
                and not all(each.is_published() for each in published)
                and (left_s := end_s - time.monotonic()) > 0
            ):
                descriptor, events = self.interest()
                if descriptor is not None and not client.has_more:
                    poll = select.poll()
                    poll.register(descriptor, events)
                    poll.poll(left_s * 1000)
                client.loop_write()
                client.receive(_MOST_MESSAGES)
        client.on_disconnect = None
        client.loop_write()
        client.disconnect()
        client.loop_write()
        self.ready.clear()

    def _connect(self, now_s: float) -> None:
        """Begin to connect where it is due, or go on with the connection that was made meanwhile."""
        if not self._connecting:
            if self._take and now_s >= self._connect_at_s:
                self._connecting = True
                threading.Thread(target=self._open, name="mqtt-connect", daemon=True).start()
            return
        opened = self._opened
        if opened is None:
            return
        self._connecting, self._opened = False, None
        if not isinstance(opened, Exception):
            self._client.prepared = opened
            self._client.reconnect()
            self._misc_at_s = now_s + _MISC_EVERY_S
            return
        level = logging.DEBUG if self._unreachable else logging.WARNING
        log.log(level, "event=mqtt.unreachable address=%s:%d error=%s", *self._address, opened)
        self._unreachable = True
        self._short_lived = 0
        self._try_again(now_s, quick=True)

    def _open(self) -> None:
        """Resolve the name and connect, in a thread: either may take seconds."""
        try:
            self._opened = socket.create_connection(self._address, _CONNECT_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - the resolver's UnicodeError, or whatever: it is tried again
            self._opened = error
        self._wake()

    def _try_again(self, now_s: float, *, quick: bool) -> None:
        quick = quick and self._local and not self._short_lived
        self._connect_at_s = now_s + (_LOCAL_RETRY_S if quick else self._backoff.next())

    def _on_connect(
        self, client: Client, _data: Any, flags: ConnectFlags, reason: ReasonCode, *_: Any
    ) -> None:
        if reason.is_failure:
            log.error("event=mqtt.refused reason=%s", reason)
            return
        self._connection += 1
        self._connected_at_s = time.monotonic()
        self._connected = True
        self._unreachable = False
        if not flags.session_present:
            # The broker was restarted, which is no takeover.
            self._short_lived = 0
            self._session += 1
            self._subscriptions.session_lost()
        self._drops.connected(session_present=flags.session_present)
        client.subscribe([(each, 1) for each in self._own_names])
        self._subscribe(self._subscriptions.wanted)

    def _subscribe(self, filters: Iterable[str]) -> None:
        ended = self._subscriptions.request()
        if ended:
            # Overlapping filters would bring a message twice: first the old ones go.
            self._client.unsubscribe(ended)
        requested = [(each, 1) for each in filters]
        if requested:
            _, self._request = self._client.subscribe(requested)
        else:
            self._subscriptions.accepted()
        # Apart, because it may be forbidden, and at QoS 0, so that the session keeps no room for it. Where it
        # is forwarded it comes anyway: a second subscription would replace that one or double it.
        self._drops_request = None
        if not any(topic_matches_sub(each, DROPS_TOPIC) for each in self._subscriptions.wanted):
            _, self._drops_request = self._client.subscribe(DROPS_TOPIC, 0)

    def _on_subscribe(
        self, client: Client, _data: Any, request: int, reasons: list[ReasonCode], *_: Any
    ) -> None:
        refused = [str(reason) for reason in reasons if reason.is_failure]
        if request == self._drops_request:
            if refused:
                log.info("event=mqtt.drops_unknown reasons=%s", refused)
        elif refused:
            log.error("event=mqtt.subscription_refused reasons=%s remedy=check_the_broker_acl", refused)
            client.disconnect()
        elif request == self._request:
            self._subscriptions.accepted()
            self._news_at_s = time.monotonic()
            log.info("event=mqtt.subscribed filters=%s", ",".join(self._subscriptions.wanted))
            if not self.ready.is_set():
                self.ready.set()
                self._publish_retained(self._retained)

    def _on_disconnect(
        self, _client: Client, _data: Any, _flags: DisconnectFlags, reason: ReasonCode, *_: Any
    ) -> None:
        now_s, was_connected = time.monotonic(), self._connected
        self.ready.clear()
        self._connected = False
        self._removals.clear()
        self._news.clear()
        log.warning("event=mqtt.disconnected reason=%s", reason)
        if now_s - self._connected_at_s > _PROVEN_S:
            # A short-lived connection is no reason to hurry: two daemons with one id would throw each other
            # out many times a second.
            self._backoff.reset()
        if reason.is_failure:
            # Not a disconnect of our own, because a subscription was refused.
            self._suspect_takeover(now_s)
        self._try_again(now_s, quick=was_connected and reason.is_failure)

    def _suspect_takeover(self, now_s: float) -> None:
        """The broker has ended a connection: maybe another client took the session."""
        short = now_s - self._connected_at_s <= _SHORT_S
        self._short_lived = self._short_lived + 1 if short else 0
        if self._short_lived >= _SUSPICIOUS:
            self._backoff.delay_s = _LONGEST_RETRY_S
        if self._short_lived == _SUSPICIOUS:
            log.error(
                "event=mqtt.session_taken_over certain=no connections=%d"
                " remedy=is_a_second_daemon_running_with_this_gateway_id",
                _SUSPICIOUS,
            )

    def _publish_retained(self, topics: Iterable[str]) -> None:
        if self.ready.is_set():
            for topic in topics:
                payload = self._retained.get(topic)
                if payload:
                    # Again with the next connect in any case.
                    self._client.publish_once(topic, payload, retain=True)
                elif payload is not None:
                    published = self._client.publish(topic, payload, qos=1, retain=True)
                    if published.rc == MQTTErrorCode.MQTT_ERR_SUCCESS:
                        self._removals[published.mid] = topic

    def _on_publish(self, _client: Client, _data: Any, message_id: int, *_: Any) -> None:
        if (done := self._deliveries.pop(message_id, None)) is not None:
            done(True)
        topic = self._removals.pop(message_id, None)
        if topic is not None and not self._retained.get(topic):
            # It is gone: at the next connect there is nothing to remove.
            self._retained.pop(topic, None)

    def _on_message(
        self, name: bytes, payload: bytes, message_id: int | None, retained: bool, repeated: bool
    ) -> None:
        ack = None if message_id is None else Ack(self._connection, message_id)
        try:
            topic = name.decode()
        except UnicodeDecodeError:
            # No broker may pass one on (MQTT 3.1.1, 1.5.3).
            log.warning("event=message.ignored reason=BAD_TOPIC")
            topic = ""
        if topic == DROPS_TOPIC:
            self._drops.update(payload)
            if self._drops_request is not None:
                return
        if topic in self._own_names:
            # What came back is no news.
            if payload != self._retained.get(topic) and self._own.arrived(topic, payload):
                self._publish_retained([topic])
        elif topic and (not retained or self._subscriptions.is_news(topic)):
            if retained and ack is not None:
                self._news.add(ack.message_id)
                self._news_at_s = time.monotonic()
            self._messages.append(Message(topic, payload, ack, retained, repeated, self._session))
            return
        if ack is not None:
            self.acknowledge(ack)
