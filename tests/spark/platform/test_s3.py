"""A lake in a bucket: commits of which one succeeds, one writer, jobs and queries by ``cloud.toml``."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from cloud.dashboard.behind import Progress, read_progress
from cloud.lake.object_store import for_delta_rs
from cloud.lake.tables import LakeError, open_lake
from cloud.local.kafka_broker import LocalBroker
from cloud.local.process import free_port
from spark_jobs.jobs import train
from spark_jobs.jobs.ingest import IngestJob
from spark_jobs.platform import s3
from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.files import Files
from spark_jobs.platform.schemas import SEEN
from spark_jobs.platform.session import find_jars
from spark_jobs.platform.settings import Settings, parse_command, parse_run
from spark_jobs.sinks.delta import ensure_table, write_once
from spark_jobs.streaming.lease import LeaseTakenError
from tests.faults.uplink import Uplink
from tests.spark.jobs.test_replay import produce
from tests.spark.programs import QUICK, Program
from tests.spark.records import reading
from tests.spark.shown import shown
from tests.support.commands import import_files, query
from tests.support.logger_files import file_in, lines, mapping_in
from tests.support.s3 import SECRET, Keys, Moto

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    with Moto(tmp_path_factory.mktemp("moto")) as store:
        yield store


def in_bucket(spark: SparkSession, settings: Settings, moto: Moto, port: int | None = None) -> Settings:
    """Settings with a lake in a new bucket, which the tests' session can reach as one of its own would."""
    place = f"s3a://{moto.make_bucket()}/lake"
    settings = replace(settings, lake=place, checkpoints=f"{place}-checkpoints", store=moto.options(port))
    let_in(spark, settings)
    return settings


def let_in(spark: SparkSession, settings: Settings) -> None:
    """The tests' session can reach the settings' bucket."""
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    for key, value in s3.options(settings).items():
        if key.startswith("spark.hadoop."):
            hadoop.set(key.removeprefix("spark.hadoop."), value)
    s3.log_in(spark, settings)


def test_of_writers_that_race_one_makes_the_commit(
    spark: SparkSession, settings: Settings, moto: Moto
) -> None:
    settings = in_bucket(spark, settings, moto)
    s3.refuse_unsafe(spark, settings)
    files = Files(spark)
    with ThreadPoolExecutor(6) as pool:
        for number in range(10):
            uri = f"{settings.lake}/race/{number:020d}.json"
            won = list(pool.map(lambda writer, uri=uri: files.create_new(uri, f"by {writer}"), range(6)))
            assert won.count(True) == 1
            assert files.read_bytes(uri) == f"by {won.index(True)}\n".encode()


def test_a_commit_whose_answer_was_lost_is_made_once(
    spark: SparkSession, settings: Settings, moto: Moto
) -> None:
    with Uplink(free_port(), moto.port) as link:
        settings = in_bucket(spark, settings, moto, link.port)
        location = ensure_table(spark, settings, SEEN)
        rows = spark.createDataFrame([("m", "c", "r", 1, 2, 3)], SEEN.schema).coalesce(1)
        files = Files(spark)
        assert files.create_new(f"{settings.lake}/first", "text")
        link.break_before_answer()
        assert files.create_new(f"{settings.lake}/second", "text")
        assert link.resets == 1
        # Of another it is refused all the same.
        assert not files.create_new(f"{settings.lake}/second", "other")
        for number in range(4):
            link.break_before_answer()
            write_once(rows, location, "app", number)
        assert link.resets == 5
        assert spark.read.format("delta").load(location).count() == 4


