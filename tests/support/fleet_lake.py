"""A lake of made-up masts with a history, its tables written directly: what the pages show, without Spark.

Wind is a slow random walk with a daily course, higher up stronger; one mast in five has a fault of its own.
"""

from __future__ import annotations

import argparse
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql.pandas.types import to_arrow_schema

from cloud.lake.reader import LakeReader
from spark_jobs.platform import schemas
from spark_jobs.platform.schemas import Table

CUPS: Final = tuple(
    (f"cup-{height}m-{side}.wind_speed", height, side) for height in (20, 30, 50) for side in "ab"
)
OTHERS: Final = (
    ("vane-48m.wind_direction", "wind_direction", "deg"),
    ("vane-28m.wind_direction", "wind_direction", "deg"),
    ("dht.temperature", "temperature", "Cel"),
    ("dht.humidity", "humidity", "%RH"),
    ("baro.pressure", "pressure", "kPa"),
    ("pyranometer.irradiance", "irradiance", "W/m2"),
)
INTERVAL_S: Final = 600
NAMES: Final = ("Ridge", "Pass", "Plateau", "Saddle", "Shoulder", "Dome", "Spur", "Col")


def write(lake: Path, table: Table, columns: dict[str, Any]) -> None:
    """Writes rows, given by column; what isn't given is null."""
    schema = to_arrow_schema(table.schema)
    n = len(next(iter(columns.values())))
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if isinstance(values, np.ndarray) and pa.types.is_timestamp(field.type):
            arrays.append(pa.array(values.astype("datetime64[us]")).cast(field.type, safe=False))
        elif isinstance(values, np.ndarray) and values.dtype.kind == "f":
            arrays.append(pa.array(values, mask=np.isnan(values)).cast(field.type))
        else:
            arrays.append(pa.nulls(n, field.type) if values is None else pa.array(values).cast(field.type))
    partitions = ["date"] if table.partitioned_by_date else None
    rows = pa.Table.from_arrays(arrays, schema=schema)
    write_deltalake(str(lake / table.name), rows, mode="append", partition_by=partitions)


def reader_of(lake: Path, **options: Any) -> LakeReader:
    """A reader of a lake as it is; ``options`` are LakeReader's."""
    reader = LakeReader({"lake": (str(lake), None)}, **options)
    reader.look()
    return reader


def write_fleet(lake: Path, masts: int, days: int, *, end: datetime, seed: int = 7) -> list[str]:
    """The tables of so many masts up to ``end``; their ids."""
    chance = np.random.default_rng(seed)
    ids = [f"mast-{at + 1:02d}" for at in range(masts)]
    n = days * 86_400 // INTERVAL_S
    first = np.datetime64(end.astimezone(UTC).replace(tzinfo=None), "us") - n * np.timedelta64(
        INTERVAL_S, "s"
    )
    starts = first + np.arange(n) * np.timedelta64(INTERVAL_S, "s")
    blocks = [_channels(gateway, at, starts, chance) for at, gateway in enumerate(ids)]
    dates = starts.astype("datetime64[D]")
    for day in np.unique(dates):
        here = dates == day
        parts = [
            {name: values[here] if isinstance(values, np.ndarray) else [values] * int(here.sum())
             for name, values in channel.items()}
            for block in blocks for channel in block
        ]  # fmt: skip
        joined = {
            name: np.concatenate([part[name] for part in parts]) if isinstance(parts[0][name], np.ndarray)
            else [value for part in parts for value in part[name]]
            for name in parts[0]
        }  # fmt: skip
        write(lake, schemas.STATISTICS, joined)
    _write_records(lake, ids, blocks, starts, chance)
    return ids


def _walk(n: int, memory: float, chance: np.random.Generator) -> np.ndarray:
    noise = chance.normal(size=n) * np.sqrt(1 - memory**2)
    values = np.empty(n)
    last = chance.normal()
    for at in range(n):
        values[at] = last = memory * last + noise[at]
    return values


