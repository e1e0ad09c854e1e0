"""The config file: its keys (``model``), how it is read and checked (``loading``), ``problems``."""

from __future__ import annotations

from cloud.toml_problems import ConfigError, Problem
from gateway.config.bridges.model import ForwardConfig
from gateway.config.loading import check, load, located
from gateway.config.model import Config, SensorConfig, StatusConfig
from gateway.config.quality import BIN_S, QualityRules

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
