"""The locks: the demo's is a part of the tests'; each pin has its hashes, and none an address."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[2]
RUN, DEV = "requirements.lock", "requirements-dev.lock"
WITHOUT_WHEEL = {"systemd-python"}
"""Not for the demo, which needs no journal: then it needs no compiler either."""


def hashes(lock: str) -> dict[str, list[str]]:
    """Each ``name==version`` of a lock."""
    pinned = re.split(r"\n(?=[a-z0-9])", (PROJECT / lock).read_text())[1:]
    return {pin.split()[0]: re.findall(r"--hash=(sha256:[0-9a-f]{64})", pin) for pin in pinned}


def names(lock: str) -> set[str]:
    return {pin.split("==")[0] for pin in hashes(lock)}


def named(*extras: str) -> set[str]:
    """Distributions that pyproject.toml names for these extras and without any."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for extra in extras for line in optional[extra])]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def test_the_demos_lock_is_a_part_of_the_tests_lock() -> None:
    run, dev = hashes(RUN), hashes(DEV)
    assert {pin: run[pin] for pin in run} == {pin: dev.get(pin) for pin in run}


def test_each_lock_has_what_it_is_for() -> None:
    demo = named("pi", "modbus", "spark", "analyst", "dashboard") - WITHOUT_WHEEL
    assert demo <= names(RUN)
    assert demo | named("pi", "anomaly", "dev") <= names(DEV)
    # Something of the demo's depends on packaging too.
    assert names(RUN) & (named("anomaly", "dev") | WITHOUT_WHEEL) - demo == {"packaging"}


def test_each_pin_has_a_hash_and_no_address() -> None:
    for lock in (RUN, DEV):
        assert "://" not in (PROJECT / lock).read_text()
        assert [pin for pin, found in hashes(lock).items() if not found] == []
