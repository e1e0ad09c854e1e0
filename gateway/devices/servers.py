"""The servers for devices, by HTTP and MQTT, which ``open_`` imports and makes where they have an address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.config.bridges.model import NO_HTTP, NO_PROXY, HttpConfig, MqttProxyConfig
from gateway.status.bounded_server import Listener
from gateway.status.status import HttpStatus, MqttProxyStatus

if TYPE_CHECKING:
    from gateway.devices.http_server import HttpServer
    from gateway.devices.mqtt_server import MqttServer


class HttpInput:
    """The server at the address that is configured, if any. Owned by the main thread."""

    def __init__(self, open_: Callable[[HttpConfig, Counter[str]], HttpServer | None]) -> None:
        self._counts: Counter[str] = Counter()
        self._listener = Listener(lambda config: open_(config, self._counts), NO_HTTP)

    @property
    def status(self) -> HttpStatus:
        """Where it listens, and what has come."""
        server, counts = self._listener.server, self._counts
        return HttpStatus(
            port=None if server is None else server.server_port,
            requests=counts["requests"],
            readings=counts["readings"],
            refused=counts["refused"],
            unauthorized=counts["unauthorized"],
            pressure=counts["pressure"],
        )

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
    def status(self) -> MqttProxyStatus:
        """Where it listens, who is connected, and what has come."""
        server, counts = self._listener.server, self._counts.copy()
        return MqttProxyStatus(
            port=None if server is None else server.server_port,
            clients=0 if server is None else server.clients,
            connects=counts["connects"],
            messages=counts["messages"],
            acknowledged=counts["acknowledged"],
            repeats=counts["repeats"],
            unauthorized=counts["unauthorized"],
            pressure=counts["pressure"],
            subscriptions_refused=counts["subscriptions_refused"],
            refused={
                name.removeprefix("refused "): count
                for name, count in sorted(counts.items())
                if name.startswith("refused ")
            },
        )

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
