from __future__ import annotations

import re
from pathlib import Path

import pytest

from cloud import values
from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.settings import TOPIC_PATTERN, duration_s, interval_s, parse_command, parse_run


def test_all_options_arrive(tmp_path: Path) -> None:
    arguments = "statistics ingest --bootstrap-servers h:1 --interval 1m --trigger 500ms --once"
    arguments += f" --accept-data-loss --conf spark.a=b=c --lake {tmp_path}/l --checkpoints s3a://bucket/c"
    arguments += (
        " --raw-topic r --channels-topic c --runs-topic u --status-topic s --sites-topic i --events-topic e"
    )
    arguments += " --quarantine-cap 5 --silent-after 5m --open-every 0"
    settings = parse_run([*arguments.split(), "--master", "local[3]"])
    assert settings.jobs == ("ingest", "statistics")
    assert (settings.interval_s, settings.trigger_s, settings.once) == (60, 0.5, True)
    assert settings.fail_on_data_loss is False
    topics = (settings.raw_topic, settings.channels_topic, settings.runs_topic, settings.status_topic)
    assert (topics, settings.sites_topic, settings.events_topic) == (("r", "c", "u", "s"), "i", "e")
    assert (settings.quarantine_cap, settings.silent_after_s) == (5, 300)
    assert settings.open_every_s == 0
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


def test_a_shard_is_of_alerts_alone() -> None:
    assert parse_run(["alerts"]).shard == (1, 1)
    assert parse_run(["alerts", "--shard", "2/8"]).shard == (2, 8)
    for wrong in ("0/8", "9/8", "2", "2/8/1"):
        with pytest.raises(SettingsError, match="no part such as 1/4"):
            parse_run(["alerts", "--shard", wrong])
    with pytest.raises(SettingsError, match="in a process of its own"):
        parse_run(["all", "--shard", "1/2"])


def test_all_jobs_are_those_that_make_tables() -> None:
    makers = ("ingest", "statistics", "mast", "presence", "anomaly", "alerts")
    assert parse_run(["all"]).jobs == makers
    assert parse_run(["publish", "all"]).jobs == (*makers, "publish")


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


CLOUD = """\
[kafka]
bootstrap_servers = "kafka:9093"
[kafka.properties]
security.protocol = "SASL_SSL"
sasl.mechanism = "PLAIN"
sasl.username = "jobs"
sasl.password = { file = "password" }
[lake]
path = "lake"
checkpoints = "s3a://bucket/checkpoints"
[lake.storage]
region = "eu-central-1"
[jobs]
interval = "1m"
trigger = "5s"
topics = 'mqtt\\..+'
rules = "rules.toml"
max_records = 1000
[jobs.conf]
spark.a = 1
spark.b = true
"""


@pytest.fixture
def cloud(tmp_path: Path) -> Path:
    (tmp_path / "password").write_text("hidden\n")
    (tmp_path / "rules.toml").write_text('max_age = "1m"\n')
    file = tmp_path / "cloud.toml"
    file.write_text(CLOUD)
    return file


def test_settings_of_a_file(cloud: Path) -> None:
    settings = parse_run(["ingest", "--cloud", str(cloud)])
    assert settings.bootstrap_servers == "kafka:9093"
    assert settings.lake == f"{cloud.parent}/lake"
    assert settings.checkpoints == "s3a://bucket/checkpoints"
    assert settings.models == f"{cloud.parent}/lake-models"
    assert (settings.interval_s, settings.trigger_s, settings.max_records) == (60, 5.0, 1000)
    assert settings.topic_pattern == r"mqtt\..+"
    assert settings.rules == f"{cloud.parent}/rules.toml"
    assert settings.conf == (("spark.a", "1"), ("spark.b", "true"))
    assert settings.store is not None
    assert settings.store.region == "eu-central-1"
    options = settings.kafka_options()
    assert options["kafka.bootstrap.servers"] == "kafka:9093"
    assert options["kafka.sasl.jaas.config"].endswith('username="jobs" password="hidden";')
    assert "hidden" not in repr(settings)


def test_a_prefix_is_before_each_topic_those_of_options_too(cloud: Path) -> None:
    cloud.write_text(CLOUD.replace("[kafka]", "[kafka]\nprefix = 'a-b.'").replace("topics =", "# topics ="))
    settings = parse_run(["all", "--cloud", str(cloud), "--raw-topic", "plant"])
    assert (settings.prefix, settings.raw_topic, settings.sites_topic) == (
        "a-b.",
        "a-b.plant",
        "a-b.gateway.sites",
    )
    for topic in ("a-b.mqtt.co2", "a-b.gateway.dead-letter"):
        assert re.fullmatch(settings.topic_pattern, topic)
    for topic in ("mqtt.co2", "gateway.dead-letter", "a-bxmqtt.co2", "a-b.mqtt.raw", "a-b.a-b.mqtt.co2"):
        assert not re.fullmatch(settings.topic_pattern, topic)
    assert not any("prefix" in name for name in settings.kafka_options())


def test_options_win_over_the_file(cloud: Path) -> None:
    argv = ["all", "--cloud", str(cloud), "--bootstrap-servers", "h:1", "--lake", "/l", "--interval", "10m"]
    settings = parse_run(
        [*argv, "--conf", "spark.a=2", "--checkpoints", "/c", "--rules", str(cloud.parent / "rules.toml")]
    )
    assert (settings.bootstrap_servers, settings.lake, settings.checkpoints) == ("h:1", "/l", "/c")
    assert settings.interval_s == 600
    assert dict(settings.conf) == {"spark.a": "2", "spark.b": "true"}
    assert settings.kafka_options()["kafka.security.protocol"] == "SASL_SSL"


def test_the_file_of_the_machine_counts_where_no_option_names_another_kafka_or_lake(
    cloud: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "CLOUD_CONFIG", cloud)
    assert parse_run(["all"]).bootstrap_servers == "kafka:9093"
    for argv in (["--bootstrap-servers", "h:1"], ["--lake", "/l"]):
        assert parse_run(["all", *argv]).kafka_options().keys() == {"kafka.bootstrap.servers"}


def test_other_commands_take_the_file(cloud: Path) -> None:
    period = ("--from", "2026-01-01", "--to", "2026-02-01")
    one = ("--gateway", "mast-07", "--channel", "dht.temperature", *period)
    for name, more in (("maintain", ()), ("replay", period), ("recalibrate", one), ("train", period)):
        assert parse_command(name, [*more, "--cloud", str(cloud)])[1].lake == f"{cloud.parent}/lake"


def test_a_wrong_file_is_a_wrong_setting(cloud: Path) -> None:
    cloud.write_text("[lake]\npth = 1\n")
    with pytest.raises(SettingsError, match=rf'{cloud}:2: lake.pth: .*did you mean "path"'):
        parse_run(["all", "--cloud", str(cloud)])


def test_without_a_file_kafka_is_plain() -> None:
    assert parse_run(["all"]).kafka_options() == {"kafka.bootstrap.servers": "127.0.0.1:9092"}
