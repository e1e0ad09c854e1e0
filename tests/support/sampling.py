"""A run of a mast as samplers need it."""

from __future__ import annotations

from typing import Any

from cloud.wire.reading_records import Reading
from gateway.ports import Clock
from gateway.sampling.readings import RunContext
from gateway.sequences import Sequences


def run_of(clock: Clock, readings: list[Reading], **more: Any) -> RunContext:
    """A run whose readings are appended to a list."""

    def emit(reading: Reading, _sensor: str) -> None:
        readings.append(reading)

    return RunContext("mast-07", "run", clock, Sequences(), emit, "boot-1", **more)
