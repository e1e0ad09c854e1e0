"""Every key of the config has its meaning, in one place."""

from __future__ import annotations

from typing import Any

import pytest

from cloud.toml_models import keys_of
from drivers.boards.registry import BOARDS, ReplayColumn
from drivers.emulation.environment import Fault
from drivers.registry import DRIVERS, driver_type
from gateway.config import model
from gateway.config.bridges.model import DropIf, ForwardConfig, ForwardReading
from gateway.config.quality import QualityRules

SECTIONS: list[type[Any]] = [
    model.GatewayConfig,
    model.MqttConfig,
    model.KafkaConfig,
    model.UplinkConfig,
    model.OutboxConfig,
    model.ClockConfig,
    model.StatusConfig,
    model.SensorCommon,
    ForwardConfig,
    ForwardReading,
    DropIf,
    ReplayColumn,
    QualityRules,
    Fault,
    *BOARDS.values(),
    *(driver_type(name).options for name in DRIVERS),
]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_key_has_a_meaning(section: type[Any]) -> None:
    silent = [key.name for key in keys_of(section) if not key.meaning.text]
    assert not silent, f"annotate them: Annotated[…, Meaning('what it is', 'its unit')] in {section.__name__}"
    for key in keys_of(section):
        assert key.meaning.text == key.meaning.text.strip()
        assert not key.meaning.text.endswith(".")
        assert "\n" not in key.meaning.text
