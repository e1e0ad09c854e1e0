"""Every key of the config has its meaning, in one place."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any

import pytest
from annotated_types import Ge

from cloud.toml_models import REQUIRED, keys_of, table_at
from drivers.ads1115 import AdcOptions
from drivers.boards.registry import BOARDS, ReplayColumn, ReplayOptions
from drivers.emulation.environment import Fault
from drivers.option_docs import BcmPin, Meaning
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


@dataclass(frozen=True, slots=True)
class _Example:
    pin: BcmPin
    height_m: Annotated[Annotated[float, Ge(0)] | None, Meaning("of it", "m")] = None
    own: Annotated[BcmPin, Meaning("nearer")] = 4
    inner: BcmPin | None = None


def test_a_key_is_read_off_its_annotation() -> None:
    pin, height, own, inner = keys_of(_Example)
    assert [key.name for key in keys_of(_Example)] == [field.name for field in fields(_Example)]
    assert (pin.default, pin.required) == (REQUIRED, True)
    assert (height.default, height.required, height.meaning) == (None, False, Meaning("of it", "m"))
    assert own.meaning == Meaning("nearer")
    assert inner.meaning == pin.meaning != Meaning("")


def test_the_dataclass_of_the_table_at_a_path() -> None:
    options = driver_type("bp20").options
    assert table_at(options, ()) is options
    assert table_at(options, ("adc",)) is AdcOptions
    assert table_at(ReplayOptions, ("columns", "cup")) is ReplayColumn
    assert table_at(ForwardConfig, ("readings", 2, "drop_if")) is DropIf
    assert table_at(model.SensorCommon, ("accuracy", "wind_speed")) is None
