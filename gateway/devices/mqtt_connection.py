"""One device's connection to the proxy: what it may send, how much, how slowly, and what waits for a PUBACK.

What can't be taken now waits in the device: nothing more is read from it until the reason is gone, so that
a connection holds one read and one packet at most. The proxy's thread owns it; times are its loop's.

A device that gets no PUBACK sends the message again, flagged as a duplicate and under its old id. As long as
none was sent it is recognised here, by client, id and bytes, and enters once. Once one was sent an id stands
for another message, whatever its flag is (MQTT 3.1.1, 4.3.2): what a device sends again because the PUBACK
was lost on its way enters twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, cast

from gateway.devices import mqtt_packets as mqtt
from gateway.devices.mqtt_packets import BadPacket, Connect, Packet, PacketReader, Publish

_MOST_LEFT: Final = 10_000
"""Receipts of devices that aren't connected."""


class Connected(Protocol):
    """A connection, as far as a session needs it."""

    def close(self) -> None:
        """End it."""


@dataclass(slots=True, eq=False)
class Receipt:
    """A message that was entered; ``connection`` is the last one it came by."""

    session: Session
    packet_id: int
    digest: int
    connection: Connected
    durable: bool = False


@dataclass(slots=True, eq=False)
class Session:
    """What one client id of one user has open; it keeps ``most`` receipts.

    ``waiting`` are its messages that aren't durable yet.
    """

    most: int
    waiting: int = 0
    connection: Connected | None = None
    unanswered: dict[int, Receipt] = field(default_factory=dict)
    """At QoS 1, by id."""

    def repeated(self, packet: Publish) -> Receipt | None:
        """What a duplicate was when it came first; None where it is nothing that is known."""
        known = self.unanswered.get(packet.packet_id) if packet.repeated else None
        return known if known is not None and known.digest == digest(packet) else None

    def take(self, packet: Publish, connection: Connected) -> Receipt:
        """A message is entered."""
        receipt = Receipt(self, packet.packet_id, digest(packet), connection)
        self.waiting += 1
        if packet.qos:
            # The newest at the end.
            self.unanswered.pop(packet.packet_id, None)
            self.unanswered[packet.packet_id] = receipt
            if len(self.unanswered) > self.most:
                del self.unanswered[next(iter(self.unanswered))]
        return receipt

    def give_back(self, receipt: Receipt) -> None:
        """It couldn't be entered."""
        self.waiting -= 1
        self.answer(receipt)

    def answer(self, receipt: Receipt) -> bool:
        """Whether its PUBACK is to be sent now: its device has it under that id still."""
        if self.unanswered.get(receipt.packet_id) is not receipt:
            return False
        del self.unanswered[receipt.packet_id]
        return True


class Sessions:
    """Sessions by user and client id: those of connected devices, and of others that have receipts.

    ``most`` of its messages may wait for their PUBACK in one session; two such windows are remembered.
    """

    def __init__(self, most: int) -> None:
        self._most = 2 * most
        self._known: OrderedDict[tuple[str | None, str], Session] = OrderedDict()
        self._left = 0

    def begin(self, user: str | None, client_id: str) -> tuple[Session, bool]:
        """A client's session, and whether there was one. Without an id it is always a new one."""
        if not client_id:
            return Session(self._most), False
        known = self._known.get((user, client_id))
        if known is None:
            self._known[user, client_id] = known = Session(self._most)
            return known, False
        if known.connection is None:
            self._left -= len(known.unanswered)
        return known, True

    def end(self, user: str | None, client_id: str, session: Session) -> None:
        """Its connection has ended. The oldest receipts are forgotten where there are too many."""
        session.connection = None
        key = (user, client_id)
        if self._known.get(key) is not session:
            return
        if not session.unanswered:
            del self._known[key]
            return
        self._known.move_to_end(key)
        self._left += len(session.unanswered)
        for oldest, each in list(self._known.items()):
            if self._left <= _MOST_LEFT:
                break
            if each.connection is None:
                del self._known[oldest]
                self._left -= len(each.unanswered)


def digest(packet: Publish) -> int:
    """A hash of topic and payload, to compare within one process."""
    return hash((packet.topic, packet.payload))


if TYPE_CHECKING:
    from gateway.devices.mqtt_server import MqttServer

log = logging.getLogger(__name__)

_CONNECT_S: Final = 10.0
"""For CONNECT, from the connection on."""
_PACKET_S: Final = 30.0
"""For a packet, from its first byte on; and for what waits to be read by the device."""
_CLOSE_S: Final = 5.0
_LONGEST_SILENCE_S: Final = 3600.0
"""A connection is closed after it, whatever keepalive the device chose."""
_GRACE: Final = 1.5
"""Keepalives without a packet (MQTT 3.1.1, 3.1.2.10)."""
_MOST_UNREAD: Final = 16 << 10
"""Answers that wait for the device to read them."""
_LARGE: Final = 64 << 10
"""What a connection may hold however much all of them do."""
_LONGEST_ID: Final = 256
_MAX_PACKET: Final = 1 << 20
"""Bytes of a message with its topic."""

