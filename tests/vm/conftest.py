"""One virtual gateway and one broker for the whole folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud.local.process import free_port
from tests.faults.kafka import Kafka
from tests.faults.uplink import Uplink
from tests.support.guest_broker import GuestBroker
from tests.support.servers import unique_name
from tests.vm.guest_mast import Ports
from tests.vm.machine import Machine, tool
from tests.vm.package import OPEN_MOSQUITTO, build, install, with_dependencies


@pytest.fixture(scope="package")
def gateway_vm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that runs virtual gateways."""
    if not request.config.getoption("--vm"):
        pytest.skip("starts a virtual machine, for minutes: only with --vm (make test-vm)")
    program = tool()
    if program is None:
        pytest.skip("no gateway-vm: set GATEWAY_VM to its path")
    return with_dependencies(program, tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="package")
def package(gateway_vm: Path, full: bool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Debian package of the sources as they are; only --full compresses it as ``make deb`` does."""
    return build(tmp_path_factory.mktemp("package"), quick=not full)


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
def machine(gateway_vm: Path, cloud: Kafka, ports: Ports, package: Path) -> Iterator[Machine]:
    """A machine with the gateway installed, not configured yet."""
    with Machine(gateway_vm, unique_name("fieldgate"), ports.forwards, cloud.uplink.port) as machine:
        machine.push(package, "/srv/fieldgate.deb")
        machine.run(
            f"{install('/srv/fieldgate.deb')}; systemctl enable fieldgate; {OPEN_MOSQUITTO}", timeout_s=900
        )
        yield machine
