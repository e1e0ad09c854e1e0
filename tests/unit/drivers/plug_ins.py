"""Packages with drivers as an installer leaves them: a module and a dist-info beside it, on sys.path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from drivers import registry


class Packages:
    """Installs packages for one test."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(registry, "_loaded", {})

    def install(self, package: str, entry_points: str, **modules: str) -> Path:
        """A package's site directory; modules by name, entry points as in ``entry_points.txt``."""
        site = self._directory / package
        information = site / f"{package.replace('-', '_')}-1.0.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[{registry.PLUG_INS}]\n{entry_points}\n")
        for name, text in modules.items():
            (site / f"{name}.py").write_text(text)
            self._monkeypatch.delitem(sys.modules, name, raising=False)
        self._monkeypatch.syspath_prepend(site)
        return site


DRIVER = """
from dataclasses import dataclass
from drivers.driver_type import DriverType
from drivers.interface import Channel, Measurement

@dataclass(frozen=True, slots=True)
class Options:
    level: float = 21.5

class Thermometer:
    channels = (Channel("temperature", "Cel", "Cel", -40.0, 85.0),)
    accumulates = False

    def __init__(self, board, options):
        self.options = options

    def start(self): pass
    def stop(self): pass

    def read(self):
        return (Measurement("temperature", self.options.level, self.options.level),)

TYPE = DriverType("acme-thermometer", Options, Thermometer.channels, 1.0, Thermometer)
"""
"""A driver that needs no hardware; its entry point is ``acme-thermometer = acme``."""
