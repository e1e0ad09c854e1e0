"""What a daemon takes of its machine: no writes while Kafka answers, no growth while it doesn't."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from operator import le
from pathlib import Path
from statistics import median

import pytest

from buffer.sqlite_outbox import SqliteOutbox
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.faults.kafka import Kafka
from tests.faults.mast import Mast
from tests.support.servers import eventually

pytestmark = pytest.mark.system
Report = Callable[..., None]

_RSS_LIMIT_MIB = 120


def written_bytes(pid: int) -> int:
    """What a process has caused to be written to storage (proc(5), /proc/pid/io)."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["write_bytes"])


def rss_mib(pid: int) -> float:
    """A process' resident memory."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


@pytest.mark.timeout(900)
def test_healthy_live_state_writes_nothing(
    tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto, report: Report, full: bool
) -> None:
    seconds = 60 if full else 5
    # A log on the same disk would count; the daemon's goes to the journal.
    with Mast(tmp_path, cloud, mosquitto, rate=12, kafka_address=cloud.direct) as mast:
        mast.start()
        mast.sample(36)
        # Else a spill for this machine's own hiccup, or a late file of the start, would be taken for the
        # daemon's habit: one quiet stretch is enough, and there is none where it is a habit.
        for _ in range(10):
            mast.delivered()
            stored, before = mast.status()["spilled"], written_bytes(mast.pid)
            eventually(time.monotonic, seconds + 5, until=partial(le, time.monotonic() + seconds))
            written = written_bytes(mast.pid) - before
            spilled = mast.status()["spilled"] - stored
            if not (spilled or written):
                break
        mast.stop()
        reckoning = mast.reckon()
    reckoning.balance()
    report(reckoning.figures(), seconds=seconds, write_bytes=written)
    assert (spilled, written) == (0, 0)


@pytest.mark.timeout(3600)
def test_memory_is_flat_in_an_outage_at_1000_readings_per_second(
    tmp_path: Path, cloud: Kafka, mosquitto: LocalMosquitto, report: Report, full: bool
) -> None:
    seconds, settle_s = (1800, 180) if full else (6, 3)
    cloud.uplink.close()
    with Mast(tmp_path, cloud, mosquitto, rate=1000) as mast:
        # A new file is made by sqlite-utils, which loads 60 MB of pandas where that is installed: on no mast.
        SqliteOutbox(mast.outbox).close()
        mast.start()
        begin_s = time.monotonic()
        curve: list[tuple[float, float]] = []
        while (passed_s := time.monotonic() - begin_s) < settle_s + seconds:
            curve.append((passed_s, rss_mib(mast.pid)))
            eventually(time.monotonic, until=lambda now_s: now_s >= begin_s + passed_s + 0.5)
        settled = [rss for at_s, rss in curve if at_s >= settle_s]
        halves = settled[: len(settled) // 2], settled[len(settled) // 2 :]
        # Medians: a burst of unconfirmed publishes may take some megabytes for a moment.
        growth = median(halves[1]) - median(halves[0])
        rate = mast.sampled() / (time.monotonic() - begin_s)
        mast.stop()
        reckoning = mast.reckon()
    reckoning.balance()
    report(
        reckoning.figures(),
        seconds=seconds,
        readings_per_s=round(rate),
        rss_mib=round(max(settled), 1),
        growth_mib=round(growth, 1),
    )
    assert max(settled) < _RSS_LIMIT_MIB
    # Tens of thousands of readings came in between the halves: kept, they would be megabytes.
    assert growth < 3
