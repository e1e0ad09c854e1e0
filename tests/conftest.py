"""Real servers as fixtures: one Kafka broker for the session, a Mosquitto for each test that needs it."""

from __future__ import annotations

import itertools
import logging
import os
import random
import signal
import socket
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined] # no __all__
from confluent_kafka.cimpl import NewTopic
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from cloud.kafka.provision import provision_topics
from cloud.local import process
from cloud.local.kafka_broker import LocalBroker
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.schedule import SparkOnTwo
from tests.support.servers import eventually, unique_name

# How long an example takes is this machine's affair, busy as it may be: nothing here asserts times.
_ANY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("new-examples", _ANY_MACHINE)
# A change is judged by the same examples each time; --full searches for new ones.
settings.register_profile("same-examples", _ANY_MACHINE, derandomize=True)


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background job ignores Ctrl-C, and so would each program that tests start.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile("new-examples" if config.getoption("--full") else "same-examples")
    _choose_other_ports_than_others()


def _choose_other_ports_than_others() -> None:
    """Gives each process that runs a share of the tests its own ports, each once: a free one stays free."""
    shares = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    own = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = list(range(process._LOWEST_PORT + own, process._HIGHEST_PORT, shares))
    random.shuffle(ports)
    in_turn = itertools.cycle(ports)
    pytest.MonkeyPatch().setattr(process, "random", SimpleNamespace(randint=lambda *_: next(in_turn)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the long versions of the tests too")
    parser.addoption(
        "--hardware",
        metavar="CONFIG",
        help="check the drivers on the sensors of this config, which are wired",
    )
    parser.addoption("--vm", action="store_true", help="run the tests that need a virtual machine")
    parser.addoption("--pi", action="store_true", help="run the tests on an emulated Raspberry Pi")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Writes a failure as it happens: a run that is ended from outside never reaches its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.nodeid} failed in {report.when} after {report.duration:.0f} s")  # noqa: T201
        print(report.longreprtext[-2_000:], flush=True)  # noqa: T201


@pytest.fixture(scope="session", autouse=True)
def _day_of_the_examples() -> Iterator[None]:
    """Dates in the examples and fixtures are looked at on one day, whenever the tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gateway.config.sensors.today", lambda: date(2026, 11, 21))
        yield


@pytest.fixture(autouse=True)
def _logs_are_written() -> Iterator[None]:
    """Commands that a test calls in its own process silence logs, which the next test may read."""
    yield
    for package in ("gateway", "drivers", "cloud"):
        logging.getLogger(package).setLevel(logging.NOTSET)


# Without pytest-xdist this hook is unknown.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SparkOnTwo:
    """Spark wants all cores: two processes alone start it."""
    # Not by the number of tests: the longest are few.
    config.option.loadscopereorder = False
    return SparkOnTwo(config, log)


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    """True where the stated counts are to be run, not the reduced ones."""
    return bool(pytestconfig.getoption("--full"))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A running broker, shared by the session: use topics of your own (``kafka_topic``) and never stop it."""
    with LocalBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def provisioned(kafka: LocalBroker) -> str:
    """The shared broker's address; it has the topics that gateways write to."""
    provision_topics(kafka.bootstrap_servers, partitions=2, replication=1)
    return kafka.bootstrap_servers


@pytest.fixture
def kafka_topic(kafka: LocalBroker) -> Callable[..., str]:
    """Creates a topic no other test uses: ``kafka_topic("stem", partitions=1)`` gives its name."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    def create(stem: str = "topic", partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = unique_name(stem)
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
        admin.create_topics([topic])[name].result(timeout=20)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        ends = {TopicPartition(name, number): latest for number in range(partitions)}

        def leads() -> bool:
            """Raises LookupError while the broker does not lead a partition that it has just made."""
            try:
                return all(end.result(20) for end in admin.list_offsets(ends).values())
            except KafkaException as error:
                raise LookupError(str(error)) from error

        eventually(leads)
        return name

    return create


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[LocalMosquitto]:
    """A running Mosquitto of the test's own."""
    with LocalMosquitto(tmp_path / "mosquitto") as broker:
        yield broker


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address at which nothing listens, nor will while the test runs."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def free_port() -> int:
    """A TCP port of 127.0.0.1 on which no program listens."""
    return process.free_port()
