"""What happened at a mast: its events, its runs' starts and ends, and where it went when it was moved.

Times are those of the gateway's clock, or Kafka's where that clock was ahead.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from cloud.lake.mast import DAY_MS, rows_of, within
from cloud.lake.reader import LakeReader, Missing

MOST: Final = 200
"""Events of one list; the newest are in it."""
_LONGEST: Final = 500
_READ: Final = 4_000
"""Characters of an event's fields that are read: there may be a quarter of a megabyte."""
_WHEN: Final = "epoch_ms(least(time, kafka_time))"
_BACK: Final = ("site-moved", "site-back")


@dataclass(frozen=True)
class Happened:
    """What happened at ``at_ms`` (since 1970); ``kind`` is the gateway's name for it, ``text`` may be ''."""

    at_ms: int
    kind: str
    text: str


@dataclass(frozen=True)
class Happenings:
    """What happened in a time, the newest first, ``MOST`` at most; ``missing`` is what can't be read."""

    found: Sequence[Happened]
    is_whole: bool = True
    missing: Sequence[str] = ()


_RUNS: Final = """WITH mine AS (FROM runs WHERE gateway = ?), found AS (
        SELECT started AS moment, 'started' AS event, run,
            CASE (boot = lag(boot) OVER (ORDER BY started)) WHEN true THEN 'the machine had not stopped'
                WHEN false THEN 'the machine had booted' END AS detail FROM mine
        UNION ALL SELECT ended, state, run, NULL FROM mine WHERE ended IS NOT NULL
        UNION ALL SELECT reported_at, 'dropped', run, each.value || ' records until then: ' || each.key
            FROM (SELECT *, unnest(map_entries(dropped_records)) AS each FROM mine) WHERE each.value > 0
        UNION ALL SELECT reported_at, 'drops unknown', run, 'perhaps more than is known' FROM mine
            WHERE drops_unknown
        UNION ALL SELECT min(started), 'found to have been ' || each."end", each.run,
            'lost at most ' || max(each.lost_at_most_s) || ' s'
            FROM (SELECT started, unnest(unfinished) AS each FROM mine) GROUP BY each.run, each."end"
    )
    SELECT epoch_ms(moment) AS happened, event, run, left(detail, 500) FROM found
    WHERE epoch_ms(moment) BETWEEN ? AND ? ORDER BY moment DESC, event, run, detail LIMIT ?"""
"""What run records tell. A run that did not end itself is found by the next one, at its start."""


def happenings(reader: LakeReader, gateway: str, begin_ms: int, end_ms: int) -> Happenings:
    """What a mast's events (but its daily reports) and its runs tell of a time. Raises LakeError."""
    # A row's date is that of its arrival in Kafka, which may be long after the event, and is never before.
    events = f"""SELECT {_WHEN} AS happened, kind, run, left(fields, {_READ}) FROM events
        WHERE gateway = ? AND kind <> 'report' AND happened BETWEEN ? AND ?
        AND date >= make_timestamp({1000 * begin_ms})::DATE ORDER BY happened DESC, kind LIMIT ?"""  # noqa: S608 - numbers
    found, missing, dropped = list[Happened](), list[str](), set[str]()
    asked = [gateway, begin_ms, end_ms - 1, MOST + 1]
    for table, sql in (("events", events), ("runs", _RUNS)):
        try:
            rows = reader.read(table, sql, asked).rows
        except Missing as error:
            missing.append(str(error))
            continue
        for at_ms, kind, run, text in rows:
            if table == "events":
                dropped |= {run} if kind == "dropped" else set()
                found.append(Happened(at_ms, kind, _words(text)))
            elif kind != "dropped" or run not in dropped:
                found.append(Happened(at_ms, kind, f"run {run}" + f": {text}" * bool(text)))
    found.sort(key=lambda each: -each.at_ms)
    return Happenings(found[:MOST], len(found) <= MOST, missing)


def _words(text: str | None) -> str:
    """An event's fields in words; what was cut off, or is no object, as it is."""
    given = _fields(text)
    words = {name: each if isinstance(each, str) else json.dumps(each) for name, each in given.items()}
    line = ", ".join(f"{name} {each}" for name, each in words.items() if given[name] is not None)
    return _printable(line if given or text == "{}" else text or "")


def _fields(text: str | None) -> dict[str, Any]:
    try:
        given = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}


