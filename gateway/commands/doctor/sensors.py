"""The sensors' readings: of the running daemon, or read here for a moment."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from drivers.interface import Board
from gateway.commands.doctor.findings import Finding
from gateway.commands.reading_rows import Row, number_text, reason_words, row_of_reading, rows_of_status
from gateway.config import Config
from gateway.sampling.one_shot import OneShotRead


def from_daemon(config: Config, status: Mapping[str, Any]) -> Iterator[Finding]:
    """The daemon's last readings."""
    for sensor in config.sensors:
        rows = rows_of_status(status, [sensor])
        if any(row.pending for row in rows):
            yield Finding("sensor", "warning", f"{sensor.name}: {rows[0].words}")
        else:
            yield _finding(sensor.name, rows)


def from_board(
    config: Config, board: Board, timeout_s: float, explained: Collection[str] = ()
) -> Iterator[Finding]:
    """Each sensor but those ``explained``: its readings, and its driver's diagnosis of the wiring."""
    wanted = [sensor for sensor in config.sensors if sensor.name not in explained]
    for result in OneShotRead(config.gateway.id, wanted, board).run(timeout_s):
        rows = [row_of_reading(reading, result.sensor, result.trouble) for reading in result.readings]
        if rows:
            finding = _finding(result.sensor, rows)
            # The diagnosis has the same at greater length.
            if finding.state != "error" or not result.diagnosis:
                yield finding
        else:
            yield Finding("sensor", "error", f"{result.sensor}: {result.trouble}")
        failed = any(row.failed for row in rows)
        for sentence in result.diagnosis:
            yield Finding("sensor", "error" if failed else "warning", f"{result.sensor}: {sentence}")


def _finding(sensor: str, rows: list[Row]) -> Finding:
    trouble = next((row.trouble for row in rows if row.trouble), None)
    if trouble is not None:
        return Finding("sensor", "error", f"{sensor}: {trouble}")
    values = ", ".join(number_text(row.value, row.unit) for row in rows)
    reasons = dict.fromkeys(reason for row in rows for reason in row.reasons)
    if not reasons:
        return Finding("sensor", "ok", f"{sensor}: {values}")
    words = "; ".join(map(reason_words, reasons))
    failed = any(row.failed for row in rows)
    return Finding("sensor", "error" if failed else "warning", f"{sensor}: {values}: {words}")
