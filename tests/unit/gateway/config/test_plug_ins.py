"""Drivers of packages in a config: whatever is wrong with one is its sensor's problem, with file and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drivers.interface import BoardError, ReadError
from gateway.config import check
from gateway.sampling.sampler import make_driver
from tests.support.masts import simulated
from tests.unit.drivers.plug_ins import DRIVER, Packages

MAST = """\
[gateway]
id = "mast-07"
[[sensor]]
name = "shed"
driver = "acme-thermometer"
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    return Packages(tmp_path / "packages", monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.toml"
    path.write_text(MAST)
    return path


def problems(path: Path) -> list[str]:
    return [str(problem).removeprefix(str(path.parent) + "/") for problem in check(path)[1]]


def test_its_keys_are_checked_like_a_built_in_drivers(packages: Packages, path: Path) -> None:
    packages.install("acme-drivers", "acme-thermometer = acme", acme=DRIVER)
    config, found = check(path)
    assert found == ()
    assert config is not None
    assert config.sensors[0].options.level == 21.5
    path.write_text(MAST + 'level = "high"\nlevl = 3\ninterval_s = 0.5\n')
    assert problems(path) == [
        'gateway.toml:6: sensor["shed"].level: must be a number, not "high"',
        'gateway.toml:7: sensor["shed"].levl: is not a known key of acme-thermometer (did you mean "level"?)',
        'gateway.toml:8: sensor["shed"].interval_s: must be at least 1 s for acme-thermometer, not 0.5',
    ]


def test_its_options_may_check_themselves(packages: Packages, path: Path) -> None:
    own = "    def __post_init__(self) -> None:\n        if self.level > 3: raise ValueError('is too high')\n"
    found = re.search(r"^    level: .*\n", DRIVER, re.MULTILINE)
    assert found is not None
    packages.install("acme-drivers", "acme-thermometer = acme", acme=DRIVER.replace(found[0], found[0] + own))
    path.write_text(MAST + "level = 4.5\n")
    assert problems(path) == ['gateway.toml:3: sensor["shed"]: is too high']
    path.write_text(MAST + "level = 2.5\n")
    assert problems(path) == []


def test_a_board_that_is_none_needs_an_emulation(packages: Packages, path: Path) -> None:
    packages.install("acme-drivers", "acme-thermometer = acme", acme=DRIVER)
    path.write_text('board = { kind = "simulated" }\n' + MAST)
    assert problems(path) == [
        'gateway.toml:6: sensor["shed"].driver: driver "acme-thermometer" has no emulation:'
        " it needs a real board"
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("import Channel,", "import Channels,"), "is broken: ImportError"),
        (
            ('"temperature", "Cel", "Cel"', '"temperature", "degF", "Cel"'),
            '"temperature" in "degF", which is in "Cel"',
        ),
        (
            ('"temperature", "Cel", "Cel"', '"rain", "mm", "mm"'),
            'measures "rain" in "mm", which isn\'t built in: describe it in a [[quantity]]',
        ),
        (("-40.0, 85.0", "-40.0, float('inf')"), "range isn't a lower and a higher number"),
        (("-40.0, 85.0", "85.0, -40.0"), "range isn't a lower and a higher number"),
        (("level: float", "serial: float"), "has options that every sensor has: serial"),
        (("level: float", "level: Degrees"), "is broken: NameError"),
        (("level: float", "level: object()"), "is broken: "),
        (("1.0, Thermometer)", "1.0, Thermometer, lambda options: 1 / 0)"), "ZeroDivisionError"),
        (("Thermometer.channels, 1.0", "lambda options: options.gone, 1.0"), "AttributeError"),
        (("1.0, Thermometer)", "1.0, Thermometer, settle=lambda o, site: o.gone)"), "AttributeError"),
    ],
)
def test_whatever_is_wrong_with_it_is_a_problem_of_its_sensor(
    packages: Packages, path: Path, change: tuple[str, str], problem: str
) -> None:
    assert change[0] in DRIVER
    packages.install("acme-drivers", "acme-thermometer = acme", acme=DRIVER.replace(*change))
    [found] = problems(path)
    assert found.startswith('gateway.toml:5: sensor["shed"].driver: ')
    assert problem in found


def test_one_that_is_not_used_is_not_loaded(packages: Packages, path: Path) -> None:
    packages.install("acme-drivers", "acme-thermometer = acme", acme="import no_such_module")
    path.write_text('gateway = { id = "mast-07" }\nsensor = [{ name = "baro", driver = "bp20" }]\n')
    assert problems(path) == []


def test_one_that_cannot_be_made_is_reported_instead_of_reading(packages: Packages, path: Path) -> None:
    broken = DRIVER.replace("self.options = options", "self.options = options.gone")
    packages.install("acme-drivers", "acme-thermometer = acme", acme=broken)
    config, _ = check(path)
    assert config is not None
    driver = make_driver(config.sensors[0], simulated([]))
    assert [channel.quantity for channel in driver.channels] == ["temperature"]
    with pytest.raises(BoardError, match="driver 'acme-thermometer' is broken: AttributeError"):
        driver.start()
    with pytest.raises(ReadError, match="AttributeError"):
        driver.read()
    driver.stop()
