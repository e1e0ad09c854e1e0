"""What the sensors say: asked of the running daemon, or looked at for a moment."""

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
            yield _said(sensor.name, rows)


def from_board(
    config: Config, board: Board, timeout_s: float, explained: Collection[str] = ()
) -> Iterator[Finding]:
    """A look at each sensor but those ``explained``: its readings, what its driver sees of its wiring."""
    asked = [sensor for sensor in config.sensors if sensor.name not in explained]
    for seen in OneShotRead(config.gateway.id, asked, board).run(timeout_s):
        rows = [row_of_reading(reading, seen.sensor, seen.trouble) for reading in seen.readings]
        if rows:
            finding = _said(seen.sensor, rows)
            # The diagnosis says the same at greater length.
            if finding.state != "error" or not seen.diagnosis:
                yield finding
        else:
            yield Finding("sensor", "error", f"{seen.sensor}: {seen.trouble}")
        failed = any(row.failed for row in rows)
        for sentence in seen.diagnosis:
            yield Finding("sensor", "error" if failed else "warning", f"{seen.sensor}: {sentence}")


def _said(sensor: str, rows: list[Row]) -> Finding:
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
