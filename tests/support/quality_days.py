"""A simulated mast, sampled by the gateway's own samplers at the stepped clock's full speed."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud.wire.reading_records import Reading
from gateway.config import Config, load
from gateway.sampling.readings import RunContext
from gateway.sampling.sampler import make_sampler, open_fitted_board
from gateway.sampling.supervisor import Supervisor
from gateway.sequences import Sequences

MAST = """
[gateway]
id = "mast"
latitude = 27.7
longitude = 85.5
elevation_m = 2100
[outbox]
path = "outbox.db"
[board]
kind = "simulated"
seed = {seed}
speed = 1000000
start = "{start}"
{faults}
{quality}
{cups}
[[sensor]]
name = "dht"
driver = "dht11"
pin = 4
interval_s = 2
[[sensor]]
name = "baro"
driver = "bp20"
[[sensor]]
name = "sun"
driver = "pyranometer"
[[sensor]]
name = "air"
driver = "scd4x"
interval_s = 5
[[sensor]]
name = "gps"
driver = "gpsd"
interval_s = 10
"""
"""Six cups on three booms, weather, sun, CO2, position: 12 channels, 9.4 readings a second."""

PINS = {"50m-a": 17, "50m-b": 27, "30m-a": 22, "30m-b": 23, "20m-a": 24, "20m-b": 25}


def _cups() -> str:
    tables = []
    for place, pin in PINS.items():
        height, letter = place.split("m-")
        twin = f"cup-{height}m-{'b' if letter == 'a' else 'a'}"
        tables.append(
            f'[[sensor]]\nname = "cup-{place}"\ndriver = "hall-anemometer"\npin = {pin}\n'
            f'height_m = {height}\nslope = 0.765\noffset = 0.35\npair = "{twin}"\n'
        )
    return "".join(tables)


@dataclass(frozen=True)
class Taken:
    """One reading, without what is the same in all of them; time in seconds since the start."""

    at_s: float
    value: float | None
    quality: int
    reasons: tuple[str, ...]


def mast_config(
    directory: Path, start: str, seed: int = 1, faults: Sequence[str] = (), quality: str = ""
) -> Config:
    listed = f"faults = [\n{''.join(f'  {{ {fault} }},{chr(10)}' for fault in faults)}]" if faults else ""
    file = directory / f"mast-{seed}.toml"
    file.write_text(MAST.format(seed=seed, start=start, faults=listed, quality=quality, cups=_cups()))
    return load(file)


def sample(config: Config, seconds: int) -> Mapping[str, Sequence[Taken]]:
    """Every channel's readings of so many seconds."""
    board = open_fitted_board(config)
    clock = board.clock
    assert clock is not None
    start_ns = clock.now_ns()
    end_us = start_ns // 1000 + seconds * 1_000_000
    taken: dict[str, list[Taken]] = {}
    over = threading.Event()

    def emit(reading: Reading, _sensor: str) -> None:
        if reading.time_us >= end_us:
            # In lock-step everyone has read by then, also at the longest interval.
            if reading.time_us >= end_us + 20_000_000:
                over.set()
                clock.stop()
            return
        at_s = (reading.time_us * 1000 - start_ns) / 1e9
        one = Taken(at_s, reading.value, reading.quality, reading.reasons)
        taken.setdefault(reading.channel, []).append(one)

    mast = RunContext("mast", "run", clock, Sequences(), emit, "boot")
    supervisor = Supervisor((make_sampler(sensor, board, mast) for sensor in config.sensors), clock)
    supervisor.start()
    try:
        assert over.wait(3600), "the day doesn't end"
        assert supervisor.restarts == 0
    finally:
        supervisor.stop()
        board.close()
    return taken
