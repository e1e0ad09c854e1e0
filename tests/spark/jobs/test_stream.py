"""``stream``: a user's SQL over readings as they come; its topic has what Python makes of the same ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from cloud.config import KafkaConfig
from cloud.config.model import StreamConfig
from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.wire.fields import format_time
from cloud.wire.reading_records import DEAD_LETTER_TOPIC, Reading
from spark_jobs.jobs.stream import StreamJob, main
from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.settings import Settings, parse_command, parse_run
from tests.spark.programs import CHANNELS, Flow, jobs_program
from tests.spark.records import START_US, append_readings, reading
from tests.spark.running import run_to_end
from tests.support.mast import records
from tests.support.servers import eventually, unique_name

MINUTE_US: Final = 60_000_000
SQL: Final = """
SELECT gateway, channel, window(time, '1 minute').start AS start, avg(value) AS mean, max(value) AS most,
  count(*) AS n, sum(value) / sum(value - value) AS impossible
FROM readings WHERE quantity = 'wind_speed' AND quality <= 2
GROUP BY gateway, channel, window(time, '1 minute')"""


def stream(sql: str = SQL, **more: Any) -> StreamConfig:
    given = {"name": "wind", "sql": sql, "topic": "derived.wind", "begin": "earliest", **more}
    return StreamConfig.model_validate(given)


@pytest.fixture
def place(kafka: LocalBroker, settings: Settings) -> Iterator[Settings]:
    """A fleet of the test's own on the shared broker, with its topics."""
    prefix, derived = f"{unique_name('north')}.", ("derived.wind", "derived.plain", "derived.next")
    provision_topics(kafka.bootstrap_servers, partitions=2, replication=1, prefix=prefix, others=derived)
    given = KafkaConfig.model_validate({"bootstrap_servers": kafka.bootstrap_servers, "prefix": prefix})
    yield replace(settings, bootstrap_servers=kafka.bootstrap_servers, kafka=given)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([name for name in admin.list_topics(timeout=20).topics if name.startswith(prefix)])


def run(spark: SparkSession, settings: Settings, **more: Any) -> None:
    given = replace(settings, streams=(stream(**more),))
    run_to_end(given, StreamJob(spark, given))


def topic_rows(settings: Settings, topic: str = "derived.wind") -> list[tuple[str | None, dict[str, Any]]]:
    """Key and row of each record, in Kafka's order."""
    found = records(settings.bootstrap_servers, [settings.prefix + topic])
    return [((each.key() or b"").decode() or None, json.loads(each.value() or b"")) for each in found]


def windows(given: Iterable[Reading], before_us: int) -> dict[tuple[str, str], dict[str, Any]]:
    """What the SQL has to make of readings in windows that end by then, by key and start."""
    values: dict[tuple[str, int], list[float]] = defaultdict(list)
    for each in given:
        if each.value is not None and each.quality <= 2:
            start_us = each.time_us // MINUTE_US * MINUTE_US
            values[f"{each.gateway}/{each.channel}", start_us].append(each.value)
    return {
        (key, f"{format_time(start_us)[:-1]}000Z"): {
            "mean": pytest.approx(sum(there) / len(there), rel=1e-12),
            "most": max(there),
            "n": len(there),
            "impossible": None,
        }
        for (key, start_us), there in values.items()
        if start_us + MINUTE_US <= before_us
    }


def by_window(found: list[tuple[str | None, dict[str, Any]]]) -> dict[tuple[str | None, str], dict[str, Any]]:
    """The rows by key and start, without these columns; a repeat must be the same."""
    rows: dict[tuple[str | None, str], dict[str, Any]] = {}
    for key, row in found:
        assert key == f"{row.pop('gateway')}/{row.pop('channel')}"
        assert rows.setdefault((key, row.pop("start")), row) == row
    return rows


