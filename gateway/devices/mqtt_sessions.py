"""What each device has published and got no PUBACK for yet. Owned by the proxy's thread.

A device that gets no PUBACK sends the message again, flagged as a duplicate and under its old id. As long as
none was sent it is recognised here, by client, id and bytes, and enters once. Once one was sent an id stands
for another message, whatever its flag is (MQTT 3.1.1, 4.3.2): what a device sends again because the PUBACK
was lost on its way enters twice.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateway.devices.mqtt_packets import Publish

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
    """By user and client id: of connected devices, and of others as far as they have receipts.

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
    """Of topic and payload, to compare within one process."""
    return hash((packet.topic, packet.payload))
