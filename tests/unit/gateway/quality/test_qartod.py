"""The roll-up of a channel's tests, and that a sampler's readings carry it."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path

import pytest

from cloud.wire.reading_records import FAIL, GOOD, NOT_EVALUATED, SUSPECT, Reading
from drivers.interface import Channel
from gateway.config import Config, QualityRules, SensorConfig, load
from gateway.config.quality import DEFAULTS
from gateway.daemon.reload import Names, compare
from gateway.quality.qartod import Flagged, MinuteMeans, QartodTests
from tests.support.clocks import SteppingClock
from tests.support.config import changed, write_config
from tests.unit.gateway.sampling.test_sampler import T0_NS, ScriptedDriver, answer, sampler

S = 1_000_000_000
TEMPERATURE = Channel("temperature", "Cel", "Cel", 0.0, 50.0)
UNBOUNDED = replace(TEMPERATURE, lower=-math.inf, upper=math.inf)
RULES = QualityRules(site_range=(5.0, 40.0), max_step=3.0, flat_s=60.0)


def judge(rules: QualityRules = RULES, channel: Channel = TEMPERATURE) -> QartodTests:
    sensor = SensorConfig("dht", "dht11", 1.0, quality={"temperature": rules})
    return QartodTests(sensor, channel, MinuteMeans(), accumulates=False)


@pytest.mark.parametrize(
    ("value", "held", "expected"),
    [
        (20.0, (), Flagged(GOOD, ())),
        (4.9, (), Flagged(SUSPECT, ("UNDER_RANGE",))),
        (40.1, (), Flagged(SUSPECT, ("OVER_RANGE",))),
        (-0.1, (), Flagged(FAIL, ("UNDER_RANGE",))),
        (50.1, (), Flagged(FAIL, ("OVER_RANGE",))),
        (20.0, ("NOISY",), Flagged(SUSPECT, ("NOISY",))),
        (20.0, ("OVER_RANGE",), Flagged(FAIL, ("OVER_RANGE",))),
        (20.0, ("ODD",), Flagged(SUSPECT, ("ODD",))),
        (20.0, ("READ_ERROR",), Flagged(FAIL, ("READ_ERROR",))),
        (45.0, ("CALIBRATION_EXPIRED",), Flagged(SUSPECT, ("CALIBRATION_EXPIRED", "OVER_RANGE"))),
    ],
)
def test_the_worst_wins(value: float, held: tuple[str, ...], expected: Flagged) -> None:
    assert judge().test(0, value, held) == expected


def test_a_failed_value_is_no_level_to_compare_with() -> None:
    one = judge()
    one.test(0, 20.0)
    assert one.test(S, 60.0).reasons == ("OVER_RANGE",)
    assert one.test(2 * S, 20.0) == Flagged(GOOD, ())


def test_without_any_test_nothing_is_evaluated() -> None:
    assert judge(QualityRules(), UNBOUNDED).test(0, 1e6) == Flagged(NOT_EVALUATED, ())
    assert judge(QualityRules(), TEMPERATURE).test(0, 20.0) == Flagged(GOOD, ())
    assert judge(QualityRules(max_step=1.0), UNBOUNDED).test(0, 20.0) == Flagged(GOOD, ())
    # No other channel to compare with.
    alone = QualityRules(pair_absolute=1.0, pair_window_s=600.0)
    assert judge(alone, UNBOUNDED).test(0, 20.0) == Flagged(NOT_EVALUATED, ())


TEXT = """
[gateway]
id = "mast-07"
elevation_m = 2100
[quality.wind_speed]
max_step = 12.0
[quality.temperature]
off = ["spike"]
[[sensor]]
name = "cup"
driver = "hall-anemometer"
pin = 17
slope = 0.765
[[sensor]]
name = "fast"
driver = "hall-anemometer"
pin = 27
slope = 0.765
quality = { max_step = 8.0, off = ["flat"] }
[[sensor]]
name = "dht"
driver = "dht11"
pin = 4
quality = { humidity = { site_range = [5, 100] } }
[[sensor]]
name = "baro"
driver = "bp20"
"""


def config(directory: Path, *changes: tuple[str, str]) -> Config:
    return load(write_config(directory, changed(TEXT, changes)))


def test_a_sensor_s_own_key_comes_before_the_section_s_and_that_before_the_default(tmp_path: Path) -> None:
    cup, fast, dht, baro = config(tmp_path).sensors
    assert (cup.quality["wind_speed"].max_step, cup.quality["wind_speed"].flat_s) == (12.0, 600.0)
    assert (fast.quality["wind_speed"].max_step, fast.quality["wind_speed"].flat_s) == (8.0, None)
    assert (fast.quality["wind_speed"].spike, fast.quality["wind_speed"].site_range) == (6.0, (0.0, 60.0))
    assert (dht.quality["temperature"].spike, dht.quality["temperature"].max_step) == (None, 4.0)
    assert dht.quality["humidity"].site_range == (5.0, 100.0)
    # The standard atmosphere at 2,100 m has 78.51 kPa.
    assert baro.quality["pressure"].site_range == (72.23, 82.44)


def test_a_changed_rule_reaches_the_channels_it_is_for_and_restarts_no_sampler(tmp_path: Path) -> None:
    old = config(tmp_path)
    changes = compare(old, config(tmp_path, ("max_step = 12.0", "max_step = 11.0")))
    # The other cup has a max_step of its own.
    assert (changes.sensors, changes.quality, changes.restart) == (Names(), ("cup",), ())
    assert changes.summary()["settings"] == ["sensor.cup.quality"]
    changes = compare(old, config(tmp_path, ("site_range = [5, 100]", "site_range = [6, 100]")))
    assert (changes.sensors, changes.quality) == (Names(), ("dht",))
    changes = compare(old, config(tmp_path, ("max_step = 12.0", "max_step = 11.0"), ("pin = 17", "pin = 22")))
    assert (changes.sensors, changes.quality) == (Names(changed=("cup",)), ())
    changes = compare(old, config(tmp_path, ("elevation_m = 2100", "elevation_m = 2000")))
    assert (changes.sensors, changes.quality, changes.settings) == (
        Names(),
        ("baro",),
        (("gateway", "elevation_m"),),
    )


def test_a_clock_that_is_set_is_no_gap_and_an_unsynced_reading_is_suspect_at_least() -> None:
    jump_ns = 3_600_000_000_000
    clock = SteppingClock(T0_NS, T0_NS + 5 * S, synced=False, sets=[(11_500_000_000, jump_ns, True)])
    driver = ScriptedDriver(clock, [answer(5.0), answer(5.0), answer(7.0), answer(5.0), answer(5.0)])
    readings: list[Reading] = []
    station = sampler(driver, readings)
    station.set_quality({"wind_speed": QualityRules(max_step=1.0)})
    station.run()
    assert [(reading.clock, reading.quality, reading.reasons) for reading in readings[:3]] == [
        ("unsynced", SUSPECT, ("CLOCK_UNSYNCED",)),
        ("unsynced", SUSPECT, ("CLOCK_UNSYNCED",)),
        ("synced", SUSPECT, ("STEP_TOO_HIGH",)),
    ]


def test_the_documentation_has_every_default() -> None:
    text = (Path(__file__).parents[4] / "docs" / "quality.md").read_text()
    quantities = list(DEFAULTS)
    assert "| Key | " + " | ".join(f"`{quantity}`" for quantity in quantities) + " |" in text
    for key in (field.name for field in fields(QualityRules) if field.name != "off"):
        cells = " | ".join(_cell(getattr(DEFAULTS[quantity], key)) for quantity in quantities)
        assert f"| `{key}` | {cells} |" in text


def _cell(default: tuple[float, float] | float | None) -> str:
    if default is None:
        return "—"
    return f"[{default[0]:g}, {default[1]:g}]" if isinstance(default, tuple) else f"{default:.10g}"
