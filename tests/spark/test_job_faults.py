"""What the jobs survive: each produced reading is in the tables once after it, and no other is.

Reduced counts in ``make test``; with ``--full`` the stated ones, a row a case in
docs/results/pipeline-faults.csv.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from cloud.local.kafka_broker import LocalBroker
from cloud.wire.reading_records import Reading
from spark_jobs.jobs.ingest import IngestJob
from spark_jobs.jobs.statistics import StatisticsJob
from spark_jobs.platform.settings import Settings
from spark_jobs.streaming.checkpoint import CheckpointError, check_checkpoint
from spark_jobs.streaming.query import Job
from tests.faults.results import PIPELINE, Results
from tests.spark.programs import Flow, assert_tables_hold, jobs_program, submitted_program, wait_for_rows
from tests.spark.records import contents, identities, reading
from tests.spark.running import run_to_end, started
from tests.support.servers import unique_name

pytestmark = pytest.mark.timeout(1800)

_RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results" / "pipeline-faults.csv"


@pytest.fixture(scope="module")
def results(full: bool) -> Results | None:
    return Results(_RESULTS, PIPELINE) if full else None


RecordResult = Callable[..., None]


@pytest.fixture
def record_result(request: pytest.FixtureRequest, results: Results | None) -> RecordResult:
    """Writes a row of the results; called as the last thing of a test. Skips what is there already."""
    case = request.node.name.removeprefix("test_").replace("_", " ")
    if results is not None and results.has(case):
        pytest.skip(f"in {_RESULTS.name} already for commit {results.commit}")

    def write(settings: Settings, produced: int, **more: object) -> None:
        found = identities(settings)
        figures: dict[str, object] = {
            "produced": produced,
            "in readings": len(found),
            "missing": produced - len(set(found)),
            "duplicates": len(found) - len(set(found)),
        }
        if results is not None:
            results.add(case, figures | {name.replace("_", " "): value for name, value in more.items()})

    return write


@pytest.fixture
def place(settings: Settings, kafka: LocalBroker) -> Iterator[Settings]:
    """Settings with a topic of their own on the session's broker."""
    yield from _with_topic(settings, kafka)


def _with_topic(settings: Settings, broker: LocalBroker) -> Iterator[Settings]:
    name = unique_name("faults")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(f"{name}.wind_speed", num_partitions=2, replication_factor=1)])[
        f"{name}.wind_speed"
    ].result(30)
    yield replace(
        settings,
        bootstrap_servers=broker.bootstrap_servers,
        topic_pattern=f"{name}\\.wind_speed",
        dead_letter_topic=f"{name}.dead",
    )


def _flow(settings: Settings) -> Flow:
    return Flow(settings.bootstrap_servers, settings.topic_pattern.replace("\\", ""))


def _finish(spark: SparkSession, settings: Settings, *jobs: Callable[[SparkSession, Settings], Job]) -> None:
    """All that is left, and the open intervals, in this process; of these jobs where some are named."""
    for make in jobs or (IngestJob, StatisticsJob):
        run_to_end(settings, make(spark, settings))


def test_driver_killed_at_random_moments(
    spark: SparkSession, place: Settings, tmp_path: Path, full: bool, record_result: RecordResult
) -> None:
    if not full:
        pytest.skip("only with --full: Java is killed in test_secured_kafka.py, Python in test_end_to_end.py")
    kills, dice, moments = range(20), random.Random(7), []
    with _flow(place) as flow:
        for kill in kills:
            with jobs_program(place, tmp_path / f"jobs-{kill}.log") as program:
                program.awaits("event=query.start query=ingest")
                moments.append(dice.uniform(0, 8))
                program.lives(moments[-1])
                # By turns: the Python alone, whose Java goes on for a moment beside the next start's; the
                # Java alone, which the Python has to notice; both.
                if kill % 3 == 1:
                    program.jvm().kill()
                    assert program.ends() == 1
                    assert "event=jobs.failed Spark has ended" in program.log
                else:
                    program.kill(python_only=kill % 3 == 0)
    _finish(spark, place)
    assert_tables_hold(place, flow.produced)
    record_result(place, len(flow.produced), kills=len(kills), latest_s=f"{max(moments):.1f}")


