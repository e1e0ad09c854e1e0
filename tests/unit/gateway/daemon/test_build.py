"""What a daemon that can't be built leaves open: nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from buffer.sqlite_outbox import SqliteOutbox
from cloud.wire.reading_records import GOOD, Reading
from drivers.emulation.board import EmulatedBoard
from drivers.interface import BoardError
from gateway.config import Config, load
from gateway.daemon.build import build
from gateway.daemon.snapshot import status_of
from gateway.status.status import Status
from tests.support.config import config_text, cup, dht, write_config

# A header and no rows: ``load`` checks the columns only.
RECORDING = {
    "kind": "replay",
    "file": "mast.csv",
    "timestamp_column": "time",
    "columns": {"cup.wind_speed": "speed"},
}


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been closed, in order."""
    names: list[str] = []

    def note(kind: type[EmulatedBoard] | type[SqliteOutbox], name: str) -> None:
        close = kind.close

        def noting(part: EmulatedBoard | SqliteOutbox) -> None:
            names.append(name)
            close(part)  # type: ignore[arg-type]

        monkeypatch.setattr(kind, "close", noting)

    note(SqliteOutbox, "outbox")
    note(EmulatedBoard, "board")
    return names


def unbuildable(path: Path, config: Config, error: type[Exception]) -> None:
    with pytest.raises(error):
        build(config, path, {})
    # Neither locked by this process, nor is a run on record that never began.
    assert not (path.parent / "outbox.db.run").exists()
    SqliteOutbox(config.outbox.path).close()


def test_a_board_that_cannot_be_opened_leaves_the_outbox_closed(tmp_path: Path, closed: list[str]) -> None:
    (tmp_path / "mast.csv").write_text("time,speed\n")
    path = write_config(tmp_path, config_text(cup(), board=RECORDING))
    unbuildable(path, load(path, {}), BoardError)
    assert closed == ["outbox", "outbox"]


def test_producers_that_cannot_be_made_keep_no_sensor_waiting(tmp_path: Path) -> None:
    path = write_config(tmp_path, config_text(cup()))
    config = load(path, {})
    # As with a certificate that goes between the check and the start.
    properties = {"security.protocol": "ssl", "ssl.ca.location": str(tmp_path / "gone.pem")}
    kafka = dataclasses.replace(config.kafka, properties=properties)
    parts = build(dataclasses.replace(config, kafka=kafka), path, {}).gateway
    assert not parts.kafka.live.usable
    assert "ssl.ca.location" in (parts.kafka.live.problem or "")
    parts.forwarder.outbox._outbox.close()
    parts.board.close()


def test_a_reading_switches_in_its_own_call_and_needs_no_forwarder_or_broker(tmp_path: Path) -> None:
    relay = {"name": "heater", "pin": 23, "normal": "on"}
    interlock = {"when": "dht.temperature > 45", "then": "relay.heater off"}
    text = config_text(dht(), actuator=[relay], interlock=[interlock])
    path = write_config(tmp_path, text)
    parts = build(load(path, {}), path, {}).gateway
    assert isinstance(parts.board, EmulatedBoard)
    levels = parts.board.outputs.high
    parts.interlocks.start()
    assert levels == {23: False}
    for value, on in ((20.0, True), (45.5, False)):
        parts.context.emit(
            Reading(
                gateway="mast-07", channel="dht.temperature", run=parts.run, seq=1, quantity="temperature",
                time_us=0, period_ms=2000, value=value, unit="Cel", raw=value, raw_unit="Cel",
                quality=GOOD, reasons=(), clock="synced", cal="0" * 8,
            ),
            "dht",
        )  # fmt: skip
        assert levels == {23: on}
    parts.interlocks.stop()
    parts.forwarder.outbox._outbox.close()
    parts.kafka.close()
    parts.board.close()


def test_the_daemons_status_is_what_commands_read(tmp_path: Path) -> None:
    path = write_config(tmp_path, config_text(dht(), cup()))
    parts = build(load(path, {}), path, {}).gateway
    try:
        built = status_of(parts)
        assert msgspec.json.decode(msgspec.json.encode(built), type=Status) == built
        assert {each.area: each.severity for each in built.findings} == {
            "daemon": "ok", "clock": "ok", "mqtt": "error", "kafka": "warning", "outbox": "ok",
        }  # fmt: skip
    finally:
        parts.forwarder.outbox._outbox.close()
        parts.kafka.close()
        parts.board.close()
