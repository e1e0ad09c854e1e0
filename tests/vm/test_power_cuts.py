"""The power goes: what is older than a commit interval and an fsync is safe, the ledger bounds the rest."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud.wire.quantities import QUANTITIES
from tests.faults.kafka import Kafka
from tests.faults.reckoning import Reckoning
from tests.support.accounts import RunAccount
from tests.vm.guest_mast import COMMIT_INTERVAL_S, FSYNC_S, RATE, Cut, GuestMast, Phase, Ports
from tests.vm.machine import Machine
from tests.vm.results import CutTable

pytestmark = pytest.mark.system

LIMIT_S = COMMIT_INTERVAL_S + FSYNC_S
PHASES: tuple[Phase, ...] = ("spilling", "draining", "live", "spilling", "draining")
_RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results" / "power-cuts.csv"


@pytest.fixture(scope="module")
def table(full: bool) -> CutTable | None:
    return CutTable(_RESULTS) if full else None


@pytest.fixture
def series(request: pytest.FixtureRequest, full: bool, table: CutTable | None) -> int:
    number: int = request.param
    if not full and number > 1:
        pytest.skip("one series is enough: --full makes four")
    if table is not None and table.has(number, len(PHASES)):
        pytest.skip(f"in {_RESULTS.name} already for commit {table.commit}")
    return number


@pytest.fixture
def mast(series: int, machine: Machine, ports: Ports, cloud: Kafka) -> Iterator[GuestMast]:
    """A gateway with an outbox of its own, sampling."""
    with GuestMast(machine, ports, cloud) as mast:
        yield mast


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("series", [1, 2, 3, 4], indirect=True)
def test_power_cuts(mast: GuestMast, series: int, table: CutTable | None, full: bool, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)  # noqa: T201
    moments = random.Random(seed)
    for phase in PHASES if full else PHASES[:3]:
        cut = mast.cut(phase, moments)
        print(cut.phase, cut.run, f"booted in {cut.boot_s:.0f} s, sampling after {cut.ready_s:.0f} s")  # noqa: T201
    mast.drain()
    assert mast.outbox_is_sound() == "ok"
    assert mast.restarts() == 0
    reckoning = mast.reckon(mast.stored(tmp_path))
    print(reckoning.figures())  # noqa: T201
    accounts = {account.run: account for account in reckoning.accounts}
    rows = [(cut, figures(cut, reckoning, accounts[cut.run])) for cut in mast.cuts]
    for cut, row in rows:
        print(cut.phase, row)  # noqa: T201
    weigh(mast, reckoning)
    for cut in mast.cuts:
        account = accounts[cut.run]
        assert account.state == "reset"
        assert cut.oldest_s <= (account.unannounced_s or 0.0)
        assert account.lost == gaps(cut, account)
    if table is not None:
        table.add(series, seed, rows)


def weigh(mast: GuestMast, reckoning: Reckoning) -> None:
    """Fail past the promise."""
    killed = {cut.run: cut for cut in mast.cuts}
    for cut in mast.cuts:
        assert cut.oldest_s <= LIMIT_S, f"{cut.phase}: lost {cut.oldest_s:.2f} s after it was seen"
        assert len(cut.lost) <= RATE * LIMIT_S
        if cut.found is not None:
            assert cut.found >= cut.before.outbox_records, "rows that were in the outbox before the cut"
    assert {reading[2] for reading in reckoning.lost} <= killed.keys()
    assert not reckoning.dropped
    assert not reckoning.refused
    reckoning.agree()
    last = {
        (run, channel): seq
        for run, seen in mast.witness.runs.items()
        for channel, seq in seen.last_seq().items()
    }
    # The last readings before a cut may have reached Kafka or the disk, and no witness.
    for _, channel, run, seq in reckoning.invented:
        assert run in killed
        assert 0 < seq - last.get((run, channel), 0) <= RATE


def gaps(cut: Cut, account: RunAccount) -> int:
    """How many of the lost ones are missing before another that arrived, or was announced."""
    return sum(seq <= account.last_seq.get(channel, 0) for _, channel, _, seq in cut.lost)


def figures(cut: Cut, reckoning: Reckoning, account: RunAccount) -> list[object]:
    """A row of the results: sampled, repeats, lost, gaps, oldest, told, rows before and found, seconds.

    And how busy the host was, and the longest silence.
    """
    sampled = sum(reading[2] == cut.run for reading in reckoning.sampled)
    return [
        sampled, account.repeats, len(cut.lost), gaps(cut, account), f"{cut.oldest_s:.2f}",
        account.unannounced_s, cut.before.outbox_records, "" if cut.found is None else cut.found,
        f"{cut.ready_s:.0f}", f"{cut.load:.0f}", f"{cut.silent_s:.2f}",
    ]  # fmt: skip


@pytest.mark.timeout(600)
def test_each_reading_is_one_row(machine: Machine, cloud: Kafka, tmp_path: Path) -> None:
    """After all cuts: what Kafka has twice is in the table once."""
    command = [sys.executable, "-m", "gateway.cli"]
    lake = str(tmp_path / "lake")
    ingest = ["jobs", "run", "ingest", "--once", "--bootstrap-servers", cloud.direct, "--lake", lake]
    subprocess.run([*command, *ingest], check=True, capture_output=True)
    sql = "select count(*) as n, count(distinct (gateway, channel, run, seq)) as d from readings"
    done = subprocess.run([*command, "query", sql, "--lake", lake, "--json"], check=True, capture_output=True)
    [row] = json.loads(done.stdout)
    topics = [f"mqtt.{quantity}" for quantity in QUANTITIES]
    records = sum(1 for _ in cloud.messages(topics))
    print(row, "records", records)  # noqa: T201
    assert row["n"] == row["d"] > 0
    assert row["n"] <= records
