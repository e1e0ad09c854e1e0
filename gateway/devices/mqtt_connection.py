"""One device's connection to the proxy: what it may send, how much, how slowly, and what waits for a PUBACK.

A task of the proxy's loop serves it: one packet after the other, the next one once it may be taken. What
can't be taken now waits in the device, so that a connection holds one read and one packet at most.

A device that gets no PUBACK sends the message again, flagged as a duplicate and under its old id. As long as
none was sent it is recognised here, by client, id and bytes, and enters once. Once one was sent an id stands
for another message, whatever its flag is (MQTT 3.1.1, 4.3.2): what a device sends again because the PUBACK
was lost on its way enters twice.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gateway.devices import mqtt_packets as mqtt
from gateway.devices.mqtt_packets import BadPacket, Connect, Packet, PacketReader, Publish

if TYPE_CHECKING:
    from gateway.devices.mqtt_server import MqttServer

log = logging.getLogger(__name__)

_MOST_LEFT: Final = 10_000
"""Receipts of devices that aren't connected."""


@dataclass(slots=True, eq=False)
class Receipt:
    """A message that was entered; ``connection`` is the last one it came by."""

    session: Session
    packet_id: int
    digest: int
    connection: Connection
    durable: bool = False


@dataclass(slots=True, eq=False)
class Session:
    """What one client id of one user has open; it keeps ``most`` receipts.

    ``waiting`` are its messages that aren't durable yet.
    """

    most: int
    waiting: int = 0
    connection: Connection | None = None
    unanswered: dict[int, Receipt] = field(default_factory=dict)
    """At QoS 1, by id."""

    def repeated(self, packet: Publish) -> Receipt | None:
        """What a duplicate was when it came first; None where it is nothing that is known."""
        known = self.unanswered.get(packet.packet_id) if packet.repeated else None
        return known if known is not None and known.digest == digest(packet) else None

    def take(self, packet: Publish, connection: Connection) -> Receipt:
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

    def begin(self, user: str | None, client_id: str) -> tuple[Session, bool]:
        """A client's session, and whether there was one. Without an id it is always a new one."""
        known = self._known.get((user, client_id))
        if known is not None:
            return known, True
        session = Session(self._most)
        if client_id:
            self._known[user, client_id] = session
        return session, False

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
        away = [(key, each) for key, each in self._known.items() if each.connection is None]
        left = sum(len(each.unanswered) for _, each in away)
        for oldest, each in away:
            if left > _MOST_LEFT:
                del self._known[oldest]
                left -= len(each.unanswered)


def digest(packet: Publish) -> int:
    """A hash of topic and payload, to compare within one process."""
    return hash((packet.topic, packet.payload))


_CONNECT_S: Final = 10.0
"""For CONNECT, from the connection on."""
_PACKET_S: Final = 30.0
"""For a packet, from its first byte on; and for what waits to be read by the device."""
_CLOSE_S: Final = 5.0
_LONGEST_SILENCE_S: Final = 3600.0
"""A connection is closed after it, whatever keepalive the device chose."""
_GRACE: Final = 1.5
"""Keepalives without a packet (MQTT 3.1.1, 3.1.2.10)."""
_AGAIN_S: Final = 0.05
"""Then what couldn't be taken is tried again."""
READ_BYTES: Final = 32 << 10
_MOST_UNREAD: Final = 16 << 10
"""Answers that wait for the device to read them."""
_LARGE: Final = 64 << 10
"""What a connection may hold however much all of them do."""
_LONGEST_ID: Final = 256
_MAX_PACKET: Final = 1 << 20
"""Bytes of a message with its topic."""