def test_executors_killed_and_kafka_restarted(
    spark: SparkSession, settings: Settings, tmp_path: Path, full: bool, record_result: RecordResult
) -> None:
    """Submitted to a cluster whose executors get our packages and jars from the driver."""
    if not full:
        pytest.skip("only with --full: a cluster of processes of its own, for two minutes")
    rounds, master = 5, "local-cluster[2,1,1024]"
    with LocalBroker(tmp_path / "kafka") as broker:
        (place,) = _with_topic(settings, broker)
        program = submitted_program(place, tmp_path / "jobs.log", master)
        with program, _flow(place) as flow:
            wait_for_rows(place, 1)
            for _ in range(rounds):
                program.executors()[0].kill()
                wait_for_rows(place, len(flow.produced))
                broker.kill()
                broker.start()
                wait_for_rows(place, len(flow.produced))
            assert f"master={master}" in program.log
            assert program.terminate() == 0
            assert "event=jobs.stop reason=signal" in program.log
            flow.stop()
        _finish(spark, place)
    assert_tables_hold(place, flow.produced)
    record_result(place, len(flow.produced), executors_killed=rounds, kafka_killed=rounds)


def _produce(settings: Settings, seqs: range) -> dict[tuple[str, str, str, int], Reading]:
    flow = _flow(settings)
    for seq in seqs:
        flow.send(reading(seq, seq / 7))
    assert flow.flush() == 0
    return flow.produced


def test_damaged_checkpoints_are_named_and_not_needed(
    spark: SparkSession, place: Settings, full: bool, record_result: RecordResult
) -> None:
    """Without ``--full`` that tables are the same without checkpoints is seen of ``ingest`` alone."""
    jobs = (IngestJob, StatisticsJob) if full else (IngestJob,)
    produced = _produce(place, range(1, 91))
    _finish(spark, place, *jobs)
    tables = {name: contents(place, name) for name in ("readings", "statistics")[: len(jobs)]}
    checkpoint = Path(place.checkpoint("ingest"))
    whole = checkpoint.with_name("whole")
    shutil.copytree(checkpoint, whole)
    (last,) = (file for file in (checkpoint / "offsets").iterdir() if file.name.isdecimal())
    text = last.read_bytes()
    damages: dict[str, list[bytes | None]] = {
        "offsets/0": [b"\x00\xff\xfe", text[:40], text[:-9], b"", text.replace(b"v1", b"v9", 1), None],
        "commits/0": [b"v1\n", b"\xff"],
        "metadata": [b"{", b"\x00" * 45],
        "sources/0/0": [b"", b"\x00v1\n{"],
    }
    for name, contents_of in damages.items():
        for damage in contents_of:
            file = checkpoint / name
            (file.with_name(f".{file.name}.crc")).unlink(missing_ok=True)
            file.unlink() if damage is None else file.write_bytes(damage)
            with pytest.raises(CheckpointError) as refused:
                check_checkpoint(spark, place, "ingest")
            assert f"checkpoint file {file} can't be read" in str(refused.value)
            assert f"move {checkpoint} away" in str(refused.value)
            shutil.rmtree(checkpoint)
            shutil.copytree(whole, checkpoint)
    # Flipped bits beside a checksum that still is that of the old ones.
    last.write_bytes(text[:-3] + b"9}}")
    with pytest.raises(CheckpointError, match="Checksum error"):
        run_to_end(place, IngestJob(spark, place))
    # The remedy, of all queries at once: the same tables as without any damage. And while more has come.
    shutil.rmtree(place.checkpoints)
    _finish(spark, place, *jobs)
    assert {name: contents(place, name) for name in tables} == tables
    if full:
        shutil.rmtree(place.checkpoints)
        produced |= _produce(place, range(91, 151))
        _finish(spark, place)
        assert_tables_hold(place, produced)
    record_result(place, len(produced), damages=sum(map(len, damages.values())) + 1)


def test_a_lake_that_is_older_than_its_checkpoints_is_refused_and_whole_without_them(
    spark: SparkSession, place: Settings, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """With ``--full`` there were statistics by then, more than one round is missing, and the remedy is used.

    Without it test_damaged_checkpoints does so for ``ingest``, test_statistics_job.py for what follows it;
    the statistics' query has its checkpoint, and computes nothing.
    """
    if not full:
        monkeypatch.setattr(StatisticsJob, "batch", lambda *_: None)
        monkeypatch.setattr(StatisticsJob, "finish", lambda _: None)
    lake, copy = Path(place.lake), Path(place.lake).with_name("copy")
    produced = _produce(place, range(1, 61))
    _finish(spark, place, *(() if full else (IngestJob,)))
    shutil.copytree(lake, copy)
    for first in (61, 91) if full else (61,):
        produced |= _produce(place, range(first, first + 30))
        _finish(spark, place)
    shutil.rmtree(lake)
    shutil.copytree(copy, lake)
    # Delta's cache of tables, which a new process would not have.
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    with pytest.raises(
        CheckpointError, match=r"of table readings, whose last is \d+: the lake is older"
    ) as refused:
        started(place, StatisticsJob(spark, place))
    assert f"Move all of {place.checkpoints} away" in str(refused.value)
    if full:
        shutil.rmtree(place.checkpoints)
        _finish(spark, place)
        assert_tables_hold(place, produced)