def _channels(gateway: str, at: int, starts: Any, chance: np.random.Generator) -> list[dict[str, Any]]:
    """Statistics of each channel of a mast, by column."""
    n = len(starts)
    hour = ((starts - starts.astype("datetime64[D]")) / np.timedelta64(1, "h") + 5.75) % 24
    site = 6.2 + 0.5 * (at % 6)
    speed = site * np.exp(0.42 * _walk(n, 0.992, chance)) * (1 + 0.22 * np.sin((hour - 10) / 24 * 2 * np.pi))
    direction = (285 + 40 * _walk(n, 0.995, chance) + 60 * (_walk(n, 0.998, chance) > 0.9)) % 360
    intensity = 0.1 * np.exp(0.18 * _walk(n, 0.9, chance)) + 0.25 / np.maximum(speed, 1)
    alpha = 0.15 + 0.08 * np.cos((hour - 2) / 24 * 2 * np.pi) + 0.02 * _walk(n, 0.98, chance)
    sun = np.clip(np.sin((hour - 6) / 12 * np.pi), 0, 1)
    cloud = np.clip(1 - 0.35 * np.abs(_walk(n, 0.97, chance)), 0.1, 1)
    made = []
    gap = np.zeros(n, bool)
    if at % 5 == 2:  # an outage, of a day and a half
        gap[int(n * 0.55) : int(n * 0.55) + min(216, n // 6)] = True
    for name, height, side in CUPS:
        avg = np.maximum(0.35, speed * (height / 50) ** alpha * (0.997 if side == "b" else 1.0))
        wake = (np.abs((direction - (135 if side == "a" else 315) + 180) % 360 - 180) < 18) * 0.09
        avg = avg * (1 - wake) + chance.normal(scale=0.04, size=n)
        sd = intensity * avg * (1 + 0.04 * chance.normal(size=n))
        top = avg + sd * (2.7 + 0.25 * chance.normal(size=n))
        iced = (at % 5 == 3) & (np.abs(np.arange(n) - n * 0.3) < 60) & (side == "a") & (height == 50)
        made.append(_rows(gateway, name, "wind_speed", "m/s", starts, avg, sd, top, gap, iced, chance))
    temperature = 11 + 5 * np.sin((hour - 9) / 24 * 2 * np.pi) + 3 * _walk(n, 0.999, chance)
    values = {
        "vane-48m.wind_direction": (direction, 6 + 40 * intensity),
        "vane-28m.wind_direction": ((direction - 4 + chance.normal(size=n)) % 360, 7 + 44 * intensity),
        "dht.temperature": (temperature, np.full(n, 0.2)),
        "dht.humidity": (np.clip(62 - 2.2 * (temperature - 11) + 8 * _walk(n, 0.995, chance), 15, 99),
         np.full(n, 0.9)),
        "baro.pressure": (81 - 0.2 * (at % 8) + 0.5 * _walk(n, 0.9985, chance), np.full(n, 0.01)),
        "pyranometer.irradiance": (980 * sun * cloud - 1.0, 40 * sun + 0.3),
    }  # fmt: skip
    none = np.zeros(n, bool)
    for name, quantity, unit in OTHERS:
        avg, sd = values[name]
        top = avg + 2.5 * sd
        made.append(_rows(gateway, name, quantity, unit, starts, avg, sd, top, gap, none, chance))
    return made


def _rows(
    gateway: str, channel: str, quantity: str, unit: str, starts: Any, avg: Any, sd: Any, top: Any, gap: Any,
    bad: Any, chance: np.random.Generator,
) -> dict[str, Any]:  # fmt: skip
    n = len(starts)
    expected = np.full(n, INTERVAL_S // (2 if channel.startswith("dht") else 1))
    count = expected - (chance.random(n) < 0.08) * chance.integers(1, 40, n)
    suspect = np.where(bad, count * 4 // 5, (chance.random(n) < 0.01) * 30)
    fail = np.where(bad & (chance.random(n) < 0.3), count - suspect, 0)
    count = np.where(gap, 0, count - suspect - fail)
    suspect, fail = np.where(gap, 0, suspect), np.where(gap, 0, fail)
    out = gap | (count == 0)
    direction, wind = quantity == "wind_direction", quantity == "wind_speed"
    nan = np.full(n, np.nan)
    return {
        "gateway": gateway, "channel": channel, "quantity": quantity, "unit": unit, "interval_s": INTERVAL_S,
        "interval_start": starts, "date": starts.astype("datetime64[D]"),
        "avg": np.where(out, np.nan, avg), "sd": np.where(out, np.nan, sd),
        "min": nan if direction else np.where(out, np.nan, np.maximum(0,
         2 * avg - top) if wind else 2 * avg - top),
        "max": nan if direction else np.where(out, np.nan, top),
        "gust": np.where(out | (not wind), np.nan, avg + 0.85 * (top - avg)),
        "max_time": starts + np.arange(n) * 7 % INTERVAL_S * np.timedelta64(1, "s"),
        "gust_time": starts + np.arange(n) * 11 % (INTERVAL_S - 3) * np.timedelta64(1, "s"),
        "cube_mean": np.where(out | (not wind), np.nan, avg**3 + 3 * avg * sd**2),
        "count": count, "expected": expected, "recovery": count / expected, "period_ms": 1000,
        "n_good": count, "n_not_evaluated": np.zeros(n, int), "n_suspect": suspect, "n_fail": fail,
        "n_missing": np.where(gap, 0, expected - count - suspect - fail),
        "quality": np.where(gap, 9, np.where(fail > 0, 4, np.where(suspect > 0, 3, 1))),
        "version": np.ones(n, int), "updated_at": starts + np.timedelta64(INTERVAL_S + 60, "s"),
    }  # fmt: skip


def _write_records(lake: Path, ids: list[str], blocks: Any, starts: Any, chance: np.random.Generator) -> None:
    end = datetime.fromisoformat(f"{starts[-1]}+00:00") + timedelta(seconds=INTERVAL_S)
    begin = end - timedelta(days=400)
    names = [name for name, _, _ in CUPS] + [name for name, _, _ in OTHERS]
    each = [
        (gateway, at, name, column) for at, gateway in enumerate(ids) for column, name in enumerate(names)
    ]
    states = ["offline" if at % 5 == 2 and at % 2 == 0 else "online" for at in range(len(ids))]
    ages = [9000 if state == "offline" else 4 + at % 7 for at, state in enumerate(states)]
    last = [end - timedelta(seconds=ages[at]) for _, at, _, _ in each]
    values = [np.nan_to_num(blocks[at][column]["avg"][-1], nan=7.0) for _, at, _, column in each]
    write(lake, schemas.PRESENCE, {
        "gateway": [row[0] for row in each], "channel": [row[2] for row in each], "last_seen": last,
        "last_time": last, "last_value": np.array(values), "period_ms": [1000] * len(each),
        "state": ["silent" if at % 7 == 4 and name.startswith("dht") else states[at] for _, at, name,
         _ in each],
        "pending": [40 if states[at] == "offline" else 2 for _, at, _, _ in each],
        "lost": [17 if at % 5 == 2 else 0 for _, at, _, _ in each],
        "announced": [3 if at % 5 == 2 else 0 for _, at, _, _ in each], "updated_at": [end] * len(each),
    })  # fmt: skip
    write(lake, schemas.SITES, {
        "gateway": ids, "valid_from": [begin] * len(ids),
         "elevation_m": [1900.0 + 70 * (at % 9) for at in range(len(ids))],
        "latitude": 27.3 + 1.6 * chance.random(len(ids)), "longitude": 83.6 + 3.4 * chance.random(len(ids)),
        "name": [f"{NAMES[at % len(NAMES)]} {at // len(NAMES) + 1}" for at in range(len(ids))],
        "owner": ["Example Wind"] * len(ids), "utc_offset_min": [345] * len(ids), "revision": [1] * len(ids),
        "updated_at": [begin] * len(ids),
    })  # fmt: skip
    cups = {name: (height, side) for name, height, side in CUPS}
    cup_of = [cups.get(row[2]) for row in each]
    kinds = {name: (quantity, unit) for name, quantity, unit in OTHERS}
    heights = {"vane-48m.wind_direction": 48.0, "vane-28m.wind_direction": 28.0}
    write(lake, schemas.CHANNELS, {
        "gateway": [row[0] for row in each], "channel": [row[2] for row in each],
        "cal": [f"{hash_of(gateway, name):08x}" for gateway, _, name, _ in each],
        "valid_from": [begin] * len(each), "in_force": [True] * len(each), "revision": [1] * len(each),
        "periods": [[{"begin": begin, "end": None}]] * len(each),
         "kind": ["direction" if "direction" in row[2] else "linear" for row in each],
        "sensor": [row[2].partition(".")[0] for row in each], "interval_s": [1.0] * len(each),
        "quantity": [kinds[row[2]][0] if row[2] in kinds else "wind_speed" for row in each],
        "unit": [kinds[row[2]][1] if row[2] in kinds else "m/s" for row in each],
        "slope": [0.765 if row[2] in cups else 1.0 for row in each],
         "offset": [0.35 if row[2] in cups else 0.0 for row in each],
        "model": ["NRG 40H" if row[2] in cups else None for row in each],
        "serial": [f"1795{hash_of(gateway, name) % 10**8:08d}" for gateway, _, name, _ in each],
        "certificate": [f"26-{at:02d}{column:02d}" if name in cups else None for _, at, name, column in each],
        "lab": ["Example Wind Tunnel" if row[2] in cups else None for row in each],
        "calibrated": [begin.date() if row[2] in cups else None for row in each],
        "expires": [(begin + timedelta(days=730)).date() if cup else None for cup in cup_of],
        "height_m": [float(cups[row[2]][0]) if row[2] in cups else heights.get(row[2], 2.0) for row in each],
        "boom_deg": [cup and (315.0 if cup[1] == "a" else 135.0) for cup in cup_of],
        "pair": [f"cup-{cup[0]}m-b" if cup and cup[1] == "a" else None for cup in cup_of],
    })  # fmt: skip
    _write_runs_and_alerts(lake, ids, end, names)
    half = len(starts)
    for at, gateway in enumerate(ids):
        by = {rows["channel"]: rows for rows in blocks[at]}
        at_ = slice(len(starts) - half, None)
        cups_ti = [name for name, _, _ in CUPS]
        ti, power, pairs = (_maps(by, cups_ti, of) for of in (_intensity, _power, _difference))
        low, high = by[CUPS[0][0]]["avg"][at_], by[CUPS[4][0]]["avg"][at_]
        if at < 1000:
            write(lake, schemas.MAST, {
                "gateway": [gateway] * half, "interval_s": [INTERVAL_S] * half, "interval_start": starts[at_],
                "date": starts[at_].astype("datetime64[D]"), "turbulence_intensity": _map(ti),
                "wind_power_density": _map(power), "pair_difference": _map(pairs),
                "shear_alpha": np.log(high / low) / np.log(2.5), "air_density": np.full(half, 0.99),
                "insolation": by["pyranometer.irradiance"]["avg"][at_] / 6, "version": [1] * half,
            })  # fmt: skip


def hash_of(*texts: str) -> int:
    """The same in each process."""
    return zlib.crc32("/".join(texts).encode())


def _maps(by: dict[str, Any], names: list[str], of: Any) -> list[Any]:
    columns = [(name, of(by, name)) for name in names]
    columns = [(name, values.tolist()) for name, values in columns if values is not None]
    n = len(columns[0][1])
    return [
        [(name, values[row]) for name, values in columns if values[row] == values[row]] for row in range(n)
    ]


def _intensity(by: dict[str, Any], name: str) -> Any:
    return np.where(by[name]["avg"] > 3, by[name]["sd"] / by[name]["avg"], np.nan)


def _power(by: dict[str, Any], name: str) -> Any:
    return 0.5 * 0.99 * by[name]["cube_mean"]


def _difference(by: dict[str, Any], name: str) -> Any:
    """Of the primaries, those on the side a."""
    twin = name.replace("a.wind_speed", "b.wind_speed")
    return None if twin == name else by[name]["avg"] - by[twin]["avg"]


def _map(rows: list[Any]) -> Any:
    return pa.array(rows, pa.map_(pa.string(), pa.float64()))


def _write_runs_and_alerts(lake: Path, ids: list[str], end: datetime, names: list[str]) -> None:
    runs = [(gateway, f"{hash_of(gateway, str(turn)):012x}", turn) for gateway in ids for turn in range(3)]
    begins = [end - timedelta(days=40 - 14 * turn) for _, _, turn in runs]
    ends = [
        begin + timedelta(days=13, hours=20) if turn < 2 else None
        for begin, (_, _, turn) in zip(begins, runs, strict=True)
    ]
    write(lake, schemas.RUNS, {
        "gateway": [run[0] for run in runs], "run": [run[1] for run in runs], "started": begins,
         "ended": ends,
        "state": ["running" if ended is None else "stopped" for ended in ends], "revision": [1] * len(runs),
        "outbox_records": [480 if at % 15 == 8 else 2 for at in range(len(runs))],
         "in_flight": [3] * len(runs),
        "last_seq": pa.array([[(name, 1_200_000) for name in names]] * len(runs), pa.map_(pa.string(),
         pa.int64())),
        "reported_at": [end] * len(runs), "date": [None if ended is None else ended.date() for ended in ends],
    })  # fmt: skip
    kinds = (
        ("enclosure-hot", "critical", None),
        ("icing", "warning", "cup-50m-a.wind_speed"),
        ("silent", "major", None),
    )
    raised = [(gateway, at, *kinds[at % 3]) for at, gateway in enumerate(ids) if at % 4 in (2, 3)]
    write(lake, schemas.ALERTS, {
        "id": [f"{hash_of(row[0], row[2]):032x}" for row in raised], "gateway": [row[0] for row in raised],
        "rule": [row[2] for row in raised], "severity": [row[3] for row in raised],
         "channel": [row[4] for row in raised],
        "kind": ["threshold"] * len(raised), "rule_version": ["1"] * len(raised),
        "raised_at": [end - timedelta(hours=2 + row[1]) for row in raised],
        "cleared_at": [end - timedelta(hours=1 + row[1]) if row[1] % 8 == 3 else None for row in raised],
        "value": [71.5] * len(raised), "detail": [f"{row[0]}: {row[2]}" for row in raised],
        "historical": [False] * len(raised),
    })  # fmt: skip


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("lake", type=Path)
    arguments.add_argument("--masts", type=int, default=10)
    arguments.add_argument("--days", type=int, default=30)
    given = arguments.parse_args()
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    now = now.replace(minute=now.minute // 10 * 10)
    write_fleet(given.lake, given.masts, given.days, end=now)
