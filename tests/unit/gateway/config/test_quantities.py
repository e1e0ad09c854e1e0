"""A quantity of the config's own: for sensors, forwards and quality tests as those that are built in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cloud.wire.quantities import Quantity
from drivers.interface import Channel, Measurement
from gateway.calibration.record import configured
from gateway.clock.system_clock import SystemClock
from gateway.config import Config, load
from gateway.config.kafka import wanted_topics
from gateway.sampling.readings import ReadingFactory, RunContext
from gateway.sampling.schedule import Period
from gateway.sequences import Sequences

LEVEL = Quantity("water_level", "m", "linear", -1.0, 12.0)
FLOW = Quantity("flow", "m3/h", "accumulated", 0.0, 400.0)
TEXT = """\
[gateway]
id = "mast-07"
[[quantity]]
name = "water_level"
unit = "m"
range = [-1, 12]
[[quantity]]
name = "flow"
unit = "m3/h"
kind = "accumulated"
range = [0, 400]
[quality.water_level]
max_step = 0.5
[[sensor]]
name = "river"
driver = "iio"
device = "ads1015"
channels = [{ quantity = "water_level", attribute = "in_voltage0", slope = 2.5 }]
[[forward]]
filter = "pump/flow"
payload = "number"
quantity = "flow"
max = 90
[[forward]]
filter = "pump/all"
payload = "json"
readings = [{ quantity = "flow", path = "f" }, { quantity = "temperature", path = "t" }]
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "gateway.toml"
    path.write_text(TEXT)
    return load(path)


def test_a_sensor_measures_it_with_its_unit_range_and_tests(config: Config) -> None:
    (river,) = config.sensors
    assert river.channels == (Channel("water_level", "m", "V", -1.0, 12.0),)
    assert river.quality["water_level"].max_step == 0.5
    assert river.own == {"water_level": LEVEL}


@pytest.mark.parametrize(
    "change", [('unit = "m"', 'unit = "cm"'), ("range = [-1", 'kind = "state"\nrange = [-1'), ("[-1,", "[0,")]
)
def test_redefined_it_makes_another_calibration(
    config: Config, tmp_path: Path, change: tuple[str, str]
) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(TEXT.replace(*change))
    cals = {
        record.cal
        for (river,) in (config.sensors, load(path).sensors)
        for record in configured("mast-07", river, river.channels)
    }
    assert len(cals) == 2


def test_a_forwards_range_is_its_quantitys_as_far_as_it_has_none(config: Config) -> None:
    number, several = config.forwards
    assert (number.min, number.max) == (0.0, 90.0)
    assert several.readings is not None
    assert [(each.min, each.max) for each in several.readings] == [(0.0, 400.0), (None, None)]
    assert {"mqtt.water_level", "mqtt.flow", "mqtt.temperature"} <= wanted_topics(config)


def test_a_reload_takes_a_changed_one_over(config: Config, tmp_path: Path) -> None:
    from gateway.daemon.reload import compare

    path = tmp_path / "gateway.toml"
    path.write_text(TEXT.replace("range = [-1, 12]", "range = [0, 12]"))
    changes = compare(config, load(path))
    assert (changes.sensors.changed, changes.settings, changes.restart) == (("river",), (("quantity",),), ())


class Gauge:
    """Stands for a driver of the river's sensor."""

    accumulates = False

    def __init__(self, channel: Channel) -> None:
        self.channels = (channel,)

    def start(self) -> None:
        pass

    def read(self) -> tuple[Measurement, ...]:
        return ()

    def stop(self) -> None:
        pass


def test_its_readings_have_the_kind_and_lie_in_its_range_or_fail(config: Config) -> None:
    (river,) = config.sensors
    (channel,) = river.channels
    context = RunContext("mast-07", "run", SystemClock("always"), Sequences("run"), lambda *_: None, "boot")
    factory = ReadingFactory(river, Gauge(channel), context, 1_000_000_000)
    high, low = (
        factory.make(channel, Period(at_ns, 0, synced=True), Measurement("water_level", value, 2.0))
        for at_ns, value in ((0, 5.0), (3_600_000_000_000, -1.5))
    )
    # Readers take it for a linear one.
    assert (high.channel, high.unit, high.quality, high.extra) == ("river.water_level", "m", 1, None)
    assert (low.quality, low.reasons) == (4, ("UNDER_RANGE",))
    turned = replace(river, own={"water_level": replace(LEVEL, kind="direction")})
    factory = ReadingFactory(turned, Gauge(channel), context, 1_000_000_000)
    reading = factory.make(channel, Period(0, 0, synced=True), "READ_ERROR")
    assert (reading.seq, reading.extra) == (3, {"quantity_kind": "direction"})
