"""The SCD4x's commands and checksums through Adafruit's library."""

from __future__ import annotations

from types import SimpleNamespace

import adafruit_scd4x
import pytest

from drivers.driver_type import Nameplate
from drivers.emulation.board import EmulatedI2c
from drivers.emulation.parts import EmulatedScd4x
from drivers.interface import ChecksumError, ReadError
from drivers.scd4x import TYPE, WARM_UP_S, Scd4x, Scd4xOptions
from tests.support.masts import SECOND_NS


class Room:
    """A sensor in air set by hand, with seconds moved by hand."""

    def __init__(self, options: Scd4xOptions | None = None, variant: str = "SCD41") -> None:
        self.seconds = 100.0
        self.co2: float | None = 500.0
        self.pressure_hpa: float | None = None
        self.breathed_at: list[float] = []
        self.chip = EmulatedScd4x(lambda: round(self.seconds * SECOND_NS), self._breathe, variant)
        self.bus = EmulatedI2c({0x62: self.chip})
        # The part of a board it uses.
        self.sensor = Scd4x(self, options or Scd4xOptions())  # type: ignore[arg-type]

    def _breathe(self, time_ns: int) -> float | None:
        self.breathed_at.append(time_ns / SECOND_NS)
        if self.co2 is None or self.pressure_hpa is None:
            return self.co2
        # The signal is the number of molecules: what the chip takes for the pressure decides the ppm. Else
        # that is the standard atmosphere's at its altitude (ISO 2533).
        settings = self.chip.settings
        standard_hpa = 1013.25 * (1 - 2.25577e-5 * settings["altitude_m"]) ** 5.25588
        return float(self.co2 * self.pressure_hpa / (settings["pressure_hpa"] or standard_hpa))

    def i2c(self) -> EmulatedI2c:
        return self.bus

    def monotonic(self) -> float:
        return self.seconds

    def read(self) -> float:
        return self.sensor.read()[0].value


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library sleeps half a second at each start and stop; the emulated chip needs none of it."""
    monkeypatch.setattr(adafruit_scd4x, "time", SimpleNamespace(sleep=lambda _seconds: None))


@pytest.fixture
def room() -> Room:
    room = Room()
    room.sensor.start()
    return room


def test_the_datasheets_measurement(room: Room) -> None:
    # 500 ppm, 25 °C, 37 %RH is 01F4 33 6667 A2 5EB9 3C.
    assert room.sensor._sensor.data_ready
    room.chip.write(bytes([0xEC, 0x05]))
    assert room.chip.read(9).hex() == "01f4336667a25eb93c"


def test_each_period_gives_one_new_measurement(room: Room) -> None:
    assert room.read() == 500.0
    for ppm in (510.0, 520.0, 530.0):
        room.co2, room.seconds = ppm, room.seconds + 5
        assert room.read() == ppm
    assert room.breathed_at == [100.0, 105.0, 110.0, 115.0]


def test_between_measurements_the_last_one_stands_for_a_period_and_a_half_then_no_longer(room: Room) -> None:
    assert room.read() == 500.0
    room.co2, room.seconds = 600.0, 104.9
    assert room.read() == 500.0
    room.chip.write(bytes([0x3F, 0x86]))
    room.seconds = 107.4
    assert room.read() == 500.0
    room.seconds = 107.6
    with pytest.raises(ReadError, match="no new measurement"):
        room.read()


def test_a_damaged_answer_is_a_checksum_error(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    read = room.chip.read

    def damaged(count: int) -> bytes:
        answer = bytearray(read(count))
        if count == 9:
            answer[1] ^= 0x01
        return bytes(answer)

    monkeypatch.setattr(room.chip, "read", damaged)
    with pytest.raises(ChecksumError, match="CRC"):
        room.read()


def test_it_warms_up_for_three_response_times(room: Room) -> None:
    assert WARM_UP_S == 180
    for seconds, reasons in ((0, ("WARMING_UP",)), (179.9, ("WARMING_UP",)), (180, ()), (3600, ())):
        room.seconds = 100.0 + seconds
        assert room.sensor.read()[0].reasons == reasons
    room.sensor.stop()
    room.sensor.start()
    assert room.sensor.read()[0].reasons == ("WARMING_UP",)


@pytest.mark.parametrize(
    ("before", "wanted", "writes"),
    [(1, None, 0), (1, True, 0), (1, False, 1), (0, None, 0), (0, False, 0), (0, True, 1)],
)
def test_self_calibration_is_written_only_where_it_differs(
    before: int, wanted: bool | None, writes: int
) -> None:
    room = Room(Scd4xOptions(self_calibration=wanted))
    room.chip._eeprom["self_calibration"] = before
    room.chip.lose_power()
    for _ in range(3):
        room.sensor.start()
        room.sensor.stop()
    assert room.chip.eeprom_writes == writes
    room.chip.lose_power()
    expected = before if wanted is None else int(wanted)
    assert room.chip.settings["self_calibration"] == expected
    assert room.sensor.description()["self_calibration"] is bool(expected)


def test_it_reports_about_itself() -> None:
    room = Room(Scd4xOptions(elevation_m=2100.4))
    assert room.sensor.description() == {}
    room.sensor.start()
    assert room.sensor.description() == {
        "serial": "f8969f073bbe",
        "variant": "SCD41",
        "self_calibration": True,
        "altitude_m": 2100.0,
    }
    assert room.chip.eeprom_writes == 0


def test_thin_air_needs_its_pressure() -> None:
    room = Room()
    room.co2, room.pressure_hpa = 430.0, 785.0
    room.sensor.start()
    # At 2,100 m, without a pressure: a fifth too low.
    assert room.read() == round(430 * 785 / 1013.25)
    room.seconds += 5
    room.sensor.compensate("pressure", 78.5)
    assert room.read() == 430
    assert room.chip.settings["pressure_hpa"] == 785


def test_without_a_barometer_the_elevation_will_do() -> None:
    room = Room(Scd4xOptions(elevation_m=2100))
    room.co2, room.pressure_hpa = 430.0, 785.0
    room.sensor.start()
    assert room.chip.settings["altitude_m"] == 2100
    assert room.read() == pytest.approx(430, abs=2)


def test_the_pressure_is_sent_only_when_it_changes_by_a_hectopascal(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    write = room.chip.write

    def watched(command: bytes) -> None:
        if command[:2] == b"\xe0\x00":
            sent.append(int.from_bytes(command[2:4], "big"))
        write(command)

    monkeypatch.setattr(room.chip, "write", watched)
    for kpa in (78.51, 78.53, 78.49, 78.58, 69.9, 120.1, 78.61):
        room.sensor.compensate("pressure", kpa)
        room.seconds += 5
        room.read()
    room.sensor.compensate("temperature", 90.0)
    room.seconds += 5
    room.read()
    assert sent == [785, 786]
    # A sensor that is started again may have lost it.
    room.sensor.stop()
    room.sensor.start()
    room.read()
    assert sent == [785, 786, 786]


def test_a_sensor_that_lost_its_supply_for_a_moment_is_started_again(room: Room) -> None:
    room.read()
    room.sensor.compensate("pressure", 90.0)
    room.seconds += 5
    room.read()
    room.chip.lose_power()
    # The last value may stand for one more period.
    room.seconds += 5
    assert room.read() == 500.0
    failed = 0
    for _ in range(6):
        room.seconds += 5
        try:
            measured = room.sensor.read()[0]
            break
        except ReadError:
            failed += 1
    # Silence of over four periods is enough; the measurement after it is the fifth.
    assert failed == 4
    assert (measured.value, measured.reasons) == (500.0, ("WARMING_UP",))
    assert room.chip.settings["pressure_hpa"] == 900


def test_one_that_has_gone_is_looked_for_now_and_then(room: Room) -> None:
    room.read()
    room.bus.devices.clear()
    for _ in range(12):
        room.seconds += 5
        with pytest.raises(ReadError):
            room.sensor.read()
    room.chip.lose_power()
    room.bus.devices[0x62] = room.chip
    for _ in range(5):
        room.seconds += 5
        try:
            assert room.read() == 500.0
            return
        except ReadError:
            continue
    pytest.fail("it isn't found again")


def test_concerns() -> None:
    def keys(nameplate: Nameplate | None = None, **options: object) -> list[tuple[str, ...]]:
        chosen = Scd4xOptions(**options)  # type: ignore[arg-type]
        return [each.key for each in TYPE.concerns(chosen, nameplate or Nameplate())]

    assert keys() == [("driver",)]
    assert keys(elevation_m=2100) == []
    assert keys(elevation_m=3500) == [("driver",)]
    assert keys(elevation_m=3500, pressure_from="baro") == []
    assert keys(Nameplate("Sensirion SCD40"), elevation_m=0) == [("variant",)]
    assert keys(Nameplate("SCD40"), elevation_m=0, variant="SCD40") == []
