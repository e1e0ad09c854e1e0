"""What names a calibration, when it has expired, and what the config has of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cloud.wire.channel_records import ChannelRecord, Period, encode_channel, parse_channel
from cloud.wire.reading_records import encode_reading, parse_reading
from drivers.interface import Channel
from drivers.registry import driver_type
from gateway.calibration.record import configured, expiry_reasons
from gateway.clock.hold import repaired
from gateway.config import SensorConfig, check, load
from gateway.config.calibration import expiry_date
from gateway.config.values import Accuracy, accuracy
from gateway.ports import Record
from tests.unit.cloud.wire.test_reading_records import UNREPAIRED

DAY_US = 86_400_000_000
HEAD = '[gateway]\nid = "mast-07"\nlatitude = 27.7\nlongitude = 85.5\n'
CUP = """
[[sensor]]
name = "cup"
driver = "hall-anemometer"
pin = 17
slope = 0.765
offset = 0.35
serial = "179500123456"
calibrated = 2026-03-12
"""
BARO = '[[sensor]]\nname = "baro"\ndriver = "bp20"\n'
DHT = '[[sensor]]\nname = "dht"\ndriver = "dht11"\npin = 4\n'
SUN = '[[sensor]]\nname = "sun"\ndriver = "pyranometer"\n'
GPS = '[[sensor]]\nname = "gps"\ndriver = "gpsd"\n'


def sensor(directory: Path, text: str) -> SensorConfig:
    path = directory / "gateway.toml"
    path.write_text(HEAD + text)
    return load(path).sensors[0]


def records(directory: Path, text: str) -> tuple[ChannelRecord, ...]:
    found = sensor(directory, text)
    return configured("mast-07", found, driver_type(found.driver).channels_of(found.options))


def cal(directory: Path, text: str) -> str:
    return records(directory, text)[0].cal


def test_the_record_has_what_the_config_and_the_driver_have(tmp_path: Path) -> None:
    text = (
        CUP
        + 'height_m = 50\nboom_deg = 315\nmodel = "NRG 40H"\nlab = "Tunnel"\ncertificate = "26-0312"\n'
        + 'recalibrate_months = 24\naccuracy = "0.1 + 1%"\ninterval_s = 2\nat_rest = "offset"\n'
    )
    (record,) = records(tmp_path, text)
    assert record == ChannelRecord(
        gateway="mast-07", sensor="cup", quantity="wind_speed", cal=record.cal, revision=1, in_force=True,
        periods=(Period(None),), unit="m/s", kind="linear", driver="hall-anemometer", interval_s=2.0,
        range=(0.0, 75.0), raw_unit="Hz", slope=0.765, offset=0.35, settings={"at_rest": "offset"},
        accuracy=0.1, accuracy_percent=1.0, model="NRG 40H", serial="179500123456", certificate="26-0312",
        lab="Tunnel", calibrated=date(2026, 3, 12), expires=date(2028, 3, 12), height_m=50.0, boom_deg=315.0,
    )  # fmt: skip
    assert parse_channel(encode_channel(record)) == record


@pytest.mark.parametrize(
    ("text", "name"),
    [(CUP, "099802a9"), (BARO, "299209af"), (SUN, "31a6bcb5"), (DHT, "ba9ad873"), (GPS, "4ead0c56")],
    ids=["cup", "baro", "sun", "dht", "gps"],
)
def test_another_version_of_the_daemon_gives_the_same_names(tmp_path: Path, text: str, name: str) -> None:
    """Fixed figures: a change here would break the way from every stored reading to its record."""
    assert cal(tmp_path, text) == name


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("slope = 0.765", "slope = 0.766", False),
        ("offset = 0.35", "offset = 0.36", False),
        ('"179500123456"', '"179500123457"', False),
        ("2026-03-12", "2026-03-13", False),
        # Wiring does not count.
        ("pin = 17", "pin = 27", True),
        ('name = "cup"', 'name = "cup-50m-a"', True),
        (CUP, CUP + 'pair = "twin"\n' + CUP.replace('"cup"', '"twin"').replace("17\n", "27\n"), True),
    ],
)
def test_what_determines_the_value_or_its_uncertainty_changes_the_name(
    tmp_path: Path, before: str, after: str, same: bool
) -> None:
    assert CUP.count(before) == 1
    assert (cal(tmp_path, CUP.replace(before, after)) == cal(tmp_path, CUP)) is same


@pytest.mark.parametrize(
    ("text", "more", "same"),
    [
        (CUP, 'certificate = "26-0312"', False),
        (CUP, 'lab = "Tunnel"', False),
        (CUP, 'model = "NRG 40H"', False),
        (CUP, "expires = 2027-03-12", False),
        (CUP, "recalibrate_months = 24", False),
        (CUP, "height_m = 50", False),
        (CUP, "boom_deg = 315", False),
        (CUP, "accuracy = 0.1", False),
        (CUP, 'accuracy = "0.1%"', False),
        (CUP, "range = [0, 60]", False),
        (CUP, 'at_rest = "offset"', False),
        # Intervals do not count, nor what is the default anyway, nor where a converter is plugged in.
        (CUP, "interval_s = 10", True),
        (CUP, 'at_rest = "zero"', True),
        (BARO, "divider = 2", False),
        (BARO, "divider = 1", True),
        (BARO, "slope = 21.79", True),
        (BARO, "slope = 22", False),
        (BARO, 'adc = { gain = "4.096V" }', False),
        (BARO, 'adc = { gain = "6.144V" }', True),
        (BARO, "adc = { input = 1, address = 0x49 }", True),
        (SUN, 'adc = { gain = "0.256V" }', True),
        (SUN, 'adc = { gain = "0.512V" }', False),
        (DHT, 'model = "DHT11"', False),
        (GPS, 'host = "10.0.0.1"', True),
        (GPS, "latitude = 27.8\nlongitude = 85.5", False),
    ],
)
def test_a_further_key_changes_the_name_where_it_changes_the_value(
    tmp_path: Path, text: str, more: str, same: bool
) -> None:
    assert (cal(tmp_path, f"{text}{more}\n") == cal(tmp_path, text)) is same


IIO = """
[[sensor]]
name = "shed"
driver = "iio"
device = "bme280"
channels = [
  { quantity = "temperature", attribute = "in_temp" },
  { quantity = "pressure", attribute = "in_pressure", slope = 1.001, offset = 0.02, min = 50 },
]
"""


def test_channels_with_tables_of_their_own_have_calibrations_of_their_own(tmp_path: Path) -> None:
    temperature, pressure = records(tmp_path, IIO)
    assert (temperature.slope, temperature.offset) == (None, 0.0)
    assert (pressure.slope, pressure.offset, pressure.range[0]) == (1.001, 0.02, 50.0)
    assert pressure.settings == {"device": "bme280", "attribute": "in_pressure", "min": 50.0}
    same, other = records(tmp_path, IIO.replace("slope = 1.001", "slope = 1.002"))
    assert (same.cal, other.cal != pressure.cal) == (temperature.cal, True)
    moved = records(tmp_path, IIO.replace('"bme280"', '"bme280"\nwhere = "1-0077"'))
    assert [each.cal for each in moved] == [temperature.cal, pressure.cal]


@dataclass(frozen=True)
class Strange:
    """Options that a user's own driver might have."""

    table: tuple[str, ...] = ("x" * 500,)
    text: str = "a\nb"
    nothing: str | None = None
    count: int = 3
    whether: bool = True


