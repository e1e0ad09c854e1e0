"""What happened at a mast: its own events of a time, whatever they say; and where it was moved to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cloud.lake.events import MOST, happenings, read_track
from cloud.lake.mast import FOREVER_MS
from spark_jobs.platform import schemas
from tests.support.fleet_lake import reader_of, write

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
AT_MS = int(AT.timestamp() * 1000)
HOUR_MS = 3_600_000
GPS = "gps.location"


def give(root: Path, hours: float, kind: str, fields: str | dict[str, Any] = "{}", **other: Any) -> None:
    """An event so many hours after AT, at once in Kafka unless it is said."""
    at = AT + timedelta(hours=hours)
    text = fields if isinstance(fields, str) else json.dumps(fields)
    row: dict[str, Any] = {
        "gateway": "mast-07",
        "id": f"{kind} {hours}",
        "time": at,
        "kafka_time": at,
        "kind": kind,
    }
    row |= {"run": "0123456789ab", "fields": text} | other
    write(
        root,
        schemas.EVENTS,
        {name: [each] for name, each in (row | {"date": row["kafka_time"].date()}).items()},
    )


def lines(root: Path, begin_ms: int = 0, end_ms: int = FOREVER_MS) -> list[tuple[float, str, str]]:
    """Each as hours since AT, kind and text."""
    found = happenings(reader_of(root), "mast-07", begin_ms, end_ms).found
    return [((each.at_ms - AT_MS) / HOUR_MS, each.kind, each.text) for each in found]


def test_events_of_a_time_the_newest_first_in_words(tmp_path: Path) -> None:
    give(tmp_path, 1, "reloaded", {"changed": ["mqtt"], "by": "olga", "sensors": None})
    give(tmp_path, 2, "report", {"cpu_celsius": 41})
    give(tmp_path, 3, "under-voltage")
    give(tmp_path, 3, "under-voltage", gateway="mast-08")
    # It waited in the outbox for a week; and one of a clock that was years ahead.
    give(tmp_path, 4, "topic-parked", kafka_time=AT + timedelta(days=7))
    give(tmp_path, 5, "x", time=AT + timedelta(days=3000))
    assert lines(tmp_path) == [
        (5, "x", ""), (4, "topic-parked", ""), (3, "under-voltage", ""),
        (1, "reloaded", 'changed ["mqtt"], by olga'),
    ]  # fmt: skip
    # The end isn't included.
    assert [hours for hours, *_ in lines(tmp_path, AT_MS + HOUR_MS, AT_MS + 4 * HOUR_MS)] == [3, 1]
    assert happenings(reader_of(tmp_path), "mast-07", 0, FOREVER_MS).missing == [
        "The lake has no table runs yet; fieldgate jobs run ingest fills it."
    ]


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ("no JSON", "no JSON"),
        ("[" * 9000, "[" * 499 + "…"),
        ('{"n": 1' + "0" * 5000, '{"n": 1' + "0" * 492 + "…"),
        ("[1, 2]", "[1, 2]"),
        ({"problem": "a\nb\x1b[31m"}, "problem a b [31m"),
        ({"problem": "x" * 600}, f"problem {'x' * 491}…"),
    ],
)
def test_whatever_an_event_says_is_one_line(tmp_path: Path, fields: Any, shown: str) -> None:
    give(tmp_path, 0, "x", fields)
    assert lines(tmp_path) == [(0, "x", shown)]


def test_what_a_run_has_dropped_is_told_once_and_a_list_has_an_end(tmp_path: Path) -> None:
    times = [AT + timedelta(minutes=each) for each in range(MOST + 1)]
    many = {"gateway": "mast-07", "date": AT.date(), "run": "0123456789ab", "fields": "{}"}
    rows = {name: [each] * len(times) for name, each in many.items()}
    kinds = ["dropped", *["x"] * MOST]
    write(tmp_path, schemas.EVENTS, rows | {"time": times, "kafka_time": times, "kind": kinds})
    dropped = pa.array([[("FULL", 40)], [("FULL", 7)]], pa.map_(pa.string(), pa.int64()))
    write(tmp_path, schemas.RUNS, {
        "gateway": ["mast-07", "mast-07"], "run": ["0123456789ab", "0123456789ac"],
        "started": [AT + timedelta(hours=9), AT + timedelta(hours=10)],
        "reported_at": [AT + timedelta(hours=11)] * 2, "dropped_records": dropped,
    })  # fmt: skip
    found = happenings(reader_of(tmp_path), "mast-07", 0, FOREVER_MS)
    assert (len(found.found), found.is_whole) == (MOST, False)
    assert [(each.kind, each.text) for each in found.found[:3]] == [
        ("dropped", "run 0123456789ac: 7 records until then: FULL"),
        ("started", "run 0123456789ac"), ("started", "run 0123456789ab"),
    ]  # fmt: skip


def moved(root: Path) -> None:
    """A mast that is carried away for two days, and its site before and after."""
    begin = AT - timedelta(days=100)
    write(root, schemas.SITES, {
        "gateway": ["mast-07", "mast-07", "mast-08"],
        "latitude": [54.0, 54.5, 1.0], "longitude": [8.0, 8.1, 1.0],
        "valid_from": [begin, AT + timedelta(days=1.9), begin],
    })  # fmt: skip
    give(root, 0, "site-moved", {"distance_m": 900, "latitude": 54.01, "longitude": 8.0})
    give(root, 47, "site-back", {"entered": True})
    # A minute apart from two days before on; another channel has none, another mast stands elsewhere.
    times = [AT + timedelta(minutes=each) for each in range(-2880, 8000)]
    north = [54.0 + max(0, each) / 10_000 for each in range(-2880, 8000)]
    for gateway, channel, latitude in (("mast-07", GPS, north), ("mast-07", "cup.wind_speed", None),
                                       ("mast-08", GPS, [1.0] * len(times))):  # fmt: skip
        rows = {"gateway": [gateway] * len(times), "channel": [channel] * len(times), "time": times}
        rows |= {"date": [each.date() for each in times]}
        places = {"latitude": latitude, "longitude": [8.0] * len(times)} if latitude else {}
        write(root, schemas.READINGS, rows | places)


def positions(places: Sequence[Any]) -> list[tuple[float, float, float]]:
    return [((each.at_ms - AT_MS) / HOUR_MS, each.latitude, each.longitude) for each in places]


def test_the_track_of_a_mast_that_was_moved(tmp_path: Path) -> None:
    moved(tmp_path)
    reader = reader_of(tmp_path)
    track = read_track(reader, "mast-07", [GPS], FOREVER_MS)
    assert track is not None
    assert [place[1:] for place in positions(track.planned)] == [(54.0, 8.0), (54.5, 8.1)]
    assert positions(track.announced) == [(0, 54.01, 8.0)]
    assert track.announced[0].what == "site-moved: distance_m 900, latitude 54.01, longitude 8.0"
    fixes = positions(track.fixes)
    # From a quarter of a day before to as long after it was back: 300 steps of eleven minutes.
    assert (fixes[0][0], fixes[0][1]) == (-6, 54.0)
    assert fixes[-1][0] == pytest.approx(53, abs=0.2)
    assert 250 < len(fixes) <= 302
    assert all(north == pytest.approx(54.0 + max(0, hours) * 60 / 10_000) for hours, north, _ in fixes)
    # Of a mast without a receiver there is what it has announced; before that it never was moved.
    bare = read_track(reader, "mast-07", [], FOREVER_MS)
    assert bare is not None
    assert (bare.announced, bare.fixes) == (track.announced, [])
    assert read_track(reader, "mast-07", [GPS], AT_MS) is None
    assert read_track(reader, "mast-08", [GPS], FOREVER_MS) is None
    other = reader_of(tmp_path, gateways=["mast-08"])
    assert read_track(other, "mast-07", [GPS], FOREVER_MS) is None


@pytest.mark.parametrize(
    "place", [{}, {"latitude": "54"}, {"latitude": 91, "longitude": 8}, {"latitude": None}]
)
def test_a_position_that_is_none_is_left_out(tmp_path: Path, place: dict[str, Any]) -> None:
    give(tmp_path, 0, "site-moved", {"distance_m": 900, **place})
    track = read_track(reader_of(tmp_path), "mast-07", [GPS], FOREVER_MS)
    assert track is not None
    assert (track.planned, track.announced, track.fixes) == ([], [], [])
