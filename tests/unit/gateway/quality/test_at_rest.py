"""A cup whose transfer function's offset is reported at rest, and the quality tests' idea of rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivers.interface import Channel
from drivers.registry import driver_type
from gateway.config import check
from gateway.quality.minute_means import MinuteMeans
from gateway.quality.qartod import QartodTests

SECOND_NS = 1_000_000_000
CUP = (
    '[gateway]\nid = "m"\n[board]\nkind = "simulated"\n[[sensor]]\nname = "cup"\ndriver = "hall-anemometer"\n'
    "pin = 17\nslope = 0.6\n"
)


@pytest.mark.parametrize(
    ("keys", "warned", "flagged"),
    [
        ('offset = 0.7\nat_rest = "offset"\n', True, True),
        ('offset = 0.7\nat_rest = "offset"\nquality = { rest_below = 0.7 }\n', False, False),
        ('offset = 0.7\nat_rest = "offset"\nquality = { off = ["flat"] }\n', False, False),
        ('offset = 0.5\nat_rest = "offset"\n', False, False),
        ("offset = 0.7\n", False, False),
    ],
)
def test_check_warns_of_exactly_the_calms_that_are_flagged(
    tmp_path: Path, keys: str, warned: bool, flagged: bool
) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(CUP + keys)
    config, problems = check(path)
    assert config is not None
    assert [problem.message.startswith("at rest it reads 0.7") for problem in problems] == [True] * warned
    (cup,) = config.sensors
    at_rest = driver_type(cup.driver).rests_at(cup.options)
    assert at_rest is not None
    judge = QartodTests(cup, Channel("wind_speed", "m/s", "Hz", 0.0, 75.0), MinuteMeans(), accumulates=True)
    calm = [judge.test(second * SECOND_NS, at_rest).reasons for second in range(3_600)]
    assert any(calm) is flagged
