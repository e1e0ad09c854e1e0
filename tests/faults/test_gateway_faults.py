"""The gateway itself dies: what it had for longer than a commit interval and an fsync is safe."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Container, Iterator
from pathlib import Path

import pytest

from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.faults.kafka import Identity, Kafka
from tests.faults.mast import COMMIT_INTERVAL_S, FSYNC_S, PER_EVENT_SECOND, Mast
from tests.faults.reckoning import Reckoning
from tests.support.servers import eventually

pytestmark = pytest.mark.system
Report = Callable[..., None]

RATE = 150


@pytest.fixture
def watched(tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto) -> Iterator[Mast]:
    """A mast whose every reading is seen on the local broker, independently of the daemon's own account."""
    with Mast(tmp_path, cloud, mosquitto, rate=RATE, watch_readings=True) as mast:
        yield mast


def weigh(mast: Mast, reckoning: Reckoning, killed_s: dict[str, float]) -> float:
    """How old (s) the oldest reading was that a kill cost; fails past the promise, or for too many."""
    seen_s: dict[Identity, float] = {
        (mast.id, channel, run, seq): at_s
        for run, seen in mast.witness.runs.items()
        for (channel, seq), at_s in seen.published.items()
    }
    last = {
        (run, channel): seq
        for run, seen in mast.witness.runs.items()
        for channel, seq in seen.last_seq().items()
    }
    per_second = RATE / PER_EVENT_SECOND

    def age_s(lost: Identity) -> float:
        _, channel, run, seq = lost
        if lost in seen_s:
            return killed_s[run] - seen_s[lost]
        # Never published: by how many came after it. The slowest channel has one in two seconds.
        return (last[run, channel] - seq) / per_second * (2 if channel.startswith("dht") else 1)

    reckoning.agree()
    oldest_s = max(map(age_s, reckoning.lost), default=0.0)
    limit_s = COMMIT_INTERVAL_S + FSYNC_S
    assert oldest_s <= limit_s, f"lost {oldest_s:.2f} s after it was sampled: {reckoning.figures()}"
    assert len(reckoning.lost) <= RATE * limit_s * len(killed_s)
    # The last readings before a kill may have reached Kafka and no witness.
    for _, channel, run, seq in reckoning.invented:
        assert run in killed_s
        assert 0 < seq - last.get((run, channel), 0) <= RATE
    return oldest_s


def _of_runs(readings: set[Identity], runs: Container[str]) -> set[Identity]:
    return {reading for reading in readings if reading[2] in runs}


def _let_pass(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    eventually(time.monotonic, seconds + 5, until=lambda now_s: now_s >= end_s, poll_s=0.001)


@pytest.mark.timeout(1800)
def test_gateway_killed_at_random_moments(watched: Mast, cloud: Kafka, report: Report, full: bool) -> None:
    kills = 20 if full else 3
    seed = random.randrange(1 << 32)
    print("seed", seed)  # noqa: T201
    moments = random.Random(seed)
    killed_s: dict[str, float] = {}
    for kill in range(kills):
        run = watched.start(sampling=False)
        # Every third run loses its uplink first, so that kills also hit commits.
        if kill % 3 == 1:
            cloud.uplink.close()
        _let_pass(moments.uniform(0.0, 3.0))
        killed_s[run] = watched.kill()
        cloud.uplink.open()
    watched.start()
    watched.sample(50)
    watched.delivered()
    watched.stop()
    reckoning = watched.reckon()
    oldest_s = weigh(watched, reckoning, killed_s)
    report(reckoning.figures(), kills=kills, seed=seed, oldest_lost_s=round(oldest_s, 3))
    assert not _of_runs(reckoning.outbox, killed_s)


@pytest.mark.timeout(1800)
def test_gateway_killed_while_it_drains(watched: Mast, cloud: Kafka, report: Report, full: bool) -> None:
    kills = 10 if full else 1
    killed_s: dict[str, float] = {}
    for _ in range(kills):
        cloud.uplink.close()
        run = watched.start()
        watched.spilling()
        watched.sample(400)
        cloud.uplink.open()
        eventually(lambda: watched.status()["drained"], poll_s=0.005)
        killed_s[run] = watched.kill()
    watched.start()
    watched.delivered()
    watched.stop()
    reckoning = watched.reckon()
    oldest_s = weigh(watched, reckoning, killed_s)
    report(reckoning.figures(), kills=kills, oldest_lost_s=round(oldest_s, 3))
    assert not _of_runs(reckoning.outbox, killed_s)


@pytest.mark.timeout(900)
def test_gateway_and_mosquitto_killed_together(
    watched: Mast, cloud: Kafka, mosquitto: LocalMosquitto, report: Report, full: bool
) -> None:
    """As a power cut does, but for the disk: nothing gives back what the gateway had only in memory."""
    kills = 10 if full else 1
    seed = random.randrange(1 << 32)
    print("seed", seed)  # noqa: T201
    moments = random.Random(seed)
    killed_s: dict[str, float] = {}
    for _ in range(kills):
        cloud.uplink.close()
        run = watched.start()
        watched.spilling()
        _let_pass(moments.uniform(1.0, 2.0))
        killed_s[run] = watched.kill()
        mosquitto.kill()
        eventually(lambda: mosquitto.exit_code is not None)
        cloud.uplink.open()
        mosquitto.start()
        watched.start()
        watched.delivered()
        watched.stop()
    reckoning = watched.reckon()
    oldest_s = weigh(watched, reckoning, killed_s)
    report(reckoning.figures(), kills=kills, seed=seed, oldest_lost_s=round(oldest_s, 3))
    assert not _of_runs(reckoning.outbox, killed_s)


def test_a_sampler_that_dies_is_replaced(
    tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto, report: Report
) -> None:
    # A pressure that no double can be turned into a converter's code for: the driver raises OverflowError.
    pressures = ["90.0"] * 600
    pressures[100] = "1e308"
    rows = [
        f"2026-01-01T00:{n // 60:02}:{n % 60:02}Z,7.5,{pressure},20,50"
        for n, pressure in enumerate(pressures)
    ]
    (tmp_path / "mast.csv").write_text("\n".join(["time,wind,pressure,celsius,percent", *rows, ""]))
    columns = {
        "cup-a": "wind",
        "cup-b": "wind",
        "baro-a": "pressure",
        "baro-b": {"column": "wind", "offset": 80},
        "dht.temperature": "celsius",
        "dht.humidity": "percent",
    }
    board = {"kind": "replay", "file": "mast.csv", "speed": 100, "columns": columns}
    with Mast(tmp_path, cloud, mosquitto, board=board) as mast:
        mast.start()
        eventually(lambda: mast.status()["sampler_restarts"], until=lambda restarts: restarts == 1)
        eventually(lambda: mast.status()["state"], until=lambda state: state == "ended")
        last_seq = {channel: last["seq"] for channel, last in mast.status()["channels"].items()}
        mast.delivered()
        mast.stop()
        reckoning = mast.reckon()
    reckoning.balance()
    report(reckoning.figures(), samples_missed=600 - last_seq["baro-a.pressure"])
    # The others lost nothing; the dead one went on with its next number after a pause of a second or so.
    assert last_seq["cup-a.wind_speed"] == last_seq["baro-b.pressure"] == 600
    assert 300 < last_seq["baro-a.pressure"] < 599