ROOM, IN_FLIGHT, RATE, UNREAD, MEMORY, STOPPING = "room", "in_flight", "rate", "unread", "memory", "stopping"
"""Why nothing is read."""
_NO_MORE: Final = frozenset((ROOM, IN_FLIGHT, RATE, UNREAD, STOPPING))
"""Reasons for which what was read already is not taken either."""


class Connection(asyncio.Protocol):
    """A device's connection, from when it is accepted and TLS established to its end.

    A will is checked and then left out: a message that nobody sent would get an identity here.
    """

    def __init__(self, server: MqttServer, peer: str) -> None:
        self._server = server
        self._peer = peer
        self._reader = PacketReader(_MAX_PACKET)
        self._transport: asyncio.Transport | None = None
        self._parked: Publish | None = None
        self._due: deque[Receipt] = deque()
        self._held: set[str] = set()
        self._user: str | None = None
        self._client_id = ""
        self._session = server.no_session
        self._connected = False
        self._silence_s = _LONGEST_SILENCE_S
        self._opened_s = self._began_s = self._heard_s = self._held_s = server.now_s()
        self._closing_s: float | None = None
        self._second = 0
        self._this_second = 0

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes over a new connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_MOST_UNREAD)
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        """Takes bytes in, and answers the packets that they complete."""
        if self._closing_s is not None:
            return
        if not self._reader.buffered:
            self._began_s = self._server.now_s()
        self._server.buffered += len(data)
        self._reader.feed(data)
        self._take()

    def pause_writing(self) -> None:
        """The device doesn't read its answers."""
        self._hold(UNREAD)

    def resume_writing(self) -> None:
        """It does again."""
        self._release(UNREAD)

    def connection_lost(self, error: Exception | None) -> None:
        """Ends the session; what was taken in stays."""
        self._closing_s = self._server.now_s()
        self._transport = None
        self._server.buffered -= self._reader.buffered
        if self._session.connection is self:
            self._server.sessions.end(self._user, self._client_id, self._session)
        self._server.closed(self, connected=self._connected)

    # What the server calls.

    @property
    def owes(self) -> bool:
        """Whether PUBACKs are to come."""
        return bool(self._due)

    def go_on(self) -> None:
        """Something has become durable: PUBACKs may be due, and there may be room again."""
        self._acknowledge()
        if ROOM in self._held or IN_FLIGHT in self._held:
            self._release(ROOM, IN_FLIGHT)

    def stop_reading(self) -> None:
        """Take nothing more, and stay."""
        self._hold(STOPPING)

    def tick(self, now_s: float) -> bool:
        """End what takes too long; whether it is to be asked again soon."""
        if self._closing_s is not None:
            if now_s > self._closing_s + _CLOSE_S and self._transport is not None:
                self._transport.abort()
            return True
        if self._held:
            self._tick_held(now_s)
        elif not self._connected and now_s > self._opened_s + _CONNECT_S:
            self._refuse("NO_CONNECT")
        elif self._reader.buffered:
            if now_s > self._began_s + _PACKET_S:
                self._refuse("TOO_SLOW")
        elif now_s > self._heard_s + self._silence_s:
            self._refuse("KEEPALIVE")
        return bool(self._held)

    def close(self) -> None:
        """End, with what was sent."""
        if self._closing_s is None:
            self._closing_s = self._server.now_s()
            if self._transport is not None:
                self._transport.close()

    def _take(self) -> None:
        """All packets that have come, as long as nothing holds them."""
        server = self._server
        before = self._reader.buffered
        try:
            while not self._held & _NO_MORE and self._closing_s is None:
                packet = self._parked or self._next()
                if packet is None:
                    break
                self._parked = None
                self._handle(packet)
        except BadPacket as bad:
            self._send(bad.answer)
            self._refuse(bad.reason)
        server.buffered -= before - self._reader.buffered
        if server.is_crowded and self._reader.buffered > _LARGE:
            self._hold(MEMORY)

    def _next(self) -> Packet | None:
        """The next packet, within the limits of time and number."""
        now_s, config = self._server.now_s(), self._server.config
        if max(self._session.waiting, len(self._due)) >= config.max_in_flight:
            self._hold(IN_FLIGHT)
            return None
        if int(now_s) != self._second:
            self._second, self._this_second = int(now_s), 0
        if self._this_second >= config.max_rate:
            self._hold(RATE)
            return None
        packet = self._reader.take()
        if packet is not None:
            self._this_second += 1
            self._began_s = self._heard_s = now_s
        return packet

    def _handle(self, packet: Packet) -> None:
        if isinstance(packet, Publish) and self._connected:
            self._publish(packet)
        elif isinstance(packet, Connect) != (not self._connected):
            raise BadPacket("UNEXPECTED")
        elif isinstance(packet, Connect):
            self._connect(packet)
        elif isinstance(packet, mqtt.Ping):
            self._send(mqtt.PINGRESP)
        elif isinstance(packet, mqtt.Subscribe):
            # Nothing is delivered here; a SUBACK that grants something would be a lie.
            self._server.count("subscriptions_refused")
            self._send(mqtt.suback_refused(packet.packet_id, packet.filters))
        elif isinstance(packet, mqtt.Unsubscribe):
            self._send(mqtt.unsuback(packet.packet_id))
        else:
            self.close()

    def _connect(self, packet: Connect) -> None:
        server = self._server
        if len(packet.client_id) > _LONGEST_ID or not (packet.client_id or packet.clean):
            raise BadPacket("BAD_CLIENT_ID", mqtt.connack(mqtt.WRONG_ID))
        if not server.access.admits(packet.username, packet.password, self._peer):
            server.count("unauthorized")
            raise BadPacket("UNAUTHORIZED", mqtt.connack(mqtt.NOT_AUTHORIZED))
        user = packet.username if server.access.named else None
        session, present = server.sessions.begin(user, packet.client_id)
        if isinstance(session.connection, Connection):
            # The same device, whose earlier connection hasn't been found dead yet.
            session.connection.close()
        elif server.is_full:
            server.sessions.end(user, packet.client_id, session)
            raise BadPacket("TOO_MANY_CLIENTS", mqtt.connack(mqtt.UNAVAILABLE))
        session.connection = self
        self._session, self._user, self._client_id = session, user, packet.client_id
        self._connected = True
        server.connected(self)
        if packet.keepalive_s:
            self._silence_s = min(_GRACE * packet.keepalive_s, _LONGEST_SILENCE_S)
        self._send(mqtt.connack(mqtt.ACCEPTED, session_present=present and not packet.clean))

    def _publish(self, packet: Publish) -> None:
        server, session = self._server, self._session
        if packet.qos == 2:
            raise BadPacket("QOS_2")
        if not server.access.allows(self._user, packet.topic):
            log.warning("event=mqtt_proxy.forbidden user=%s topic=%s", self._user or "-", packet.topic)
            raise BadPacket("NOT_ALLOWED")
        known = session.repeated(packet)
        if known is not None:
            server.count("repeats")
            if known.connection is not self:
                known.connection = self
                self._due.append(known)
            self._acknowledge()
            return
        receipt = session.take(packet, self)
        if server.enter(packet, receipt):
            server.count("messages")
            if packet.qos:
                self._due.append(receipt)
            return
        session.give_back(receipt)
        self._parked = packet
        server.count("pressure")
        self._hold(ROOM)

    def _acknowledge(self) -> None:
        """Send the PUBACKs that are due, in the order of the messages (MQTT 3.1.1, 4.6)."""
        if self._transport is None or self._transport.is_closing():
            return
        answers = []
        while self._due and self._due[0].durable:
            receipt = self._due.popleft()
            if self._session.answer(receipt):
                answers.append(mqtt.puback(receipt.packet_id))
        if answers:
            self._server.count("acknowledged", len(answers))
            self._send(b"".join(answers))

    def _hold(self, reason: str) -> None:
        if not self._held:
            self._held_s = self._server.now_s()
            if self._transport is not None:
                self._transport.pause_reading()
            self._server.held()
        self._held.add(reason)

    def _release(self, *reasons: str) -> None:
        if not self._held or self._closing_s is not None:
            return
        self._held.difference_update(reasons)
        if not self._held & _NO_MORE:
            if not self._held:
                # What was held had no chance to come.
                held_s = self._server.now_s() - self._held_s
                self._heard_s += held_s
                self._began_s += held_s
            self._take()
        self._resume()

    def _resume(self) -> None:
        if not self._held and self._closing_s is None and self._transport is not None:
            self._transport.resume_reading()

    def _tick_held(self, now_s: float) -> None:
        unread = UNREAD in self._held and now_s > self._held_s + _PACKET_S
        if unread or (MEMORY in self._held and now_s > self._began_s + _PACKET_S):
            self._refuse("TOO_SLOW")
        else:
            over = {ROOM, IN_FLIGHT}
            if int(now_s) != self._second:
                over.add(RATE)
            if not self._server.is_crowded:
                over.add(MEMORY)
            self._release(*over)

    def _send(self, data: bytes) -> None:
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _refuse(self, reason: str) -> None:
        self._server.refused(reason)
        # The name of a client that has not authenticated stays out of the log.
        user = self._user or "-"
        log.warning("event=mqtt_proxy.refused peer=%s user=%s reason=%s", self._peer, user, reason)
        self.close()
