from __future__ import annotations

from typing import Any

import pydantic
import pytest

from drivers.boards.registry import BOARDS
from drivers.registry import DRIVERS, driver_type


def test_shortest_intervals_are_the_datasheets() -> None:
    assert driver_type("dht11").min_interval_s == 2
    assert driver_type("scd4x").min_interval_s == 5


def test_sensor_ranges() -> None:
    ranges = {
        f"{name}.{channel.quantity}": (channel.lower, channel.upper, channel.unit)
        for name, channels in ((name, driver_type(name).channels) for name in DRIVERS)
        if not callable(channels)
        for channel in channels
        if name != "gpsd"
    }
    assert ranges == {
        "bp20.pressure": (15, 115, "kPa"),
        "dht11.temperature": (0, 50, "Cel"),
        "dht11.humidity": (20, 90, "%RH"),
        "hall-anemometer.wind_speed": (0, 75, "m/s"),
        "pyranometer.irradiance": (-10, 2000, "W/m2"),
        "wind-vane.wind_direction": (0, 360, "deg"),
    }


def validated(options: type[Any], given: dict[str, object]) -> Any:
    return pydantic.TypeAdapter(options).validate_python(given)


def test_options_are_validated_from_their_annotations() -> None:
    bp20 = driver_type("bp20").options
    options = validated(bp20, {"adc": {"address": 0x49, "input": 3, "gain": "4.096V"}})
    assert (options.adc.address, options.adc.input, options.adc.gain) == (0x49, 3, "4.096V")
    assert (options.slope, options.offset, options.divider) == (21.79, 10.55, 1.0)
    sun = validated(driver_type("pyranometer").options, {})
    assert (sun.adc.input, sun.adc.gain) == ("2-3", "0.256V")
    cup = validated(driver_type("hall-anemometer").options, {"pin": 17, "slope": 0.765, "offset": 0.35})
    assert cup.at_rest == "zero"


@pytest.mark.parametrize(
    ("name", "given", "where"),
    [
        ("bp20", {"adc": {"address": 0x47}}, ("adc", "address")),
        ("bp20", {"adc": {"gain": "5V"}}, ("adc", "gain")),
        ("bp20", {"adc": {"input": 4}}, ("adc", "input")),
        ("hall-anemometer", {"pin": 28, "slope": 0.765}, ("pin",)),
        ("hall-anemometer", {"pin": 17, "slope": 0}, ("slope",)),
        ("hall-anemometer", {"pin": 17}, ("slope",)),
        ("hall-anemometer", {"pin": 17, "slope": 1, "at_rest": "still"}, ("at_rest",)),
        ("dht11", {"pin": -1}, ("pin",)),
        ("gpsd", {"port": 0}, ("port",)),
    ],
)
def test_values_out_of_bounds_are_refused(
    name: str, given: dict[str, object], where: tuple[str, ...]
) -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        validated(driver_type(name).options, given)
    # A union names its branches behind the key.
    assert all(problem["loc"][: len(where)] == where for problem in caught.value.errors())


def test_board_options_are_validated_from_their_annotations() -> None:
    replay = validated(
        BOARDS["replay"],
        {"file": "mast.csv", "speed": 60, "columns": {"a": "x", "b": {"column": "y", "scale": 0.1}}},
    )
    assert replay.speed == 60
    assert replay.columns["a"] == "x"
    assert (replay.columns["b"].column, replay.columns["b"].scale, replay.columns["b"].offset) == (
        "y",
        0.1,
        0,
    )
    with pytest.raises(pydantic.ValidationError):
        validated(BOARDS["replay"], {"file": "mast.csv", "speed": 0})
    assert validated(BOARDS["simulated"], {}).speed == 1