class Connection:
    """A device's connection, from when it is accepted and TLS established to its end.

    A will is checked and then left out: a message that nobody sent would get an identity here.
    """

    def __init__(
        self, server: MqttServer, peer: str, stream: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._peer = peer
        self._stream = stream
        self._writer = writer
        self._reader = PacketReader(_MAX_PACKET)
        self._due: deque[Receipt] = deque()
        self._changed = asyncio.Event()
        self._user: str | None = None
        self._client_id = ""
        self._session = server.no_session
        self._silence_s = _LONGEST_SILENCE_S
        self._second = 0
        self._this_second = 0
        self._task: asyncio.Task[None] | None = None
        self._until_s = math.inf
        self._is_late = False
        self.connected = False
        """Whether its device is admitted."""
        writer.transport.set_write_buffer_limits(_MOST_UNREAD)

    @property
    def owes(self) -> bool:
        """Whether PUBACKs are to come."""
        return bool(self._due)

    def go_on(self) -> None:
        """Something has become durable: PUBACKs may be due, and there may be room again."""
        self._acknowledge()
        self._changed.set()

    def tick(self, now_s: float) -> None:
        """End what has taken too long to come. A time-out of asyncio's for each read would cost 30 µs."""
        if now_s > self._until_s:
            self._is_late = True
            self.close()

    def close(self) -> None:
        """End, with what was sent."""
        if self._task is not None:
            self._task.cancel()

    async def serve(self) -> None:
        """Take packets until either side ends it; what was taken in stays."""
        self._task = asyncio.current_task()
        server, writer = self._server, self._writer
        try:
            await self._take_packets()
        except BadPacket as bad:
            self._send(bad.answer)
            server.refused(bad.reason)
            # The name of a client that has not authenticated stays out of the log.
            user = self._user or "-"
            log.warning("event=mqtt_proxy.refused peer=%s user=%s reason=%s", self._peer, user, bad.reason)
        except OSError as error:
            log.debug("event=server.broken_off server=mqtt_proxy error=%s", error)
        finally:
            server.buffered -= self._reader.buffered
            if self._session.connection is self:
                server.sessions.end(self._user, self._client_id, self._session)
            writer.close()
            try:
                with suppress(OSError):
                    async with asyncio.timeout(_CLOSE_S):
                        await writer.wait_closed()
            finally:
                # Whatever the device leaves unread.
                writer.transport.abort()

    async def _take_packets(self) -> None:
        """Raises BadPacket, OSError."""
        opened_s = self._server.now_s()
        while True:
            packet = await self._next(opened_s)
            if packet is None or isinstance(packet, mqtt.Disconnect):
                return
            await self._handle(packet)

    async def _next(self, opened_s: float) -> Packet | None:
        """The next packet, within the limits of time and number; None at the end. Raises BadPacket."""
        server, reader = self._server, self._reader
        begun_s = server.now_s()
        while True:
            await self._until_allowed()
            before = reader.buffered
            try:
                packet = reader.take()
            finally:
                server.buffered -= before - reader.buffered
            if packet is not None:
                self._this_second += 1
                return packet
            if not self.connected:
                until_s, reason = opened_s + _CONNECT_S, "NO_CONNECT"
            elif reader.buffered:
                until_s, reason = begun_s + _PACKET_S, "TOO_SLOW"
            else:
                until_s, reason = begun_s + self._silence_s, "KEEPALIVE"
            data = await self._read(until_s, reason)
            if not data:
                return None
            if not reader.buffered:
                begun_s = server.now_s()
            server.buffered += len(data)
            reader.feed(data)

    async def _read(self, until_s: float, reason: str) -> bytes:
        """What comes next, once memory has room for it. Raises BadPacket where it takes too long."""
        self._until_s = until_s
        try:
            while self._server.is_crowded and self._reader.buffered > _LARGE:
                await asyncio.sleep(_AGAIN_S)
            return await self._stream.read(READ_BYTES)
        except asyncio.CancelledError:
            if not self._is_late:
                raise
            raise BadPacket(reason) from None
        finally:
            self._until_s = math.inf

    async def _until_allowed(self) -> None:
        """Wait while nothing may be taken: answers are unread, too much is in flight, the rate is reached."""
        server, config = self._server, self._server.config
        if self._writer.transport.get_write_buffer_size() > _MOST_UNREAD:
            try:
                async with asyncio.timeout(_PACKET_S):
                    await self._writer.drain()
            except TimeoutError:
                raise BadPacket("TOO_SLOW") from None
        while server.stopping or max(self._session.waiting, len(self._due)) >= config.max_in_flight:
            await self._until_changed()
        now_s = server.now_s()
        if int(now_s) != self._second:
            self._second, self._this_second = int(now_s), 0
        if self._this_second >= config.max_rate:
            await asyncio.sleep(self._second + 1 - now_s)
            self._second, self._this_second = self._second + 1, 0

    async def _until_changed(self) -> None:
        """Wait until something has become durable, or a moment."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_AGAIN_S):
                await self._changed.wait()

    async def _handle(self, packet: Packet) -> None:
        if isinstance(packet, Publish) and self.connected:
            await self._publish(packet)
        elif isinstance(packet, Connect) != (not self.connected):
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

    def _connect(self, packet: Connect) -> None:
        server = self._server
        if len(packet.client_id) > _LONGEST_ID or not (packet.client_id or packet.clean):
            raise BadPacket("BAD_CLIENT_ID", mqtt.connack(mqtt.WRONG_ID))
        if not server.access.admits(packet.username, packet.password, self._peer):
            server.count("unauthorized")
            raise BadPacket("UNAUTHORIZED", mqtt.connack(mqtt.NOT_AUTHORIZED))
        user = packet.username if server.access.named else None
        session, present = server.sessions.begin(user, packet.client_id)
        if session.connection is not None:
            # The same device, whose earlier connection hasn't been found dead yet.
            session.connection.close()
        elif server.is_full:
            server.sessions.end(user, packet.client_id, session)
            raise BadPacket("TOO_MANY_CLIENTS", mqtt.connack(mqtt.UNAVAILABLE))
        session.connection = self
        self._session, self._user, self._client_id = session, user, packet.client_id
        self.connected = True
        server.admitted()
        if packet.keepalive_s:
            self._silence_s = min(_GRACE * packet.keepalive_s, _LONGEST_SILENCE_S)
        self._send(mqtt.connack(mqtt.ACCEPTED, session_present=present and not packet.clean))

    async def _publish(self, packet: Publish) -> None:
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
        while not self._enter(packet):
            await self._until_changed()

    def _enter(self, packet: Publish) -> bool:
        """Enter a message with the forwarder; False where it has to wait."""
        server, session = self._server, self._session
        if server.stopping:
            return False
        receipt = session.take(packet, self)
        if not server.enter(packet, receipt):
            session.give_back(receipt)
            server.count("pressure")
            return False
        server.count("messages")
        if packet.qos:
            self._due.append(receipt)
        return True

    def _acknowledge(self) -> None:
        """Send the PUBACKs that are due, in the order of the messages (MQTT 3.1.1, 4.6)."""
        if self._writer.is_closing():
            return
        answers = []
        while self._due and self._due[0].durable:
            receipt = self._due.popleft()
            if self._session.answer(receipt):
                answers.append(mqtt.puback(receipt.packet_id))
        if answers:
            self._server.count("acknowledged", len(answers))
            self._send(b"".join(answers))

    def _send(self, data: bytes) -> None:
        if data and not self._writer.is_closing():
            self._writer.write(data)
