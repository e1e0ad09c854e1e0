"""A cup whose transfer function's offset is reported at rest, and the quality tests' idea of rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivers.interface import Channel
from drivers.registry import driver_type
from gateway.config import check
from gateway.quality.qartod import MinuteMeans, QartodTests
from tests.support.config import Table, config_text, cup, write_config

SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    ("keys", "warned", "flagged"),
    [
        ({"offset": 0.7, "at_rest": "offset"}, True, True),
        ({"offset": 0.7, "at_rest": "offset", "quality": {"rest_below": 0.7}}, False, False),
        ({"offset": 0.7, "at_rest": "offset", "quality": {"off": ["flat"]}}, False, False),
        ({"offset": 0.5, "at_rest": "offset"}, False, False),
        ({"offset": 0.7}, False, False),
    ],
)
def test_check_warns_of_exactly_the_calms_that_are_flagged(
    tmp_path: Path, keys: Table, warned: bool, flagged: bool
) -> None:
    config, problems = check(write_config(tmp_path, config_text(cup(slope=0.6, **keys))))
    assert config is not None
    assert [problem.message.startswith("at rest it reads 0.7") for problem in problems] == [True] * warned
    (sensor,) = config.sensors
    at_rest = driver_type(sensor.driver).rests_at(sensor.options)
    assert at_rest is not None
    judge = QartodTests(
        sensor, Channel("wind_speed", "m/s", "Hz", 0.0, 75.0), MinuteMeans(), accumulates=True
    )
    calm = [judge.test(second * SECOND_NS, at_rest).reasons for second in range(3_600)]
    assert any(calm) is flagged
