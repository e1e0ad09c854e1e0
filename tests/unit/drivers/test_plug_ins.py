"""Drivers of installed packages: found, loaded when named, and refused with a reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from drivers.registry import (
    DRIVERS,
    BrokenDriverError,
    UnknownDriverError,
    driver_names,
    driver_type,
    guarded,
)
from tests.support.masts import fitted, simulated
from tests.unit.drivers.plug_ins import DRIVER, Packages


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    return Packages(tmp_path, monkeypatch)


def test_a_package_brings_a_driver(packages: Packages) -> None:
    packages.install("acme-drivers", "acme-thermometer = acme", acme=DRIVER)
    assert driver_names() == (*DRIVERS, "acme-thermometer")
    assert "acme" not in sys.modules
    known = driver_type("acme-thermometer")
    assert known.name == "acme-thermometer"
    sensor = known.make(simulated([]), known.options(level=3.5))
    sensor.start()
    assert [one.value for one in sensor.read()] == [3.5]


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def broken(:", "SyntaxError"),
        ("", "acme of package 'acme-drivers' has no TYPE that is a DriverType"),
        ("TYPE = 'acme-thermometer'", "has no TYPE that is a DriverType"),
        (
            DRIVER.replace('DriverType("acme-thermometer"', 'DriverType("thermometer"'),
            "calls itself 'thermometer', its entry point 'acme-thermometer'",
        ),
        (DRIVER.replace('"acme-thermometer", Options', '"acme-thermometer", dict'), "must be a dataclass"),
    ],
)
def test_a_broken_one_is_reported_with_reason_and_package(
    packages: Packages, module: str, problem: str
) -> None:
    packages.install("acme-drivers", "acme-thermometer = acme", acme=module)
    with pytest.raises(BrokenDriverError) as caught:
        driver_type("acme-thermometer")
    assert problem in str(caught.value)
    assert "package 'acme-drivers'" in str(caught.value)
    # The others are none the worse for it.
    assert driver_type("dht11").name == "dht11"


def test_two_packages_with_one_name(packages: Packages) -> None:
    packages.install("acme-drivers", "acme-thermometer = acme", acme=DRIVER)
    packages.install("other-drivers", "acme-thermometer = other", other=DRIVER)
    with pytest.raises(BrokenDriverError, match=r"is offered by .*: uninstall one of them") as caught:
        driver_type("acme-thermometer")
    assert "acme of package 'acme-drivers'" in str(caught.value)
    assert "other of package 'other-drivers'" in str(caught.value)
    assert driver_names().count("acme-thermometer") == 1


def test_a_package_cannot_take_a_built_in_name_away(packages: Packages) -> None:
    packages.install("acme-drivers", "dht11 = acme", acme="raise RuntimeError('loaded')")
    assert driver_type("dht11").make.__module__ == "drivers.dht11"


def test_an_unknown_name_lists_packages_drivers_too(packages: Packages) -> None:
    packages.install("acme-drivers", "acme-thermometer = acme", acme=DRIVER)
    with pytest.raises(
        UnknownDriverError, match=r"no driver 'acme'; there are analog, bp20, .*, acme-thermometer"
    ):
        driver_type("acme")


def test_an_emulation_that_fails_leaves_the_others_their_hardware(packages: Packages) -> None:
    broken = DRIVER.replace("1.0, Thermometer)", "1.0, Thermometer, emulate=lambda bench, sensor: 1 / 0)")
    packages.install("acme-drivers", "acme-thermometer = acme", acme=broken)
    board = simulated([fitted("shed", "acme-thermometer"), fitted("baro", "bp20")])
    baro = driver_type("bp20").make(board, driver_type("bp20").options())
    baro.start()
    assert 60 < baro.read()[0].value < 105


def test_a_built_in_drivers_defect_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError), guarded("dht11"):
        _ = 1 / 0
