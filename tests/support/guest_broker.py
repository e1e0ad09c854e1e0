"""A broker for a virtual machine: its second listener has the name and port by which the guest reaches it."""

from __future__ import annotations

from pathlib import Path

from tests.faults.kafka import HurtBroker

_ADVERTISED = "advertised.listeners=PLAINTEXT://127.0.0.1:{port},UPLINK://kafka.test:9092\n"


class GuestBroker(HurtBroker):
    """A broker whose second listener has the name and port by which the guest reaches it."""

    def _configure(self) -> Path:
        properties = super()._configure()
        with properties.open("a") as file:
            file.write(_ADVERTISED.format(port=self.port))
        return properties
