"""The daemon starts whatever the uplink's settings are: it samples and stores, and the reason stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import ConfigError, load
from gateway.forwarding.sinks import KafkaSinks
from tests.support.config import baro, config_text, write_config

WRONG = {
    "unknown": ('"compresion.type" = "zstd"', "is no property of librdkafka"),
    "no such value": ('"compression.type" = "zip"', "Invalid value"),
    "no number": ('"delivery.timeout.ms" = "soon"', "Invalid value"),
    "a timeout before it lingers": (
        "linger.ms = 400000",
        "kafka.properties: librdkafka doesn't take these together: `message.timeout.ms` must be greater than",
    ),
    "more in flight than in order": ("max.in.flight = 100", "`max.in.flight` must be set <= 5 when"),
    "no retries": ("retries = 0", "`retries` must be set >= 1 when `enable.idempotence` is true"),
    "no login": (
        'security.protocol = "SASL_SSL"\nsasl.mechanism = "PLAIN"',
        "sasl.username and sasl.password must be set",
    ),
    "no text": ('"security.protocol" = ["SSL"]', "must be a string"),
    "given twice": ('security.protocol = "SSL"\n"security.protocol" = "plaintext"', "given twice"),
    "the client's own": ('"on_delivery" = "x"', "requires a callable"),
}


@pytest.mark.parametrize(("lines", "problem"), WRONG.values(), ids=WRONG)
def test_properties_that_librdkafka_refuses_keep_the_uplink_away_and_nothing_else(
    tmp_path: Path, lines: str, problem: str
) -> None:
    path = write_config(tmp_path, config_text(baro()) + f"[kafka.properties]\n{lines}\n")
    with pytest.raises(ConfigError):
        load(path)
    config = load(path, starting=True)
    assert any(problem in str(each) for each in config.problems), config.problems
    sinks = KafkaSinks.open(config)
    try:
        assert not sinks.live.usable
        assert (sinks.live.problem or "").startswith("kafka.properties: ")
        assert sinks.live.delivery_timeout_s > 0
    finally:
        sinks.close()


def test_what_is_the_gateways_to_set_stays_as_it_sets_it(tmp_path: Path) -> None:
    path = write_config(tmp_path, config_text(baro()) + "[kafka.properties]\nacks = 0\n")
    config = load(path, starting=True)
    assert [each.key for each in config.problems] == ["kafka.properties.acks"]
    assert "acks" not in config.kafka.properties
    sinks = KafkaSinks.open(config)
    assert sinks.live.usable
    sinks.close()
