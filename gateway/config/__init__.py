"""The config file: its keys (``model``), how it is read and checked (``loading``), ``problems``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.config.model import Config, ForwardConfig, SensorConfig, StatusConfig
from gateway.config.problems import ConfigError, KeyPath, Problem
from gateway.config.quality_rules import BIN_S, QualityRules

__all__ = [
    "BIN_S",
    "Config",
    "ConfigError",
    "ForwardConfig",
    "Problem",
    "QualityRules",
    "SensorConfig",
    "StatusConfig",
    "check",
    "load",
    "located",
]

_NO_OVERRIDES: Final[Mapping[str, object]] = {}


def load(path: Path, overrides: Mapping[str, object] = _NO_OVERRIDES) -> Config:
    """The config of a file, with ``overrides`` (dotted keys) put over it. Raises ConfigError."""
    config, problems = check(path, overrides, at_work=True)
    if config is None:
        raise ConfigError(problems)
    return config


def check(
    path: Path, overrides: Mapping[str, object] = _NO_OVERRIDES, *, at_work: bool = False
) -> tuple[Config | None, tuple[Problem, ...]]:
    """The config of a file, None where it has errors; and its problems, warnings included. Never raises.

    Secrets that can't be read are errors where the config is ``at_work``, else warnings.
    """
    from gateway.config.loading import load_file

    return load_file(path, overrides, at_work=at_work)


def located(
    path: Path, overrides: Mapping[str, object], messages: Mapping[KeyPath, str]
) -> tuple[Problem, ...]:
    """Errors found elsewhere, each with the place of its key in the file or the overrides. Never raises."""
    from gateway.config.loading import locate

    return locate(path, overrides, messages)
