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


class HttpInput(Listener[HttpConfig, "HttpServer"]):
    """Readings that devices post. Owned by the main thread."""

    def __init__(self, open_: Callable[[HttpConfig, Counter[str]], HttpServer | None]) -> None:
        self._counts: Counter[str] = Counter()
        super().__init__(lambda config: open_(config, self._counts), NO_HTTP)

    @property
    def status(self) -> HttpStatus:
        """Where it listens, and what has come."""
        server, counts = self.server, self._counts
        names = ("requests", "readings", "refused", "unauthorized", "pressure")
        port = None if server is None else server.server_port
        return HttpStatus(port=port, **{name: counts[name] for name in names})


class MqttProxy(Listener[MqttProxyConfig, "MqttServer"]):
    """Messages that devices publish by MQTT. Owned by the main thread."""

    def __init__(self, open_: Callable[[MqttProxyConfig, Counter[str]], MqttServer | None]) -> None:
        self._counts: Counter[str] = Counter()
        super().__init__(lambda config: open_(config, self._counts), NO_PROXY)

    @property
    def status(self) -> MqttProxyStatus:
        """Where it listens, who is connected, and what has come."""
        server, counts = self.server, self._counts.copy()
        names = ("connects", "messages", "acknowledged", "repeats")
        refusals = ("unauthorized", "pressure", "subscriptions_refused")
        return MqttProxyStatus(
            port=None if server is None else server.server_port,
            clients=0 if server is None else server.clients,
            refused={
                name.removeprefix("refused "): count
                for name, count in sorted(counts.items())
                if name.startswith("refused ")
            },
            **{name: counts[name] for name in (*names, *refusals)},
        )

    def take_no_more(self) -> None:
        """Accept nothing any more."""
        if self.server is not None:
            self.server.take_no_more()
