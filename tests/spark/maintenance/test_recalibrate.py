"""Values computed again from raw: exactly, once, undone bit by bit; statistics follow, the rest stays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cloud.wire.channel_records import ChannelRecord, Period, encode_channel
from spark_jobs.jobs.recalibrate import (
    CalibrationError,
    Certificate,
    Linear,
    Outcome,
    Wanted,
    linear,
    recalibrate,
    recalibrated,
    row_of,
    wanted_of,
    with_period,
)
from spark_jobs.jobs.statistics import StatisticsJob
from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.schemas import CHANNELS, READINGS
from spark_jobs.platform.settings import Settings, parse_command
from spark_jobs.sinks.delta import latest_version
from spark_jobs.sinks.readings import IngestSink
from tests.spark.records import START_US, append_rows, encoded, kafka_frame, reading, rows_of
from tests.spark.running import run_to_end

OLD = Linear("5d1c0a7e", 0.765, 0.35, (0.0, 75.0), rest_is_zero=True)
NEW = Linear("00000001", 0.74, 0.3, (0.0, 75.0), rest_is_zero=True, expires=date(2026, 5, 28))
NOON = datetime(2026, 5, 28, 12, tzinfo=UTC)
Row = tuple[float | None, float, int, list[str], str | None, datetime]

_SMALL = pa.schema(
    [
        ("value", pa.float64()),
        ("raw", pa.float64()),
        ("quality", pa.int32()),
        ("reasons", pa.list_(pa.string())),
        ("extra", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("cal", pa.string()),
        ("at", pa.int32()),
    ]
)


def apply(
    spark: SparkSession, rows: Sequence[dict[str, Any]], old: Linear, new: Linear
) -> list[dict[str, Any]]:
    frame = spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=_SMALL)).coalesce(1)
    computed: list[dict[str, Any]] = frame.withColumns(dict(recalibrated(old, new))).toArrow().to_pylist()
    return sorted(computed, key=lambda row: row["at"])


def test_values_flags_and_originals(spark: SparkSession) -> None:
    after = datetime(2026, 5, 29, tzinfo=UTC)
    hot = 0.765 * 99 + 0.35
    given: list[Row] = [
        (0.765 * 9 + 0.35, 9.0, 1, [], None, NOON),
        (0.0, 0.0, 2, [], None, NOON),
        # Failed for its range alone, and lies inside now: not evaluated. With a word beside it: suspect.
        (hot, 99.0, 4, ["OVER_RANGE"], None, NOON),
        (hot, 99.0, 4, ["OVER_RANGE", "NOISY"], None, NOON),
        # What the driver failed for another reason stays failed.
        (hot, 99.0, 4, ["OVER_RANGE", "CHECKSUM"], None, NOON),
        # The site's range is not known here: its word and flag stay.
        (20.0 * 0.765 + 0.35, 20.0, 3, ["OVER_RANGE"], None, NOON),
        # Still beyond the range.
        (0.765 * 200 + 0.35, 200.0, 4, ["OVER_RANGE"], None, NOON),
        # The later certificate has its last day, so the earlier one's word goes.
        (0.765 * 9 + 0.35, 9.0, 3, ["CALIBRATION_EXPIRED"], None, NOON),
        (0.765 * 9 + 0.35, 9.0, 1, [], None, after),
        (0.765 * 9 + 0.35, 9.0, 3, ["SPIKE"], '{"a":{"b":[1]}}', NOON),
        (0.765 * 9 + 0.35, 9.0, 1, [], '{"original":{"value":1}}', NOON),
    ]
    names = ("value", "raw", "quality", "reasons", "extra", "time")
    rows = [{**dict(zip(names, row, strict=True)), "cal": OLD.cal, "at": at} for at, row in enumerate(given)]
    changed = apply(spark, rows, OLD, NEW)
    assert [row["value"] for row in changed] == [
        0.74 * raw + 0.3 if raw else 0.0 for raw in (row[1] for row in given)
    ]
    assert [(row["quality"], row["reasons"]) for row in changed] == [
        (1, []),
        (2, []),
        (2, []),
        (3, ["NOISY"]),
        (4, ["CHECKSUM"]),
        (3, ["OVER_RANGE"]),
        (4, ["OVER_RANGE"]),
        (2, []),
        (3, ["CALIBRATION_EXPIRED"]),
        (3, ["SPIKE"]),
        (1, []),
    ]
    assert {row["cal"] for row in changed} == {"00000001"}
    for row, before in zip(changed, rows, strict=True):
        extra = json.loads(row["extra"], object_pairs_hook=lambda pairs: list(pairs))
        assert dict(extra[-1][1]) == {name: before[name] for name in ("value", "cal", "quality", "reasons")}
    assert changed[9]["extra"].startswith('{"a":{"b":[1]},"original":{"value":7.234999999999999,')
    assert changed[10]["extra"].startswith('{"original":{"value":1},"original":{"value":7.234999999999999,')

    # From the original, whatever came between; the same again changes nothing; and back, bit by bit.
    once = apply(spark, apply(spark, changed, OLD, Linear("2", 9.0, 1.0, (0.0, 75.0))), OLD, NEW)
    assert once == changed
    assert apply(spark, changed, OLD, OLD) == rows


def test_a_converter_at_its_end_is_never_right(spark: SparkSession) -> None:
    old = Linear("a", 40.0, 0.0, (15.0, 115.0), saturates_at=4.0)
    new = Linear("b", 20.0, 10.0, (15.0, 115.0))
    rows = [
        {"value": 40.0 * raw, "raw": raw, "quality": 4, "reasons": ["OVER_RANGE"], "time": NOON, "at": at}
        for at, raw in enumerate((3.9, 4.0))
    ]
    changed = apply(spark, [{**row, "cal": "a", "extra": None} for row in rows], old, new)
    assert [(row["value"], row["quality"], row["reasons"]) for row in changed] == [
        (88.0, 2, []),
        (90.0, 4, ["OVER_RANGE"]),
    ]


RECORD = ChannelRecord(
    gateway="mast-07",
    sensor="cup",
    quantity="wind_speed",
    cal=OLD.cal,
    revision=3,
    in_force=True,
    periods=(Period(START_US, None),),
    unit="m/s",
    kind="linear",
    driver="hall-anemometer",
    interval_s=1.0,
    range=(0.0, 75.0),
    raw_unit="Hz",
    slope=0.765,
    offset=0.35,
    settings={"at_rest": "zero"},
    serial="1795",
    certificate="26-0312",
    calibrated=date(2026, 3, 12),
)
LATER = Certificate(
    0.77, 0.31, certificate="26-0911", lab="Example Wind Tunnel", calibrated=date(2026, 9, 11)
)
RAW = [float(at % 13) for at in range(180)]


def stored(spark: SparkSession, settings: Settings, seqs: Sequence[int], **changes: Any) -> None:
    """Readings of the cup, one a second from START_US; quality 3 for each tenth."""
    rows = []
    for seq in seqs:
        raw = RAW[seq - 1]
        time_us = START_US + (seq - 1) * 1_000_000
        row = {
            "gateway": "mast-07",
            "channel": "cup.wind_speed",
            "run": "run-1",
            "seq": seq,
            "quantity": "wind_speed",
            "unit": "m/s",
            "time": time_us,
            "period_ms": 1000,
            "value": 0.765 * raw + 0.35 if raw else 0.0,
            "raw": raw,
            "raw_unit": "Hz",
            "quality": 1 if seq % 10 else 3,
            "reasons": [] if seq % 10 else ["SPIKE"],
            "clock": "synced",
            "cal": OLD.cal,
            "replayed": False,
            "date": date(2026, 5, 28),
        }
        rows.append({**row, **changes})
    append_rows(spark, settings, READINGS, rows)


def store_record(spark: SparkSession, settings: Settings, record: ChannelRecord) -> None:
    """The record in ``channels``, as ingest stores it."""
    begin = datetime.fromtimestamp(START_US / 1e6, UTC)
    row = {**row_of(record), "periods": [{"begin": begin, "end": None}], "valid_from": begin}
    row |= {"valid_to": None, "in_force": True, "revision": record.revision, "updated_at": begin}
    append_rows(spark, settings, CHANNELS, [{name: row[name] for name in CHANNELS.schema.names}])


def minute(number: int) -> datetime:
    return datetime.fromtimestamp(START_US / 1e6 + 60 * number, UTC)


def averages(spark: SparkSession, settings: Settings) -> dict[int, tuple[float, float, int]]:
    """Average, standard deviation and version of each minute of the cup, as the job has it after one run."""
    run_to_end(settings, StatisticsJob(spark, settings))
    return {
        round((row["interval_start"] - minute(0)).total_seconds()) // 60: (
            row["avg"],
            row["sd"],
            row["version"],
        )
        for row in rows_of(settings, "statistics")
        if row["channel"] == "cup.wind_speed" and row["gateway"] == "mast-07" and row["count"]
    }


def whole(settings: Settings, table: str = "readings") -> list[str]:
    return sorted(map(repr, rows_of(settings, table)))


@pytest.mark.timeout(900)
def test_a_later_certificate(spark: SparkSession, settings: Settings) -> None:
    stored(spark, settings, range(1, 181))
    stored(spark, settings, (61,), gateway="mast-08")
    stored(spark, settings, (181 - 100,), run="run-2", quality=9, value=None, reasons=["READ_ERROR"])
    stored(spark, settings, (80,), run="run-3", clock="unsynced", quality=3)
    store_record(spark, settings, RECORD)
    location = settings.table("readings")
    before, version = whole(settings), latest_version(spark, location)
    first = averages(spark, settings)
    wanted = Wanted("mast-07", "cup.wind_speed", minute(1), minute(2))

    dry = recalibrate(spark, settings, wanted, LATER, dry_run=True)
    assert (whole(settings), latest_version(spark, location)) == (before, version)
    done = recalibrate(spark, settings, wanted, LATER)
    assert done == dry
    raw = np.array(RAW[60:120])
    change = np.where(raw > 0, (0.77 * raw + 0.31) - (0.765 * raw + 0.35), 0.0)
    assert done == Outcome(OLD.cal, done.cal, 60, 0, 0, done.mean_change, done.greatest_change, 0, 0)
    assert done.mean_change == pytest.approx(change.mean(), rel=1e-9)
    assert done.greatest_change == pytest.approx(change[np.argmax(np.abs(change))], rel=1e-9)
    rows = {row["seq"]: row for row in rows_of(settings, "readings") if row["cal"] == done.cal}
    assert sorted(rows) == list(range(61, 121))
    for seq, row in rows.items():
        hertz = RAW[seq - 1]
        assert row["value"] == (0.77 * hertz + 0.31 if hertz else 0.0)
        assert (row["raw"], row["quality"]) == (hertz, 1 if seq % 10 else 3)
    assert len(set(before) & set(whole(settings))) == len(before) - 60

    # The statistics follow, of the touched minute alone.
    second = averages(spark, settings)
    values = np.array([rows[seq]["value"] for seq in range(61, 121) if seq % 10])
    assert second[1][:2] == pytest.approx((values.mean(), values.std(ddof=1)), rel=1e-9)
    assert second[1][2] == first[1][2] + 1
    assert {key: second[key] for key in (0, 2)} == {key: first[key] for key in (0, 2)}

    # What was done can be looked up: the record, and the table.
    (record,) = (row for row in rows_of(settings, "channels") if row["cal"] == done.cal)
    assert (record["slope"], record["offset"], record["serial"]) == (0.77, 0.31, "1795")
    assert (record["certificate"], record["lab"]) == ("26-0911", "Example Wind Tunnel")
    assert (record["valid_from"], record["valid_to"], record["revision"]) == (minute(1), minute(2), 0)
    (entry,) = rows_of(settings, "recalibrations")
    assert (entry["original_cal"], entry["cal"], entry["rows"]) == (OLD.cal, done.cal, 60)

    # The period once more from Kafka: what was recalibrated is there, and stays.
    after = whole(settings)
    again_from_kafka = kafka_frame(spark, encoded([reading(70), reading(130)]))
    counts = IngestSink(spark, settings).write(again_from_kafka, "replay", 0)
    assert (counts.readings, counts.repeated) == (0, 2)
    assert whole(settings) == after

    # Again: nothing. A reading that came late: it alone.
    version = latest_version(spark, location)
    again = recalibrate(spark, settings, wanted, LATER)
    assert (again.changed, again.unchanged, latest_version(spark, location)) == (0, 60, version)
    stored(spark, settings, (70,), run="run-4")
    assert recalibrate(spark, settings, wanted, LATER).changed == 1
    assert sorted(row["rows"] for row in rows_of(settings, "recalibrations")) == [1, 60]

    # And back: as the gateway sent it.
    undone = recalibrate(spark, settings, wanted, None)
    assert (undone.changed, undone.cal) == (61, OLD.cal)
    assert [row for row in whole(settings) if "run-4" not in row] == before


def test_what_can_not_be_right_is_refused(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    stored(spark, settings, range(1, 11))
    wanted = Wanted("mast-07", "cup.wind_speed", minute(0), minute(1))

    def refused(match: str, later: Any = LATER, **changes: Any) -> None:
        other = Wanted(**{**vars(wanted), **changes})
        version = latest_version(spark, settings.table("readings"))
        with pytest.raises(CalibrationError, match=match):
            recalibrate(spark, settings, other, later)
        assert latest_version(spark, settings.table("readings")) == version

    refused("has no record 5d1c0a7e of cup.wind_speed")
    store_record(spark, settings, RECORD)
    refused("has no values in this period", channel="vane.wind_direction")
    refused("was made with calibration 11111111", cal="11111111")
    other = ChannelRecord(**{**{f: getattr(RECORD, f) for f in RECORD.__slots__}, "driver": "iio"})
    refused("the record is of driver 'iio', the readings of 'hall-anemometer'", other)
    stored(spark, settings, (11,), cal="22222222")
    refused(r"several calibrations in this period: 22222222 \(1 readings\), 5d1c0a7e \(10 readings\)")
    stored(spark, settings, (12,), value=99.0)
    refused("1 of 11 values of cup.wind_speed are not 0.765 · raw", cal=OLD.cal)


def test_records_without_a_line_and_names_twice() -> None:
    row = row_of(RECORD)
    with pytest.raises(CalibrationError, match="has no slope and offset in its record 5d1c0a7e"):
        linear({**row, "slope": None})
    rain = {**row, "quantity": "precipitation", "channel": "rain.precipitation"}
    with pytest.raises(CalibrationError, match=r"rain.precipitation .* is summed up: an offset of 0\.35"):
        linear(rain)
    assert linear({**rain, "offset": 0.0}).slope == 0.765
    bp20 = {**row, "settings": {"adc.gain": '"4.096V"', "divider": "2.0"}, "raw_unit": "V"}
    assert linear(bp20).saturates_at == pytest.approx(8.11, abs=0.01)
    known = {**row, "periods": [], "revision": 0, "in_force": False}
    with pytest.raises(CalibrationError, match=r"has slope 0\.765, not 0\.5"):
        with_period({**row, "slope": 0.5}, known, minute(0), minute(1))
    spans = [{"begin": minute(0), "end": minute(2)}, {"begin": minute(5), "end": None}]
    merged = with_period(row, {**known, "periods": spans}, minute(1), minute(3))
    assert merged["periods"] == [{"begin": minute(0), "end": minute(3)}, {"begin": minute(5), "end": None}]
    assert (merged["valid_from"], merged["valid_to"], merged["revision"]) == (minute(0), None, 0)


PERIOD = [
    "--gateway",
    "m",
    "--channel",
    "cup.wind_speed",
    "--from",
    "2026-05-28",
    "--to",
    "2026-05-29T12:00:00Z",
]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([*PERIOD[:4], "--from", "2026-05-28", "--to", "2026-05-28"], "--from must be before --to"),
        ([*PERIOD[:4], "--from", "yesterday", "--to", "2026-05-28"], "'yesterday' is no time"),
        (PERIOD, "give one of"),
        ([*PERIOD, "--slope", "1", "--original"], "give one of"),
        ([*PERIOD, "--slope", "1"], "--slope and --offset belong together"),
        ([*PERIOD, "--slope", "1", "--offset", "-0.5", "--expires", "soon"], "--expires 'soon' is no date"),
        ([*PERIOD, "--record", "/nowhere.json"], "/nowhere.json: no calibration record"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        wanted_of(parse_command("recalibrate", arguments)[0])


def test_channel_and_period_are_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_command("recalibrate", PERIOD[:4])
    assert "required: --from, --to" in capsys.readouterr().err


def test_a_record_from_the_mast(tmp_path: Path) -> None:
    file = tmp_path / "calibrations.json"
    record = json.loads(encode_channel(RECORD))
    file.write_text(json.dumps([{**record, "state": "in force"}, {**record, "channel": "dht.humidity"}]))
    options, _ = parse_command("recalibrate", [*PERIOD, "--record", str(file)])
    wanted, later = wanted_of(options)
    assert wanted.end == datetime(2026, 5, 29, 12, tzinfo=UTC)
    assert isinstance(later, ChannelRecord)
    assert (later.cal, later.slope, later.settings) == (OLD.cal, 0.765, {"at_rest": "zero"})
