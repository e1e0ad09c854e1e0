"""What an older version's gateway left when it was killed, taken up by the daemon as it is now.

Recorded at commit 03d8326 while Kafka was away: the config, the outbox with its log, and the files beside it.
"""

from __future__ import annotations

import json
import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

from cloud.wire.reading_records import READING_TOPIC_PREFIX, RUNS_TOPIC
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.support.mast import records, run_gateway

ARCHIVE: Final = Path(__file__).parents[1] / "fixtures" / "gateway-03d8326.tar.xz"
GATEWAY: Final = "mast-03d8326"
RUN: Final = "7743a3d81bc0"
STORED: Final = {
    "baro.pressure": 15,
    "cup-a.wind_speed": 14,
    "cup-b.wind_speed": 14,
    "dht.humidity": 7,
    "dht.temperature": 7,
}
"""The last seq of each channel in the outbox, as the older version counted them."""


@pytest.mark.system
def test_a_killed_older_gateways_readings_arrive_once_and_its_run_is_closed(
    provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(tmp_path, filter="data")
    config = (tmp_path / "gateway.toml").read_text()
    with run_gateway(tmp_path, config, GATEWAY, provisioned, mosquitto) as running:
        running.sample(10)
        running.delivered()
        assert running.stop() == 0
    arrived: dict[str, list[int]] = defaultdict(list)
    topics = sorted({f"{READING_TOPIC_PREFIX}{channel.partition('.')[2]}" for channel in STORED})
    for message in records(provisioned, topics):
        reading = json.loads(message.value() or b"{}")
        if (reading.get("gateway"), reading.get("run")) == (GATEWAY, RUN):
            arrived[reading["channel"]].append(reading["seq"])
    assert {channel: sorted(seqs) for channel, seqs in arrived.items()} == {
        channel: list(range(1, last + 1)) for channel, last in STORED.items()
    }
    runs = [json.loads(message.value() or b"{}") for message in records(provisioned, [RUNS_TOPIC])]
    assert {run["previous_run"] for run in runs if run["gateway"] == GATEWAY and run["run"] != RUN} == {RUN}
