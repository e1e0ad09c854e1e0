"""Where what devices hand to the gateway itself enters: bounded, and answered once it is durable.

``HttpInput`` and ``MqttProxy`` are the two ways in; ``open_`` imports and makes their servers where the
config has an address for them. Any thread may call ``DeviceEntry``; the forwarder's thread calls back.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from gateway.config.bridges.model import NO_HTTP, NO_PROXY, HttpConfig, MqttProxyConfig
from gateway.forwarding.forwarder import Posted, Published
from gateway.forwarding.ledger import ENTRY_BYTES
from gateway.ports import Ack, Record
from gateway.status.bounded_server import Listener

if TYPE_CHECKING:
    from gateway.devices.http_server import HttpServer
    from gateway.devices.mqtt_server import MqttServer

_MOST_OPEN_BYTES: Final = 4 << 20
"""Devices have to wait while more than this isn't durable yet."""


class DeviceEntry:
    """``put`` enters what comes with the forwarder; ``is_full``: its memory has no room."""

    def __init__(self, put: Callable[[Posted | Published], None], is_full: Callable[[], bool]) -> None:
        self._put = put
        self._is_full = is_full
        self._open_bytes = 0
        self._lock = threading.Lock()

    @property
    def has_room(self) -> bool:
        """Whether anything is taken now."""
        return self._open_bytes < _MOST_OPEN_BYTES and not self._is_full()

    def hand_over(self, records: Sequence[Record], done: Callable[[], None]) -> bool:
        """Enter records; ``done`` once Kafka has all of them, or the outbox. False: there is no room."""
        ack = self._ack(sum(ENTRY_BYTES + len(record.value) for record in records), done)
        if ack is not None:
            self._put(Posted(records, ack))
        return ack is not None

    def publish(self, topic: str, payload: bytes, done: Callable[[], None]) -> bool:
        """Enter a message; ``done`` once what comes of it is durable. False: there is no room."""
        ack = self._ack(ENTRY_BYTES + len(topic) + len(payload), done)
        if ack is not None:
            self._put(Published(topic, payload, ack))
        return ack is not None

    def _ack(self, size: int, done: Callable[[], None]) -> Ack | None:
        with self._lock:
            if not self.has_room:
                return None
            self._open_bytes += size

        def durable() -> None:
            with self._lock:
                self._open_bytes -= size
            done()

        return Ack(0, 0, done=durable)


class HttpInput:
    """The server at the address that is configured, if any. Owned by the main thread."""

    def __init__(self, open_: Callable[[HttpConfig, Counter[str]], HttpServer | None]) -> None:
        self._counts: Counter[str] = Counter()
        self._listener = Listener(lambda config: open_(config, self._counts), NO_HTTP)

    @property
    def status(self) -> dict[str, Any]:
        """Where it listens, and what has come."""
        server = self._listener.server
        names = ("requests", "readings", "refused", "unauthorized", "pressure")
        return {
            "port": None if server is None else server.server_port,
            **{name: self._counts[name] for name in names},
        }

    def listen(self, config: HttpConfig) -> None:
        """Answer there from now on. Raises OSError; then everything stays as it is."""
        self._listener.listen(config)

    def stop(self) -> None:
        """End and give the port back."""
        self._listener.stop()


class MqttProxy:
    """The server at the address that is configured, if any. Owned by the main thread."""

    def __init__(self, open_: Callable[[MqttProxyConfig, Counter[str]], MqttServer | None]) -> None:
        self._counts: Counter[str] = Counter()
        self._listener = Listener(lambda config: open_(config, self._counts), NO_PROXY)

    @property
    def status(self) -> dict[str, Any]:
        """Where it listens, who is connected, and what has come."""
        server, counts = self._listener.server, self._counts.copy()
        names = ("connects", "messages", "acknowledged", "repeats", "unauthorized", "pressure")
        return {
            "port": None if server is None else server.server_port,
            "clients": 0 if server is None else server.clients,
            **{name: counts[name] for name in (*names, "subscriptions_refused")},
            "refused": {
                name.removeprefix("refused "): count
                for name, count in sorted(counts.items())
                if name.startswith("refused ")
            },
        }

    def listen(self, config: MqttProxyConfig) -> None:
        """Answer there from now on. Raises OSError; then everything stays as it is."""
        self._listener.listen(config)

    def take_no_more(self) -> None:
        """Accept nothing any more."""
        if self._listener.server is not None:
            self._listener.server.take_no_more()

    def stop(self) -> None:
        """Send what is due and end."""
        self._listener.stop()