def _printable(text: str) -> str:
    short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return "".join(each if each.isprintable() else " " for each in short)


@dataclass(frozen=True)
class Place:
    """Where the mast was, or was to be, from ``at_ms`` on; ``what`` says which, in words."""

    at_ms: int
    what: str
    latitude: float
    longitude: float


@dataclass(frozen=True)
class Track:
    """A mast that was moved: its sites as they were planned, what it announced, the fixes of its GPS."""

    planned: Sequence[Place]
    announced: Sequence[Place]
    fixes: Sequence[Place]


_BEFORE_MS: Final = DAY_MS // 4
_AFTER_MS: Final = 7 * DAY_MS
_MOST_FIXES: Final = 300


def read_track(reader: LakeReader, gateway: str, channels: Sequence[str], until_ms: int) -> Track | None:
    """The last time before ``until_ms`` that a mast was moved, a week of it at most; None: it never was.

    ``channels`` are those of its GPS receivers. Raises Missing, LakeError.
    """
    sql = f"""SELECT {_WHEN} AS happened, kind, left(fields, {_READ}) FROM events
        WHERE gateway = ? AND kind IN (?, ?) AND happened < ? ORDER BY happened"""  # noqa: S608 - texts of ours
    rows = reader.read("events", sql, [gateway, *_BACK, until_ms]).rows
    moved = [at for at, kind, _ in rows if kind == _BACK[0]]
    if not moved:
        return None
    back = next((at for at, kind, _ in rows if kind == _BACK[1] and at > moved[-1]), None)
    begin_ms = moved[-1] - _BEFORE_MS
    # A mast that is on its way now shows all its fixes so far.
    now_ms = int(time.time() * 1000)
    end_ms = min(moved[-1] + _AFTER_MS, now_ms if back is None else back + _BEFORE_MS)
    announced = [
        Place(at, f"{kind}: {_words(text)}", *position)
        for at, kind, text in rows
        if begin_ms <= at <= end_ms and (position := _position(_fields(text))) is not None
    ]
    return Track(
        _planned(reader, gateway, moved[-1], end_ms),
        announced,
        _fixes(reader, gateway, channels, begin_ms, end_ms),
    )


def _position(given: dict[str, Any]) -> tuple[float, float] | None:
    """Degrees north and east; None where they are none."""
    latitude, longitude = given.get("latitude"), given.get("longitude")
    if not isinstance(latitude, int | float) or not isinstance(longitude, int | float):
        return None
    return (latitude, longitude) if abs(latitude) <= 90 and abs(longitude) <= 180 else None


def _planned(reader: LakeReader, gateway: str, moved_ms: int, end_ms: int) -> list[Place]:
    """The site when the mast was moved, and those that were entered afterwards."""
    rows = rows_of(reader, "sites", ("latitude", "longitude"), gateway, [])
    rows = sorted((row for row in rows if _position(row) is not None), key=lambda row: row["valid_from_at"])
    before = [row for row in rows if row["valid_from_at"] <= moved_ms][-1:] or rows[:1]
    after = [row for row in rows if moved_ms < row["valid_from_at"] <= end_ms and row not in before]
    return [
        Place(row["valid_from_at"], "planned site", row["latitude"], row["longitude"])
        for row in before + after
    ]


def _fixes(
    reader: LakeReader, gateway: str, channels: Sequence[str], begin_ms: int, end_ms: int
) -> list[Place]:
    """Positions of a time, some minutes apart; none of a mast without a GPS channel."""
    if not channels:
        return []
    step_ms = max(60_000, (end_ms - begin_ms) // _MOST_FIXES)
    asked = ", ".join("?" * len(channels))
    sql = f"""SELECT epoch_ms(min(time)) AS first, arg_min(latitude, time), arg_min(longitude, time)
        FROM readings WHERE gateway = ? AND channel IN ({asked})
        AND latitude IS NOT NULL AND longitude IS NOT NULL AND {within("time", begin_ms, end_ms)}
        GROUP BY epoch_ms(time) // {step_ms} ORDER BY first"""  # noqa: S608 - numbers and marks
    try:
        rows: Sequence[Sequence[Any]] = reader.read("readings", sql, [gateway, *channels]).rows
    except Missing:
        rows = ()
    return [Place(at, "GPS", latitude, longitude) for at, latitude, longitude in rows]
