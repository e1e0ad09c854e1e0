"""One virtual gateway and one broker for the whole folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud.child import free_port
from tests.faults.kafka import HurtBroker, Kafka
from tests.faults.uplink import Uplink
from tests.servers import unique_name
from tests.vm.guest_mast import Ports
from tests.vm.machine import Machine, tool
from tests.vm.package import INSTALL, archive

_ADVERTISED = "advertised.listeners=PLAINTEXT://127.0.0.1:{port},UPLINK://kafka.test:9092\n"


class GuestBroker(HurtBroker):
    """A broker whose second listener has the name and port by which the guest knows it."""

    def _configure(self) -> Path:
        properties = super()._configure()
        with properties.open("a") as file:
            file.write(_ADVERTISED.format(port=self.port))
        return properties


@pytest.fixture(scope="package")
def gateway_vm(request: pytest.FixtureRequest) -> Path:
    """The program that runs virtual gateways."""
    if not request.config.getoption("--vm"):
        pytest.skip("starts a virtual machine, for minutes: only with --vm (make test-vm)")
    program = tool()
    if program is None:
        pytest.skip("no gateway-vm: set GATEWAY_VM to its path")
    return program


@pytest.fixture(scope="package")
def cloud(gateway_vm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with (
        GuestBroker(tmp_path_factory.mktemp("guest-kafka")) as broker,
        Uplink(broker.uplink_port, broker.inner_port) as uplink,
    ):
        yield Kafka(broker, uplink)


@pytest.fixture(scope="package")
def ports(gateway_vm: Path) -> Ports:
    return Ports(mqtt=free_port(), status=free_port())


@pytest.fixture(scope="package")
def machine(
    gateway_vm: Path, cloud: Kafka, ports: Ports, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """A machine with the gateway installed, not configured yet."""
    forwards = {ports.mqtt: 1883, ports.status: 8321}
    packed = archive(tmp_path_factory.mktemp("package"))
    with Machine(gateway_vm, unique_name("fieldgate"), forwards, cloud.uplink.port) as machine:
        machine.push(packed, "/opt/")
        machine.run(INSTALL, timeout_s=600)
        yield machine