def test_closed_windows_are_appended_once_whatever_comes(spark: SparkSession, place: Settings) -> None:
    first = [reading(seq, seq / 7, quality=3 if seq % 50 == 0 else 1) for seq in range(1, 200)]
    other = [reading(seq, None, quality=9, gateway="mast-08") for seq in range(1, 9)]
    other += [reading(seq, 5.5, gateway="mast-08") for seq in range(9, 12)]
    append_readings(spark, place, first + other)
    run(spark, place, watermark="60s")
    # The newest reading is of 3:18, so what ends by 2:18 is closed.
    expected = windows(first + other, START_US + 2 * MINUTE_US)
    assert len(expected) == 3
    assert by_window(topic_rows(place)) == expected

    # A clock that is ahead closes no window, a late reading is left out, a repeat of a batch adds nothing.
    now_us = START_US + 200_000_000
    ahead = [reading(1, 1.0, gateway="mast-09", at_us=now_us + 90_000_000)]
    late = [reading(500, 99.0, at_us=START_US + 30_000_000)]
    more = [reading(seq, 3.0) for seq in range(200, 240)]
    append_readings(spark, place, ahead + late + more, kafka_us=now_us)
    run(spark, place, watermark="60s")
    expected = windows(first + other + more, START_US + 2 * MINUTE_US)
    assert by_window(topic_rows(place)) == expected
    append_readings(spark, place, [reading(400, 1.0)])
    # Another watermark goes on.
    run(spark, place, watermark="30s")
    expected = windows([*first, *other, *more], START_US + 5 * MINUTE_US)
    assert len(topic_rows(place)) == len(expected) == 5
    assert by_window(topic_rows(place)) == expected

    # Another SQL begins anew, with the first reading; a result without a gateway has no key.
    plain = "SELECT seq, time, window(time, '1 minute') AS w FROM readings WHERE gateway = 'mast-08'"
    run(spark, place, sql=plain, topic="derived.plain")
    rows = [row for key, row in topic_rows(place, "derived.plain") if key is None]
    assert [row["seq"] for row in rows] == list(range(1, 12))
    minute = {"start": "2026-05-28T20:27:00.000000Z", "end": "2026-05-28T20:28:00.000000Z"}
    assert rows[1] == {"seq": 2, "time": "2026-05-28T20:27:01.000000Z", "w": minute}
    # With the next reading: nothing of what was there.
    run(spark, place, sql=f"{plain} ", topic="derived.next", begin="latest")
    assert topic_rows(place, "derived.next") == []


WRONG: Final = {
    "SELECT gateway, FROM readings": "[TRAILING_COMMA_IN_SELECT] Trailing comma detected in SELECT clause.",
    "SELECT gateway\nFORM readings WHERE": "[PARSE_SYNTAX_ERROR] Syntax error at or near 'readings' "
    "(line 2, pos 5)",
    "DROP TABLE readings": "[PARSE_SYNTAX_ERROR] Syntax error at or near 'DROP'",
    "SELECT speed FROM readings": "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function "
    "parameter with name `speed` cannot be resolved.",
    "SELECT gateway, avg(value) FROM readings GROUP BY gateway": "[STREAMING_OUTPUT_MODE."
    "UNSUPPORTED_OPERATION] Invalid streaming output mode: append.",
    "SELECT value FROM readings ORDER BY time": "Sorting is not supported",
    "SELECT 1 AS one": "Queries without streaming sources",
    "SELECT value, raw AS value FROM readings": "two columns have one name",
}


