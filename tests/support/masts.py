"""Masts for tests: sensors on boards, sampled in lock-step by one thread each, as the gateway does it."""

from __future__ import annotations

import csv
import gzip
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud.wire.quantities import QUANTITIES
from drivers.ads1115 import AdcOptions
from drivers.boards.registry import BOARDS, ReplayColumn, open_board
from drivers.emulation.board import EmulatedBoard
from drivers.generic.modbus import ModbusRegister
from drivers.iio import IioChannel
from drivers.interface import Driver, FittedSensor, Measurement, ReadError
from drivers.registry import driver_type
from tests.support.servers import shared_data

SECOND_NS = 1_000_000_000
AS_FAST_AS_POSSIBLE = 1_000_000.0


def fitted(name: str, driver: str, height_m: float | None = None, **options: Any) -> FittedSensor:
    known = driver_type(driver)
    chosen = known.options(**options)
    return FittedSensor(name, driver, chosen, known.channels_of(chosen), height_m)


NRG_CUP: Mapping[str, Any] = {"slope": 0.765, "offset": 0.35, "at_rest": "offset"}
ALL_KINDS = (
    fitted("cup", "hall-anemometer", 50.0, pin=17, **NRG_CUP),
    fitted("dht", "dht11", pin=4),
    fitted("baro", "bp20"),
    fitted("sun", "pyranometer"),
    fitted("vane", "wind-vane", 48.0, north_offset_deg=240.0, adc=AdcOptions(0x49), supply_input=1),
    fitted(
        "level", "analog", quantity=QUANTITIES["voltage"], adc=AdcOptions(0x4A, 3), slope=100.0, divider=2.0
    ),
    fitted("rain", "pulse", quantity=QUANTITIES["precipitation"], pin=25, slope=0.2, debounce_s=0.2),
    fitted("panel", "w1", quantity=QUANTITIES["module_temperature"]),
    fitted("air", "scd4x"),
    fitted("gps", "gpsd", latitude=27.7, longitude=85.5),
    fitted(
        "shed",
        "iio",
        device="bme280",
        channels=(
            IioChannel(QUANTITIES["temperature"], "in_temp"),
            IioChannel(QUANTITIES["humidity"], "in_humidityrelative"),
        ),
    ),
    fitted(
        "roof",
        "modbus",
        device="/dev/ttyUSB0",
        registers=(
            ModbusRegister(QUANTITIES["irradiance"], 2, "s32", slope=0.01),
            ModbusRegister(QUANTITIES["temperature"], 6, "s16", scale_address=9),
        ),
    ),
)
NRG_MAST = (
    fitted("cup-a", "hall-anemometer", pin=17, **NRG_CUP),
    fitted("cup-b", "hall-anemometer", pin=27, **NRG_CUP),
    fitted("cup-s1", "hall-anemometer", pin=22, slope=0.0935, offset=0.139, at_rest="offset"),
    fitted("dht", "dht11", pin=4),
    fitted("baro", "bp20"),
    fitted("sun", "pyranometer"),
)
NRG_COLUMNS: Mapping[str, str | ReplayColumn] = {
    "cup-a": "wind_speed_primary_m_s",
    "cup-b": "wind_speed_redundant_m_s",
    "cup-s1.wind_speed": "wind_speed_s1_m_s",
    "dht.temperature": "air_temperature_c",
    "dht.humidity": "relative_humidity_pct",
    "baro": ReplayColumn("air_pressure_hpa", scale=0.1),
    "sun": "solar_irradiance_w_m2",
}


def simulated(
    sensors: Sequence[FittedSensor], start: str = "2026-03-01T04:00:00Z", seed: int = 1
) -> EmulatedBoard:
    options = BOARDS["simulated"](seed=seed, speed=AS_FAST_AS_POSSIBLE, start=start)
    board = open_board(options, sensors, Path())
    assert isinstance(board, EmulatedBoard)
    return board


def replayed(
    path: Path,
    sensors: Sequence[FittedSensor],
    columns: Mapping[str, str | ReplayColumn],
    speed: float = AS_FAST_AS_POSSIBLE,
    **options: Any,
) -> EmulatedBoard:
    chosen = BOARDS["replay"](file=path.name, columns=columns, speed=speed, **options)
    board = open_board(chosen, sensors, path.parent)
    assert isinstance(board, EmulatedBoard)
    return board


def ten_minute_values(path: Path, **made: Callable[[int], float]) -> list[dict[str, str]]:
    """Writes a week of a real mast's file, where it is there, else a day of these columns; gives its rows."""
    recorded = shared_data("mast_10min_3months.csv.gz")
    if recorded is not None:
        path.write_bytes(b"\n".join(gzip.decompress(recorded.read_bytes()).split(b"\n")[:1009]))
    else:
        rows = (
            ",".join((f"2026-03-01T{at // 6:02}:{at % 6}0:00Z", *(f"{of(at):.3f}" for of in made.values())))
            for at in range(144)
        )
        path.write_text("\n".join((",".join(("time", *made)), *rows)))
    with path.open(encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True)
class Sample:
    """A reading's period start, and its measurements or what went wrong."""

    time_ns: int
    got: tuple[Measurement, ...] | ReadError

    @property
    def value(self) -> float:
        assert not isinstance(self.got, ReadError), self.got
        return self.got[0].value


def sample(
    board: EmulatedBoard,
    sensors: Sequence[FittedSensor],
    periods_s: Mapping[str, float] | None = None,
    until_ns: int | None = None,
) -> dict[str, list[Sample]]:
    """Sample every sensor until the world, or ``until_ns``, ends; periods are 1 s unless given."""
    clock = board.clock
    samples: dict[str, list[Sample]] = {sensor.name: [] for sensor in sensors}
    failures: list[BaseException] = []

    def run(sensor: FittedSensor, driver: Driver) -> None:
        period_ns = round((periods_s or {}).get(sensor.name, 1.0) * SECOND_NS)
        time_ns = -(-clock.now_ns() // period_ns) * period_ns
        try:
            while clock.covers(time_ns, time_ns + period_ns) and (until_ns is None or time_ns < until_ns):
                if not clock.wait_until(time_ns + period_ns if driver.accumulates else time_ns):
                    return
                try:
                    samples[sensor.name].append(Sample(time_ns, driver.read()))
                except ReadError as error:
                    samples[sensor.name].append(Sample(time_ns, error))
                time_ns += period_ns
        except BaseException as error:  # noqa: BLE001 - a thread's failure must fail the test
            failures.append(error)
        finally:
            clock.leave()

    drivers = [driver_type(sensor.driver).make(board, sensor.options) for sensor in sensors]
    for driver in drivers:
        driver.start()
        clock.join()
    threads = [
        threading.Thread(target=run, args=(sensor, driver), name=sensor.name, daemon=True)
        for sensor, driver in zip(sensors, drivers, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), f"{thread.name} hangs"
    for driver in drivers:
        driver.stop()
    assert not failures, failures
    return samples
