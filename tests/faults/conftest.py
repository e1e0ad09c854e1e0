"""One broker to be hurt for the whole suite, an uplink to it that each test finds open, and the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.faults.kafka import HurtBroker, Kafka
from tests.faults.mast import Mast
from tests.faults.results import Results
from tests.faults.uplink import Uplink

_RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results" / "faults.csv"
_PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if call.when == "call":
        item.stash[_PASSED] = call.excinfo is None
    return report


@pytest.fixture(scope="package")
def hurt_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HurtBroker]:
    with HurtBroker(tmp_path_factory.mktemp("hurt-kafka")) as broker:
        yield broker


@pytest.fixture
def cloud(hurt_broker: HurtBroker) -> Iterator[Kafka]:
    """Kafka, up and reachable, whatever the test before did to it."""
    hurt_broker.start()
    with Uplink(hurt_broker.uplink_port, hurt_broker.inner_port) as uplink:
        yield Kafka(hurt_broker, uplink)


@pytest.fixture
def mast(tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto) -> Iterator[Mast]:
    """The standard mast, not started yet."""
    with Mast(tmp_path, cloud, mosquitto) as mast:
        yield mast


@pytest.fixture(scope="session")
def _results(full: bool) -> Results | None:
    return Results(_RESULTS) if full else None


@pytest.fixture
def report(
    request: pytest.FixtureRequest, full: bool, _results: Results | None
) -> Iterator[Callable[..., None]]:
    """``report(reckoning.figures(), seconds=7)``: figures for the results, written when the test has passed.

    A full run skips what the results hold already for this very state of the sources.
    """
    case = request.node.name.removeprefix("test_").replace("_", " ")
    if _results is not None and _results.has(case):
        pytest.skip(f"in {_RESULTS.name} already for commit {_results.commit}")
    figures_by_name: dict[str, object] = {}

    def add(figures: dict[str, int] | None = None, /, **more: object) -> None:
        figures_by_name.update(figures or {})
        figures_by_name.update({name.replace("_", " "): value for name, value in more.items()})
        print(case, figures_by_name)  # noqa: T201

    yield add
    if _results is not None and request.node.stash.get(_PASSED, False):
        _results.add(case, figures_by_name)