def test_options_of_any_kind_make_a_record_that_can_be_read() -> None:
    channel = Channel("wind_speed", "m/s", "Hz", 0, 75)

    def made(options: Strange) -> ChannelRecord:
        return configured("m", SensorConfig("a", "hall-anemometer", options=options), [channel])[0]

    record = made(Strange())
    assert parse_channel(encode_channel(record)) == record
    assert (record.settings["count"], record.settings["whether"]) == (3.0, True)
    assert str(record.settings["table"]).startswith("sha256:")
    assert made(Strange(table=("x" * 501,))).cal != record.cal != made(Strange(text="a\tb")).cal


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (0.1, Accuracy(0.1, None)),
        (2, Accuracy(2.0, None)),
        (" 2% ", Accuracy(None, 2.0)),
        ("40 + 5 %", Accuracy(40.0, 5.0)),
        ("0.3", Accuracy(0.3, None)),
    ],
)
def test_an_accuracy_is_in_the_unit_in_percent_or_both(given: object, meant: Accuracy) -> None:
    assert accuracy(given) == meant


@pytest.mark.parametrize("given", ["", "%", "5 m/s", "-1", "1e3", "+ 5%", "5% + 40", True, None, [1], "²", 0])
def test_what_is_no_accuracy(given: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        accuracy(given)


def config(**fields: Any) -> SensorConfig:
    return SensorConfig("cup", "hall-anemometer", **fields)


@pytest.mark.parametrize(
    ("calibrated", "months", "last"),
    [
        (date(2026, 3, 12), 24, date(2028, 3, 12)),
        (date(2026, 1, 31), 1, date(2026, 2, 28)),
        (date(2027, 12, 31), 2, date(2028, 2, 29)),
        (date(2026, 12, 31), 12, date(2027, 12, 31)),
        (date(2026, 10, 31), 1, date(2026, 11, 30)),
    ],
)
def test_months_end_where_the_month_does(calibrated: date, months: int, last: date) -> None:
    assert expiry_date(config(calibrated=calibrated, recalibrate_months=months)) == last


def test_the_calendars_last_day_and_none_at_all_never_expire() -> None:
    assert expiry_reasons(date.max, 253_402_300_799_999_999) == ()
    assert expiry_reasons(None, 1_795_219_200_000_000) == ()


@given(st.dates())
def test_every_last_day_ends_at_the_next_midnight(last: date) -> None:
    end_us = (last.toordinal() - date(1970, 1, 1).toordinal() + 1) * DAY_US
    found = [expiry_reasons(last, time_us) for time_us in (end_us - 1, end_us)]
    assert found == [(), ("CALIBRATION_EXPIRED",)]


@pytest.mark.parametrize(
    ("last", "value", "expected"),
    [
        ("2026-11-20", 7.235, (3, ("CALIBRATION_EXPIRED",))),
        ("2026-11-21", 7.235, (1, ())),
        ("2026-11-20", None, (9, ("READ_ERROR",))),
        ("soon", 7.235, (1, ())),
        (20, 7.235, (1, ())),
    ],
)
def test_a_reading_is_flagged_when_its_time_is_known(
    last: object, value: float | None, expected: tuple[int, tuple[str, ...]]
) -> None:
    held = replace(
        UNREPAIRED,
        value=value,
        quality=3 if value is not None else 9,
        reasons=("CLOCK_UNSYNCED",) if value is not None else ("READ_ERROR", "CLOCK_UNSYNCED"),
        extra={"cal_expires": last, "other": 1},
    )
    # Boot at 2026-11-21T07:35:00Z, the reading 7.25 s later.
    released = repaired(Record("t", b"k", encode_reading(held), ()), 1_795_246_500_000)
    reading = parse_reading(released.value)
    assert (reading.quality, reading.reasons) == expected
    assert reading.extra == {"other": 1}
    # A second copy leaves as the first did.
    assert repaired(Record("t", b"k", encode_reading(held), ()), 1_795_246_500_000) == released


def warnings(directory: Path, text: str, board: str = "") -> list[tuple[str, str]]:
    path = directory / "gateway.toml"
    path.write_text(HEAD + board + text)
    found, problems = check(path)
    assert found is not None, problems
    return [(problem.key.rpartition(".")[2], problem.message) for problem in problems]


# The day is 2026-11-21 here (tests/conftest.py).
@pytest.mark.parametrize(
    ("more", "key", "message"),
    [
        ("expires = 2026-11-20", "expires", "expired on 2026-11-20: readings are flagged suspect"),
        ("expires = 2026-11-21", "expires", "expires on 2026-11-21, in 0 days"),
        ("expires = 2027-01-20", "expires", "expires on 2027-01-20, in 60 days"),
        ("recalibrate_months = 8", "recalibrate_months", "expired on 2026-11-12"),
    ],
)
def test_a_calibration_that_ends_is_reported(tmp_path: Path, more: str, key: str, message: str) -> None:
    ((found_key, found),) = warnings(tmp_path, CUP + more + "\n")
    assert found_key == key
    assert message in found
    simulated = '[board]\nkind = "simulated"\n'
    assert warnings(tmp_path, CUP + more + "\n", simulated) == []


@pytest.mark.parametrize("more", ["expires = 2027-01-21", "recalibrate_months = 24", ""])
def test_one_that_counts_is_not(tmp_path: Path, more: str) -> None:
    assert warnings(tmp_path, CUP + more + "\n") == []


def test_what_a_cup_should_have(tmp_path: Path) -> None:
    bare = '[[sensor]]\nname = "cup"\ndriver = "hall-anemometer"\npin = 17\nslope = 0.765\n'
    ((key, message),) = warnings(tmp_path, bare)
    assert key == "name"
    assert message.startswith("has no serial and no calibrated: IEC 61400-12-1 and MEASNET want each cup")
    old = CUP.replace("2026-03-12", "2024-11-20")
    ((key, message),) = warnings(tmp_path, old)
    assert (key, message.partition(":")[0]) == ("calibrated", "is over 24 months ago")
    assert warnings(tmp_path, old + "recalibrate_months = 36\n") == []
    assert warnings(tmp_path, CUP.replace("2026-03-12", "2024-11-21")) == []
    ((key, message),) = warnings(tmp_path, CUP.replace("2026-03-12", "2026-11-22"))
    assert (key, message) == ("calibrated", "2026-11-22 lies in the future")
    assert warnings(tmp_path, BARO) == []


def test_two_instruments_with_one_number(tmp_path: Path) -> None:
    twin = CUP.replace('"cup"', '"twin"').replace("pin = 17", "pin = 27")
    ((key, message),) = warnings(tmp_path, CUP + twin)
    assert (key, message) == ("serial", 'is "cup"\'s as well: two instruments with one number')
    other_model = twin + 'model = "Thies First Class"\nat_rest = "zero"\n'
    assert "serial" not in [key for key, _ in warnings(tmp_path, CUP + other_model)]


@pytest.mark.parametrize(
    ("height", "boom", "reported"),
    [
        (315, 50, True),
        (50, 315, False),
        (200, 250, False),
        (180, 90, False),
        (135, 50, True),
        (50, 135, False),
    ],
)
def test_height_and_boom_that_are_probably_swapped(
    tmp_path: Path, height: int, boom: int, reported: bool
) -> None:
    twin = CUP.replace('"cup"', '"twin"').replace("pin = 17", "pin = 27").replace("23456", "23457")
    placed = CUP + f'height_m = {height}\nboom_deg = {boom}\npair = "twin"\n'
    found = warnings(tmp_path, placed + twin + "height_m = 50\nboom_deg = 135\n")
    assert [key for key, _ in found if key != "pair"] == (["height_m"] if reported else [])
