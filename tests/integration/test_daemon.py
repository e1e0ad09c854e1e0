"""The daemon as installers run it: a process, with a real Mosquitto and a real Kafka, on a simulated mast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cloud.wire.reading_records import parse_reading
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.support.config import config_text, cup, dht
from tests.support.mast import GatewayProcess, published, records, run_gateway
from tests.support.outbox import in_outbox
from tests.support.servers import eventually, fieldgate, unique_name

TOPICS = ["mqtt.wind_speed", "mqtt.temperature", "mqtt.humidity"]

START = "2026-01-01T00:00:00Z"

ANOTHER_CUP = """
[[sensor]]
name = "cup-b"
driver = "hall-anemometer"
pin = 27
slope = 0.765
"""


def daemon_config(name: str, speed: float = 50, commit_interval_s: float = 0.5) -> str:
    return config_text(
        cup(),
        dht(),
        gateway={"id": name},
        outbox={"commit_interval_s": commit_interval_s},
        board={"start": START, "speed": speed},
    )


@contextmanager
def gateway(
    directory: Path, kafka: str, mosquitto: LocalMosquitto, speed: float = 50, name: str | None = None
) -> Iterator[GatewayProcess]:
    name = name or unique_name("mast")
    with run_gateway(directory, daemon_config(name, speed), name, kafka, mosquitto) as running:
        yield running


def identities(kafka: str, gateway: str, run: str) -> set[tuple[str, int]]:
    """The (channel, seq) of a gateway's run that are in Kafka."""
    readings = (parse_reading(message.value() or b"") for message in records(kafka, TOPICS))
    return {(each.channel, each.seq) for each in readings if (each.gateway, each.run) == (gateway, run)}


def run_records(kafka: str, gateway: str, directory: Path) -> dict[str, dict[str, Any]]:
    """The last record of each of a gateway's runs."""
    return {
        record["run"]: record for record in published(kafka, "gateway.runs", gateway, directory / "outbox.db")
    }


def waiting(directory: Path, gateway: str, of: str) -> set[tuple[str, int]]:
    """The (channel, seq) of a run in the outbox of a gateway that has ended."""
    return {(channel, seq) for channel, run, seq in in_outbox(directory / "outbox.db", gateway) if run == of}


def expected(last_seq: dict[str, int]) -> set[tuple[str, int]]:
    return {(channel, seq) for channel, last in last_seq.items() for seq in range(1, last + 1)}


def test_a_killed_run_is_closed_by_the_next_one_of_which_every_reading_is_in_kafka_after_a_clean_stop(
    provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    name = unique_name("mast")
    with gateway(tmp_path, provisioned, mosquitto, name=name) as mast:
        eventually(mast.sampled, until=lambda sampled: sampled > 100)
        killed = eventually(mast.run_record, until=lambda record: sum(record["last_seq"].values()) > 100)
        assert killed["state"] == "running"
        mast.kill()
    with gateway(tmp_path, provisioned, mosquitto, name=name) as mast:
        eventually(mast.run_record, until=lambda record: record["run"] != killed["run"])
        eventually(mast.sampled, until=lambda sampled: sampled > 300)
        status = mast.status()
        assert set(status["channels"]) == {"cup.wind_speed", "dht.temperature", "dht.humidity"}
        assert status["channels"]["cup.wind_speed"]["unit"] == "m/s"
        assert status["state"] == "sampling"
        assert mast.stop() == 0
        record = mast.run_record()
    assert record["state"] == "stopped"
    assert record["in_flight"] == 0
    assert sum(record["last_seq"].values()) >= 300
    found = identities(provisioned, name, record["run"])
    assert found <= expected(record["last_seq"])
    assert expected(record["last_seq"]) - found == waiting(tmp_path, name, record["run"])
    runs = run_records(provisioned, name, tmp_path)
    first, second = runs[killed["run"]], runs[record["run"]]
    assert first["state"] == "killed"
    assert sum(first["last_seq"].values()) >= sum(killed["last_seq"].values())
    assert (second["state"], second["last_seq"]) == ("stopped", record["last_seq"])
    assert second["previous_run"] == killed["run"]
    assert [(each["run"], each["end"]) for each in second["unfinished"]] == [(killed["run"], "killed")]


def test_with_wrong_properties_of_librdkafka_it_samples_stores_and_says_why_nothing_is_sent(
    provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    name = unique_name("mast")
    config = daemon_config(name) + '[kafka.properties]\n"linger.mss" = 5\n"socket.timeout.ms" = "soon"\n'
    with run_gateway(tmp_path, config, name, provisioned, mosquitto) as mast:
        eventually(lambda: mast.status()["outbox_records"], until=lambda records: records > 20)
        status = mast.status()
        # What it goes on with is no reason to refuse a sensor; one more mistake is, by itself.
        assert mast.reload(config.replace("[kafka.properties]", f"{ANOTHER_CUP}[kafka.properties]")) is None
        eventually(lambda: "cup-b.wind_speed" in mast.status()["channels"])
        assert (mast.reload(f'{config}"acks.s" = 1\n') or "").count("kafka.properties") == 1
        assert mast.stop() == 0
    assert [text.split(": ")[1] for text in status["config"]["problems"]] == [
        'kafka.properties."linger.mss"', 'kafka.properties."socket.timeout.ms"',
    ]  # fmt: skip
    assert status["kafka_problem"].startswith("kafka.properties: ")
    assert status["uplink"] == "spilling"
    log = mast.log.read_text()
    assert log.count("event=config.incomplete") == 2
    assert "Traceback" not in log


def test_a_second_daemon_on_the_same_outbox_refuses(
    provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    with gateway(tmp_path, provisioned, mosquitto, speed=1) as mast:
        eventually(mast.sampled)
        done = fieldgate("run", "-c", tmp_path / "gateway.toml")
        assert mast.stop() == 0
    assert done.returncode == 1
    assert "outbox.db" in done.stderr
    assert "Traceback" not in done.stderr