def test_what_is_refused_before_anything_starts(
    spark: SparkSession, settings: Settings, moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = in_bucket(spark, settings, moto)
    s3.refuse_unsafe(spark, settings)
    lost = r" {}/.*ignores If-None-Match.* commits of two writers would be lost"
    missing = r" s3a://no-such-bucket/.*: no such bucket: no-such-bucket at http://127"
    careless = f"s3a://{moto.make_bucket('careless')}"
    for bucket, words in ((careless, lost.format(careless)), ("s3a://no-such-bucket", missing)):
        with pytest.raises(SettingsError, match=f"^lake{words}"):
            s3.refuse_unsafe(spark, replace(settings, lake=f"{bucket}/lake"))
        with pytest.raises(SettingsError, match=f"^checkpoints{words}"):
            s3.refuse_unsafe(spark, replace(settings, checkpoints=f"{bucket}/checkpoints"))
        # Only `jobs run` writes checkpoints, only `jobs train` models.
        s3.refuse_unsafe(spark, replace(settings, checkpoints=f"{bucket}/checkpoints", jobs=()))
        monkeypatch.setattr(train, "running_session", lambda *_: nullcontext(spark))
        arguments = ["--from", "2026-01-01", "--to", "2026-02-01", "--model-dir", f"{bucket}/models"]
        options, with_models = parse_command("train", [*arguments, "--lake", settings.lake])
        with pytest.raises(SettingsError, match=f"^models{words}"):
            train.main(options, replace(with_models, store=settings.store))
    monkeypatch.setenv("FIELDGATE_JARS", str(tmp_path))
    with pytest.raises(SettingsError, match=r"no S3 jars in .*: run `make jars-s3`"):
        find_jars("s3")


def test_jobs_and_queries_by_cloud_toml(
    spark: SparkSession,
    moto: Moto,
    kafka: LocalBroker,
    kafka_topic: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = kafka_topic("s3")
    bucket, events = moto.make_bucket(), tmp_path / "events"
    lake = f"s3://{bucket}/masts"
    events.mkdir()
    produce(kafka, topic, time.time_ns() // 1000, [reading(seq) for seq in range(1, 51)])
    config = moto.config(
        tmp_path / "cloud.toml", lake, None, "[kafka]", f'bootstrap_servers = "{kafka.bootstrap_servers}"'
    )
    ui = free_port()
    shows = ("spark.ui.enabled=true", f"spark.ui.port={ui}", "spark.eventLog.enabled=true",
             "spark.eventLog.compress=false", f"spark.eventLog.dir={events}")  # fmt: skip
    command = [sys.executable, "-m", "spark_jobs", "run", "ingest", "--cloud", str(config), "--topics", topic]
    command += [*QUICK, *(option for key in shows for option in ("--conf", key))]
    settings = parse_run(["ingest", "--cloud", str(config)])
    assert settings.lake == lake.replace("s3://", "s3a://")

    def rows() -> int:
        with open_lake(lake, moto.options()) as connection:
            (count,) = connection.sql("SELECT count(*) FROM readings").fetchall()[0]
            return int(count)

    with Program(command, tmp_path / "first.log") as first:
        first.awaits("event=ingest.batch batch=0")
        assert rows() == 50
        texts = shown(tmp_path, {config.name}, ui, first)
        stored = moto.objects(bucket)
        assert any("/masts-checkpoints/ingest/" in f"/{key}" for key in stored)
        texts |= {key: content.decode(errors="replace") for key, content in stored.items()}
        assert [name for name, text in texts.items() if SECRET in text] == []
        let_in(spark, settings)
        with pytest.raises(LeaseTakenError, match=f"writes the readings of {settings.lake}: stop it first"):
            IngestJob(spark, settings)
        assert first.terminate() == 0
        assert SECRET not in first.log
    assert query(["SELECT max(seq) AS last FROM readings", "--cloud", str(config), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"last": 50}]


def test_a_lake_in_a_bucket_and_a_local_one_are_queried_as_one(
    moto: Moto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = f"s3://{moto.make_bucket()}/lake"
    config = moto.config(tmp_path / "cloud.toml", bucket)
    write_deltalake(f"{bucket}/runs", pa.table({"run": ["a"]}), storage_options=for_delta_rs(moto.options()))
    write_deltalake(tmp_path / "us" / "runs", pa.table({"run": ["b"], "boot": ["c"]}))
    lakes = ["--cloud", str(config), "--lake", f"eu={bucket}", "--lake", f"us={tmp_path}/us"]
    assert query(["FROM runs ORDER BY run", *lakes, "--csv"]) == 0
    assert capsys.readouterr().out == "lake,run,boot\neu,a,\nus,b,c\n"
    assert query(["FROM runs", *lakes, "--lake", "asia=s3://nowhere/lake"]) == 1
    assert "lake asia: lake s3://nowhere/lake: no such bucket: nowhere at http" in capsys.readouterr().err


def test_a_loggers_file_is_imported_into_a_bucket_without_spark(
    moto: Moto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = moto.config(tmp_path / "cloud.toml", f"s3a://{moto.make_bucket()}/lake")
    given = ["--mapping", str(mapping_in(tmp_path)), "--cloud", str(config)]
    first = file_in(tmp_path, [*lines(5), "no,line,at,all,of"])
    # Into tables that aren't there yet, twice, and what overlaps it beside a second import.
    assert import_files([*given, str(first)]) == 0
    assert import_files([*given, str(first)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "10 new rows in statistics of old-07; 1 line in quarantine" in said[0]
    assert "0 new rows in statistics of old-07; 10 imported before" in said[1]
    others = [file_in(tmp_path, lines(4, at), f"{at}.csv") for at in (3, 9)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda file: import_files([*given, str(file)]), others)) == [0, 0]
    capsys.readouterr()
    rows = "SELECT count(*), count(DISTINCT (channel, interval_start)), sum(count > 0)::INT FROM statistics"
    for sql in (rows, 'SELECT sum("rows")::INT FROM imports', "SELECT count(*) FROM quarantine"):
        assert query([sql, "--cloud", str(config), "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1::2] == ["26,26,22", "22", "1"]


def test_how_far_queries_have_read_is_read_from_a_bucket(moto: Moto) -> None:
    bucket = moto.make_bucket()
    about = '{"batchTimestampMs":5}'
    for name, text in (("offsets/7", f'v1\n{about}\n{{"mqtt.co2":{{"0":3}}}}'), ("commits/7", "v1\n{}")):
        moto.put(f"{bucket}/lake-checkpoints/ingest/v1/{name}", text)
    found = read_progress(f"s3a://{bucket}/lake-checkpoints", moto.options())
    assert found == [Progress("ingest", {"mqtt.co2": {0: 3}}, 5)]
    with pytest.raises(LakeError, match=r"no checkpoints at s3://.*/none: "):
        read_progress(f"s3://{bucket}/none", moto.options())
    with pytest.raises(LakeError, match="no such bucket: nowhere at http"):
        read_progress("s3://nowhere/lake-checkpoints", moto.options())


def test_why_a_query_finds_nothing(
    moto: Moto, nowhere: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = moto.config(tmp_path / "cloud.toml", f"s3a://{moto.make_bucket()}/lake")

    def error(*more: str) -> str:
        assert query(["SELECT 1", "--cloud", str(config), *more]) == 1
        return capsys.readouterr().err

    assert "no lake at s3a://" in error()
    assert "no such bucket: nowhere at http://127.0.0.1" in error("--lake", "s3://nowhere/lake")
    config = moto.config(tmp_path / "cloud.toml", "s3://any/lake", int(nowhere.partition(":")[2]))
    assert f"no connection to http://{nowhere}" in error()


@pytest.fixture
def no_keys(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> str:
    """Nothing around has keys of S3; where a machine of Amazon's would be asked for its role's."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    # There it has nothing, as on a machine that has no role; elsewhere moto plays one that has.
    place = f"http://127.0.0.1:{moto.port}/moto-api"
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", place)
    return place


def refused_keys(moto: Moto) -> list[tuple[Keys | None, str]]:
    """Keys with which nothing can be done, and how that is said."""
    key, _ = moto.new_keys("s3:*")
    refused = r"http://127\S+ refuses the credentials; correct access_key and secret_key"
    return [
        ((key, "wrong"), refused),
        (("AKIANOBODYS", SECRET), refused),
        (moto.new_keys(), r"no permission for s3a?://bucket-\S+/lake at http://127\S+; the credentials need"),
        (None, r"no credentials for http://127\S+; give access_key and secret_key in \[lake.storage\], or"),
    ]


def test_keys_that_are_refused_by_queries_and_imports(
    moto: Moto, tmp_path: Path, no_keys: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, good = f"s3://{moto.make_bucket()}/lake", moto.new_keys("s3:*")

    def runs(keys: Keys | None) -> bool:
        config = moto.config(tmp_path / "cloud.toml", lake, keys=keys)
        return query(["FROM runs", "--cloud", str(config), "--csv"]) == 0

    def imports(keys: Keys | None) -> bool:
        config = moto.config(tmp_path / "cloud.toml", lake, keys=keys)
        files = ["--mapping", str(mapping_in(tmp_path)), str(file_in(tmp_path, lines(3)))]
        return import_files([*files, "--cloud", str(config)]) == 0

    def said() -> str:
        return capsys.readouterr().err

    refused = refused_keys(moto)
    lists, reads = moto.new_keys("s3:ListBucket"), moto.new_keys("s3:ListBucket", "s3:GetObject")
    with moto.asking_for_keys():
        options = for_delta_rs(moto.options(keys=good))
        write_deltalake(f"{lake}/runs", pa.table({"run": ["a"]}), storage_options=options)
        for keys, words in refused:
            assert not runs(keys)
            assert re.search(f"lake {lake}: {words}", said())
            assert not imports(keys)
            assert re.search(words, said())
            with pytest.raises(LakeError, match=words):
                read_progress(lake, moto.options(keys=keys))
        # Whoever may list sees that there is a table, and can't read it.
        assert not runs(lists)
        assert f"table runs can't be read: no permission for {lake} at http" in said()
        assert runs(reads)
        assert not imports(reads)
        assert "no permission for " in said()


def test_keys_that_are_refused_before_a_job_starts(
    spark: SparkSession, settings: Settings, moto: Moto, no_keys: str
) -> None:
    java: Any = spark._jvm
    java.System.setProperty("aws.ec2MetadataServiceEndpoint", no_keys)
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def tries(keys: Keys | None) -> None:
        # In a bucket of its own: for each bucket Hadoop keeps the keys that it had first.
        one = replace(in_bucket(spark, settings, moto), store=moto.options(keys=keys))
        hadoop.unset("fs.s3a.access.key")
        hadoop.unset("fs.s3a.secret.key")
        s3.log_in(spark, one)
        with moto.asking_for_keys():
            s3.refuse_unsafe(spark, one)

    try:
        for keys, words in refused_keys(moto):
            with pytest.raises(SettingsError, match=rf"^lake s3a://\S+/lake: {words}"):
                tries(keys)
        with pytest.raises(SettingsError, match=r"^lake s3a://\S+/lake: no permission for s3a://\S+/lake"):
            tries(moto.new_keys("s3:ListBucket", "s3:GetObject"))
        tries(moto.new_keys("s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject"))
    finally:
        java.System.clearProperty("aws.ec2MetadataServiceEndpoint")
