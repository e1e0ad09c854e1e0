from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_jobs.errors import SettingsError
from spark_jobs.settings import TOPIC_PATTERN, duration_s, interval_s, parse_run


def test_all_options_arrive(tmp_path: Path) -> None:
    arguments = "statistics ingest --bootstrap-servers h:1 --interval 1m --trigger 500ms --once"
    arguments += f" --accept-data-loss --conf spark.a=b=c --lake {tmp_path}/l --checkpoints s3a://bucket/c"
    arguments += " --raw-topic r --channels-topic c --runs-topic u --status-topic s"
    arguments += " --quarantine-cap 5 --silent-after 5m"
    settings = parse_run([*arguments.split(), "--master", "local[3]"])
    assert settings.jobs == ("ingest", "statistics")
    assert (settings.interval_s, settings.trigger_s, settings.once) == (60, 0.5, True)
    assert settings.fail_on_data_loss is False
    topics = (settings.raw_topic, settings.channels_topic, settings.runs_topic, settings.status_topic)
    assert (topics, settings.quarantine_cap, settings.silent_after_s) == (("r", "c", "u", "s"), 5, 300)
    assert settings.conf == (("spark.a", "b=c"),)
    assert settings.table("readings") == f"{tmp_path}/l/readings"
    assert settings.checkpoint("ingest") == "s3a://bucket/c/ingest/v1"


@pytest.mark.parametrize("uri", ["file:///mnt/lake", "file:/mnt/lake", "file:///mnt/lake/", "/mnt/lake"])
def test_a_lake_on_this_machine_is_its_path(uri: str) -> None:
    assert parse_run(["all", "--lake", uri]).table("readings") == "/mnt/lake/readings"


def test_defaults_keep_data_safe() -> None:
    settings = parse_run(["all"])
    assert settings.fail_on_data_loss is True
    assert settings.interval_s == 600
    assert settings.checkpoints == settings.lake + "-checkpoints"


@pytest.mark.parametrize("text", ["7m", "0.5s", "0s", "2d", "1", "", "25h"])
def test_an_interval_divides_a_day(text: str) -> None:
    with pytest.raises(SettingsError):
        interval_s(text)


def test_durations() -> None:
    assert [duration_s(text) for text in ("250ms", "1.5s", "10m", "2h")] == [0.25, 1.5, 600.0, 7200.0]


def test_an_unknown_job_is_named() -> None:
    with pytest.raises(SettingsError, match="'ingets'"):
        parse_run(["ingets"])


@pytest.mark.parametrize(
    ("topic", "taken"),
    [
        ("mqtt.wind_speed", True),
        ("mqtt.raw", False),
        ("mqtt.raw_count", True),
        ("gateway.dead-letter", True),
        ("gateway.status", False),
        ("other.mqtt.co2", False),
    ],
)
def test_topics(topic: str, taken: bool) -> None:
    # Kafka matches the whole name, and this expression means the same in Java and Python.
    assert bool(re.fullmatch(TOPIC_PATTERN, topic)) is taken
