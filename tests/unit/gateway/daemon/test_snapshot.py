"""The one line that ``systemctl status`` shows."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.daemon.snapshot import status_line
from gateway.status.status import Finding
from tests.support.status import channel, status

KAFKA, CLOCK = Finding("kafka", "error", "no answer", "x"), Finding("clock", "ok", "synchronised")


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({}, "1 channels; uplink healthy; all is well"),
        ({"troubles": {"dht": "", "baro": ""}}, "1 channels, silent: baro, dht; uplink healthy; all is well"),
        ({"troubles": dict.fromkeys("abcde", "")}, "1 channels, silent: a, b, c and 2 more; uplink"),
        ({"uplink": "spilling", "findings": (CLOCK, KAFKA)}, "1 channels; uplink spilling; kafka: no answer"),
    ],
)
def test_what_is_not_as_it_should_be_is_named(changed: dict[str, Any], line: str) -> None:
    cups = {"cup.wind_speed": channel()}
    assert status_line(status(channels=cups, **changed)).startswith(line)
