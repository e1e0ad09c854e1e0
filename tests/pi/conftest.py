"""An emulated Raspberry Pi for each card, and one broker that it reaches as kafka.test:9092."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.kafka import Kafka
from tests.faults.uplink import Uplink
from tests.pi.machine import Card, Pi
from tests.support.debian_package import build
from tests.support.guest_broker import GuestBroker

CARDS = [Card(release, arch) for release in ("trixie", "bookworm") for arch in ("arm64", "armhf")]


@pytest.fixture(scope="package", params=CARDS, ids="-".join)
def card(request: pytest.FixtureRequest) -> Card:
    """One after the other."""
    if not request.config.getoption("--pi"):
        pytest.skip("starts an emulated Raspberry Pi, for half an hour: only with --pi (make test-pi)")
    found: Card = request.param
    if not found.is_ready:
        pytest.skip(f"no image of {found}: make test-pi builds it")
    return found


@pytest.fixture(scope="package")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with (
        GuestBroker(tmp_path_factory.mktemp("guest-kafka")) as broker,
        Uplink(broker.uplink_port, broker.inner_port) as uplink,
    ):
        yield Kafka(broker, uplink)


@pytest.fixture(scope="package")
def deb(card: Card, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package for a card, of the sources as they are."""
    output = tmp_path_factory.mktemp("deb")
    # For armhf the first build compiles librdkafka and what PyPI has no wheels of.
    done = build(output, "--release", card.release, "--arch", card.architecture, timeout_s=1800)
    assert done.returncode == 0, done.stderr
    [package] = output.glob("*.deb")
    return package


@pytest.fixture(scope="package")
def pi(card: Card, cloud: Kafka, deb: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pi]:
    """A Pi that has never seen fieldgate; the package lies in the installer's home."""
    with Pi(card, tmp_path_factory.mktemp("pi")) as pi:
        pi.start("--put", deb, "--w1", 22, "--guestfwd", f"9092:{cloud.uplink.port}", "--forward", "0:8321")
        pi.types(f"sudo mv /root/{deb.name} . && sudo chown pi {deb.name}")
        yield pi