def test_wrong_sql_is_refused_with_its_place_and_a_remedy(
    spark: SparkSession, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "cloud.toml"
    streams = {"good": SQL, **{f"wrong-{at}": sql for at, sql in enumerate(WRONG)}}
    tables = (f'[[stream]]\nname = "{name}"\ntopic = "t"\nsql = """{sql}"""' for name, sql in streams.items())
    config.write_text("\n".join(tables))
    with pytest.MonkeyPatch.context() as patch:
        # The command starts a session of its own and stops it; here it is that of all tests.
        patch.setattr(SparkSession, "stop", lambda _: None)
        with pytest.raises(SettingsError) as refused:
            main(*parse_command("streams", ["--cloud", str(config)]))
    lines = str(refused.value).splitlines()
    assert len(lines) == len(WRONG)
    first = 12
    for at, (line, (sql, words)) in enumerate(zip(lines, WRONG.items(), strict=True)):
        assert line.startswith(f'{config}:{first}: stream["wrong-{at}"].sql: {words}'), line
        first += 4 + sql.count("\n")
        assert line.endswith("GROUP BY window(time, '1 minute')")
    captured = capsys.readouterr()
    columns = "struct<gateway:string,channel:string,start:timestamp,mean:double,most:double,n:bigint"
    assert captured.out.startswith(f"good: t: {columns}")
    assert "Traceback" not in captured.err
    assert "stacktrace" not in captured.err


def test_streams_run_by_name_and_only_where_there_are_some(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no \[\[stream\]\] .*--cloud"):
        parse_run(["stream", "--lake", "lake"])
    config = tmp_path / "cloud.toml"
    config.write_text("".join(f'[[stream]]\nname = "{n}"\ntopic = "t"\nsql = "{n}"\n' for n in "ab"))
    settings = parse_run(["ingest", "stream", "--cloud", str(config)])
    queries = [(name, [each.name for each in given.streams]) for name, _, given in settings.queries()]
    assert queries == [("ingest", ["a", "b"]), ("ingest", ["a", "b"]), ("stream", ["a"]), ("stream", ["b"])]
    assert "stream" not in parse_run(["all", "--cloud", str(config)]).jobs


@pytest.mark.timeout(900)
def test_a_kill_leaves_no_window_out_and_a_wrong_stream_disturbs_no_other(
    kafka: LocalBroker, place: Settings, tmp_path: Path, full: bool
) -> None:
    if not full:
        pytest.skip("minutes, most of them until the killed process's lease is over: only with --full")
    config = tmp_path / "cloud.toml"
    kafka_section = f'[kafka]\nbootstrap_servers = "{kafka.bootstrap_servers}"\nprefix = "{place.prefix}"\n'
    tables = (
        f'[[stream]]\nname = "{name}"\ntopic = "derived.{name}"\nbegin = "earliest"\nsql = """{sql}"""\n'
        for name, sql in {"wrong": "SELECT speed FROM readings", "wind": SQL}.items()
    )
    config.write_text(kafka_section + "".join(tables))
    provision = [
        str(Path(sys.executable).with_name("fieldgate")),
        "provision",
        "topics",
        "--cloud",
        str(config),
    ]
    made = subprocess.run(provision, capture_output=True, text=True, check=True).stdout
    assert f"created  {place.prefix}derived.wrong\n" in made
    topics = r"mqtt\.wind_speed"
    given = replace(
        place, jobs=("ingest", "stream"), topic_pattern=topics, dead_letter_topic=DEAD_LETTER_TOPIC
    )
    with Flow(place.bootstrap_servers, f"{place.prefix}mqtt.wind_speed") as flow:
        with jobs_program(given, tmp_path / "killed.log", "--cloud", str(config)) as program:
            program.awaits("event=stream.batch query=stream-wind-")
            eventually(lambda: topic_rows(place))
            program.kill()
        with jobs_program(given, tmp_path / "again.log", "--cloud", str(config)) as program:
            program.awaits("event=stream.batch query=stream-wind-")
            flow.stop()
            last_us = max(each.time_us for each in flow.produced.values())
            expected = windows(flow.produced.values(), last_us - 120_000_000)
            for seq, channel in enumerate(CHANNELS, 1):
                flow.send(reading(seq, 1.0, channel=channel, run="last", at_us=last_us + 600_000_000))
            assert flow.flush() == 0
            expected |= windows(flow.produced.values(), last_us + 480_000_000)
            eventually(lambda: len(by_window(topic_rows(place))), 120, until=lambda n: n >= len(expected))
            assert f'{config}:8: stream["wrong"].sql: [UNRESOLVED_COLUMN' in program.log
            assert "event=query.failed query=stream-wind-" not in program.log
            assert program.terminate() == 0
    assert by_window(topic_rows(place)) == expected
