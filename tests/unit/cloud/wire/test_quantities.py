"""The table of quantities: what earlier versions' readers and other standards rely on."""

from __future__ import annotations

from cloud.wire.quantities import NAME, QUANTITIES, unit_problem

# IEA Wind Task 43, WRA data model: measurement_type_id and measurement_units_id, as far as they are used.
TYPES = {
    "air_temperature", "relative_humidity", "air_pressure", "wind_speed", "global_horizontal_irradiance",
    "other", "gps_coordinates", "wind_direction", "precipitation", "voltage", "current", "power", "energy",
    "temperature", "illuminance", "status",
}  # fmt: skip
UNITS = {"deg_C", "%", "m/s", "W/m^2", "deg", "mm", "V", "A", "W", "kWh", "lux", "-"}


def test_the_first_seven_keep_their_units() -> None:
    assert {name: QUANTITIES[name].unit for name in list(QUANTITIES)[:7]} == {
        "temperature": "Cel", "humidity": "%RH", "pressure": "kPa", "wind_speed": "m/s", "irradiance": "W/m2",
        "co2": "ppm", "location": "m",
    }  # fmt: skip


def test_each_is_complete() -> None:
    for name, each in QUANTITIES.items():
        assert name == each.name
        assert NAME.fullmatch(name)
        assert each.unit.isascii()
        assert each.lower < each.upper
    assert {each.measurement_type for each in QUANTITIES.values()} == TYPES
    assert {each.measurement_unit for each in QUANTITIES.values()} == UNITS | {None}


def test_units_are_checked_of_those_built_in_alone() -> None:
    assert unit_problem("energy", "kW.h") is None
    assert unit_problem("energy", "J") == "energy is in kW.h, not J"
    assert unit_problem("water_level", "ft") is None
