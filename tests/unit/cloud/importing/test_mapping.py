"""Mappings: what each key means, and every mistake with its line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud.importing.mapping import load_mapping
from cloud.toml_problems import ConfigError
from tests.support.logger_files import MAPPING, SAMPLES, mapping_in

EXAMPLE = Path(__file__).parents[4] / "docs/examples/import.toml"


def problems(folder: Path, text: str) -> list[str]:
    """What is wrong, without the file's folder."""
    with pytest.raises(ConfigError) as error:
        load_mapping(mapping_in(folder, text))
    return str(error.value).replace(f"{folder}/", "").splitlines()


def test_the_example_is_one() -> None:
    mapping = load_mapping(EXAMPLE)
    assert mapping.site is not None
    assert (mapping.site.utc_offset, mapping.file.utc_offset, mapping.file.interval) == (60, 0, 600)
    assert [channel.name for channel in mapping.channels][-2:] == ["rain.precipitation", "battery.voltage"]
    assert mapping.channels[11].to_lake == pytest.approx((0.1, 0.0))


def test_scale_and_offset_come_before_the_unit(tmp_path: Path) -> None:
    text = MAPPING.replace('avg = "T"', 'avg = "T"\nunit = "degF"\nscale = 0.18\noffset = 32.0')
    slope, offset = load_mapping(mapping_in(tmp_path, text)).channels[1].to_lake
    # 250 tenths of a degree Celsius, by way of Fahrenheit.
    assert slope * 250 + offset == pytest.approx(25.0)


@pytest.mark.parametrize(
    ("was", "now", "wanted"),
    [
        ('avg = "V"', "avgg = 1", '15: channel[1].avgg: is not a known key (did you mean "avg"?)'),
        ("[file]", "[fiel]", '2: fiel: is not a known section (did you mean "file"?)'),
        ('stamps = "end"', "", "2: file.stamps: is required"),
        ('"10m"', '"7m"', "6: file.interval: must divide a day into whole seconds, such as 10m"),
        ('"10m"', "10", '6: file.interval: must be a time such as "10m", in quotes, not 10'),
        ('scan = "1s"', "", "2: file.scan: is missing: how often the logger samples"),
        ('"+01:00"', '"CET"', "9: file.utc_offset: must be hours and minutes ahead of UTC such as"),
        ('"+01:00"', '"+01:00"\nthousands = "."', "10: file.thousands: is the decimal sign too"),
        ('"old-07"', '"Old 07"', "3: file.gateway: must be 1 to 63 of a-z, 0-9 and -,"),
        (
            '"km/h"',
            '"ell"',
            "14: channel[1].unit: wind_speed is in m/s, not ell; known are m/s, km/h, kn, mph; "
            "or leave it out and give scale and offset",
        ),
        (
            '"wind_speed"\nunit = "km/h"',
            '"wind"',
            "11: channel[1].unit: is missing: wind is not a quantity that is built in",
        ),
        ('avg = "T"', 'max = "T"', "20: channel[2].avg: is missing: the column of the means"),
        ('"T"', '"T"\nsum = "P"', "24: channel[2].sum: has no meaning of temperature (linear)"),
        ('"T"', '"T"\npair = "no"', "24: channel[2].pair: no is not the sensor of another channel"),
        (
            'sensor = "air"\nquantity = "temperature"',
            'sensor = "cup"\nquantity = "wind_speed"',
            "21: channel[2].sensor: cup.wind_speed is mapped twice (the first: line 12)",
        ),
        ('"T"', '"T"\nscale = 0.0', "24: channel[2].scale: must not be 0"),
        ('time = "Time"', "time = 3", "5: file.time"),
        (
            'time = "Time"',
            'time = "Time"\ntime_format = "%Y %H"',
            "6: file.time_format: has no day of the year",
        ),
    ],
)
def test_a_mistake_is_named_with_line_key_and_remedy(tmp_path: Path, was: str, now: str, wanted: str) -> None:
    assert was in MAPPING
    found = problems(tmp_path, MAPPING.replace(was, now, 1))
    assert any(each.startswith(f"mapping.toml:{wanted}") for each in found), found


def test_samples_have_no_statistics(tmp_path: Path) -> None:
    assert problems(tmp_path, SAMPLES + 'sd = "Vsd"\n') == [
        "mapping.toml:15: channel[1].sd: has no meaning in a file of single samples"
    ]
    assert problems(tmp_path, "") == [
        "mapping.toml:1: is empty: docs/examples/import.toml is one to begin with"
    ]


def test_a_calibration_is_named_by_what_determines_the_value(tmp_path: Path) -> None:
    cal = load_mapping(mapping_in(tmp_path)).channels[0].cal
    assert cal.startswith("import-")
    assert load_mapping(mapping_in(tmp_path, MAPPING.replace("Vmax", "Vm"))).channels[0].cal == cal
    assert load_mapping(mapping_in(tmp_path, MAPPING.replace("40.0", "41.0"))).channels[0].cal != cal
