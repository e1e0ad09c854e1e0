"""The one line that ``systemctl status`` shows."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.daemon.snapshot import status_line
from tests.support.forwarding import snapshot


def test_all_is_well() -> None:
    assert status_line(snapshot()) == "12 channels; healthy, last acknowledged 1 s ago; outbox empty"


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"silent": ("dht", "baro")}, "12 channels, silent: baro, dht; "),
        ({"silent": "abcde"}, "silent: a, b, c and 2 more; "),
        (
            {"uplink": "spilling", "confirmed_ago_s": 10_900.0},
            "Kafka does not answer, last acknowledged 3 h ago",
        ),
        ({"confirmed_ago_s": None}, "last acknowledged never"),
        ({"uplink": "draining", "confirmed_ago_s": 90.0}, "draining, last acknowledged 90 s ago"),
        ({"confirmed_ago_s": 200_000.0}, "acknowledged 2 d ago"),
        ({"counts": {"outbox_records": 12_345}, "outbox_share": 0.614}, "outbox 12,345 records, 61% full"),
        ({"outbox_problem": "database or disk is full"}, "; the disk fails: outbox in memory"),
        ({"synced": False}, "; clock not synchronised"),
        ({"mqtt_connected": False}, "; no Mosquitto"),
    ],
)
def test_what_is_not_as_it_should_be_is_named(changed: dict[str, Any], part: str) -> None:
    assert part in status_line(snapshot(**changed))
