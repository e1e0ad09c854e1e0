from __future__ import annotations

from drivers.registry import DRIVERS, driver_type


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
