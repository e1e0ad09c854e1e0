"""Every key of the config says what it means, in one place."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any

import pytest
from annotated_types import Ge

from drivers.boards.registry import BOARDS
from drivers.boards.replay import ReplayColumn
from drivers.emulation.faults import Fault
from drivers.option_docs import BcmPin, Meaning
from drivers.registry import DRIVERS, driver_type
from gateway.config import model
from gateway.config.keys import REQUIRED, keys_of
from gateway.config.quality_rules import QualityOptions

SECTIONS: list[type[Any]] = [
    model.GatewayConfig,
    model.MqttConfig,
    model.KafkaConfig,
    model.UplinkConfig,
    model.OutboxConfig,
    model.ClockConfig,
    model.StatusKeys,
    model.SensorCommon,
    model.ForwardConfig,
    model.ForwardReading,
    model.DropIf,
    ReplayColumn,
    QualityOptions,
    Fault,
    *BOARDS.values(),
    *(driver_type(name).options for name in DRIVERS),
]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_key_has_a_meaning(section: type[Any]) -> None:
    silent = [key.name for key in keys_of(section) if key.meaning is None]
    assert not silent, f"annotate them: Annotated[…, Meaning('what it is', 'its unit')] in {section.__name__}"
    for key in keys_of(section):
        assert key.meaning is not None
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
    assert inner.meaning == pin.meaning is not None
