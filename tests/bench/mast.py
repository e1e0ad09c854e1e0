"""What a mast's real rate costs: a daemon at 12 channels of 1 Hz, and bridges at 100 messages a second.

    make bench BENCH=mast ARGS='--seconds 30 --rounds 3'

Prints medians: the process's processor time a message in µs, context switches a second of all its threads,
and ms until Kafka has appended it (a reading: since it was made; a bridge's: since it was published).
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Final

from tests.bench.bridges import Bridge, Servers, measure, servers
from tests.bench.figures import Row, cpu_s, spread
from tests.support.config import baro, config_text, cup, sensor
from tests.support.mast import GatewayProcess, records
from tests.support.servers import unique_name

_PINS: Final = (5, 6, 13, 19, 26, 16, 20, 21, 12, 25)
_RATE: Final = 100
_SWITCHES: Final = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s+(\d+)", re.M)
_SETTLES_S: Final = 8.0
_FIGURES: Final = ("cpu_us", "switches", "produce_p50", "produce_p99")


def switches(pid: int | None) -> int:
    """Context switches of a process's threads since they began."""
    states = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(int(count) for state in states for count in _SWITCHES.findall(state))


def mast(ours: Servers, seconds: float) -> Row:
    """Ten cups, a barometer and a pyranometer on the simulated board."""
    name = unique_name("mast")
    directory, kafka = ours.directory / name, ours.kafka.bootstrap_servers
    directory.mkdir()
    ours.create(name)
    cups = (cup(f"cup-{n}", pin, interval_s=1) for n, pin in enumerate(_PINS))
    sun = sensor("sun", "pyranometer", interval_s=1)
    config = config_text(*cups, baro(interval_s=1), sun, gateway={"id": name}, kafka={"topic": name})
    gateway = GatewayProcess(directory, config, name, kafka, ours.mosquitto)
    gateway.launch()
    try:
        gateway.sample(len(_PINS))
        time.sleep(_SETTLES_S)
        begin_s, used_s, before = time.time(), cpu_s(gateway.pid), switches(gateway.pid)
        time.sleep(seconds)
        used_s, made = cpu_s(gateway.pid) - used_s, switches(gateway.pid) - before
        end_s = time.time()
        gateway.stop()
    finally:
        gateway.end()
    times = []
    for record in records(kafka, [name]):
        made_at = dict(record.headers() or ())["received-at"]
        assert isinstance(made_at, bytes)
        times.append((datetime.fromisoformat(made_at.decode()).timestamp(), record.timestamp()[1] / 1e3))
    ms = [1000 * (appended_s - made_s) for made_s, appended_s in times if begin_s <= made_s < end_s]
    return {"cpu_us": 1e6 * used_s / len(ms), "switches": made / (end_s - begin_s), **spread("produce", ms)}


def forward(ours: Servers, kind: str, seconds: float) -> Row:
    """Other devices' messages through a bridge."""
    bridge = Bridge(kind, ours)
    try:
        bridge.flow()
        time.sleep(_SETTLES_S)
        with bridge.arrivals() as arrivals:
            publisher = ours.publisher(bridge.prefix, int(_RATE * seconds), 200, rate=_RATE)
            begin_s, before = time.monotonic(), switches(bridge.pid)
            row = measure(ours, arrivals, publisher, bridge)
            made, took_s = switches(bridge.pid) - before, time.monotonic() - begin_s
        return row | {"cpu_us": row["bridge_us"], "switches": made / took_s}
    finally:
        bridge.close()


def main() -> None:
    """Measure by turns, and print a table."""
    parser = argparse.ArgumentParser(description="processor time and wake-ups at a mast's rate")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows: dict[str, list[Row]] = {}
    with servers() as ours:
        for _ in range(options.rounds):
            rows.setdefault("12 readings/s", []).append(mast(ours, options.seconds))
            for kind in ("hand-written", "gateway"):
                rows.setdefault(f"{kind}, {_RATE}/s", []).append(forward(ours, kind, options.seconds))
    sys.stdout.write(f"| | {' | '.join(_FIGURES)} |\n")
    for name, found in rows.items():
        medians = (statistics.median(row[figure] for row in found) for figure in _FIGURES)
        sys.stdout.write(f"| {name} | {' | '.join(f'{each:.1f}' for each in medians)} |\n")


if __name__ == "__main__":
    main()
