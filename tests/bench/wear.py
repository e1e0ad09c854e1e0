"""Made-up masts whose wear is known, judged by the trends week by week: lead times and false alarms.

``python -m tests.bench.wear --masts 100`` prints a table. Each mast has a year of ten-minute intervals and of
daily reports: weather, seasons, sectors in the tower's shadow, calm weeks, outages; one in two has a fault
that begins on some day. The sun's height and the clear sky are computed by other formulas than the trends'.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from statistics import median
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from cloud.trends import HISTORY_DAYS, KINDS, Daily, Trend, queries, reported, trends

FIRST: Final = date(2025, 1, 1)
DAYS: Final = 365
PER_DAY: Final = 144
WITHIN_DAYS: Final = {"twins": 45, "soiling": 20, "supply": 60, "errors": 30, "disk": 14, "outbox": 14}
"""As the packaged rules have it."""
FAULTS: Final = ("twins", "soiling", "supply", "errors", "disk", "outbox")
RATES: Final = {"twins": 1.0, "soiling": 3.0, "supply": 2.0, "errors": 3.0, "disk": 4500.0, "outbox": 45.0}
"""Per month: % of speed, of irradiance, of voltage, of readings, MB, % of the outbox."""
_LATITUDE, _LONGITUDE = 27.7, 85.5


@dataclass(frozen=True)
class History:
    """A mast's year as tables; ``fault`` begins on day ``begins`` and is at its limit on day ``ends``.

    Cup a is in the tower's shadow when the wind comes from ``shadow_deg``, its twin when from opposite.
    """

    tables: dict[str, pa.Table]
    fault: str | None
    begins: int
    ends: int
    shadow_deg: float


def _slow(n: int, days: float, chance: np.random.Generator, per_day: int = 1) -> Any:
    """A walk of deviation 1 that forgets in so many days."""
    memory = np.exp(-1 / (days * per_day))
    steps = chance.normal(size=n) * np.sqrt(1 - memory**2)
    values, last = np.empty(n), chance.normal()
    for at in range(n):
        values[at] = last = memory * last + steps[at]
    return values


def _hourly(n: int, days: float, chance: np.random.Generator) -> Any:
    return np.interp(np.arange(n) / 6, np.arange(n // 6 + 1), _slow(n // 6 + 1, days, chance, 24))


def _cos_zenith(day: Any, utc_h: Any) -> Any:
    """Spencer's series (1971, Search 2:172)."""
    g = 2 * np.pi * day / 365
    declination = (
        0.006918 - 0.399912 * np.cos(g) + 0.070257 * np.sin(g) - 0.006758 * np.cos(2 * g)
        + 0.000907 * np.sin(2 * g) - 0.002697 * np.cos(3 * g) + 0.00148 * np.sin(3 * g)
    )  # fmt: skip
    minutes = 229.18 * (
        0.000075 + 0.001868 * np.cos(g) - 0.032077 * np.sin(g) - 0.014615 * np.cos(2 * g)
        - 0.04089 * np.sin(2 * g)
    )  # fmt: skip
    angle = np.radians(15 * (utc_h + _LONGITUDE / 15 + minutes / 60 - 12))
    phi = np.radians(_LATITUDE)
    return np.sin(phi) * np.sin(declination) + np.cos(phi) * np.cos(declination) * np.cos(angle)


def simulate(seed: int, fault: str | None, first: date = FIRST, begins: int | None = None) -> History:
    """A mast's year from ``first`` on; without ``begins`` the fault begins on a day by chance."""
    chance = np.random.default_rng(seed)
    n = DAYS * PER_DAY
    at = np.arange(n)
    day, hour = at // PER_DAY, at % PER_DAY / 6
    by_chance = int(chance.integers(90, 200))
    begins = by_chance if begins is None else begins
    worn = np.clip(np.arange(DAYS) - begins, 0, None) / 30
    rate = {name: RATES[name] * (fault == name) for name in FAULTS}
    season = np.cos(2 * np.pi * (day - chance.integers(0, 365)) / 365)
    measured = np.ones(n, bool)
    for _ in range(chance.integers(2, 5)):
        gap = int(chance.integers(0, DAYS - 15)) * PER_DAY
        measured[gap : gap + int(chance.integers(2, 14) * PER_DAY)] = False
    rows: list[dict[str, Any]] = []

    def add(channel: str, quantity: str, avg: Any, sd: Any, where: Any) -> None:
        kept = measured & where
        values = {"avg": avg[kept], "sd": sd[kept], "at": at[kept]}
        rows.append({"channel": channel, "quantity": quantity, **values})

    # Wind: cup a is in the tower's shadow in three sectors, b in the opposite ones; calm weeks come.
    calm = np.repeat(_slow(DAYS // 7 + 1, 3, chance) > 1.3, 7)[:DAYS][day]
    speed = (6.5 + season) * np.exp(0.45 * _hourly(n, 2, chance)) * np.where(calm, 0.3, 1.0)
    direction = (250 + 60 * season + 50 * _hourly(n, 3, chance) + 150 * (_hourly(n, 9, chance) > 1)) % 360
    lattice = 0.015 * np.sin(np.radians(3 * direction + chance.integers(0, 360)))
    boom = float(chance.integers(0, 360))

    def shadow(towards: float) -> Any:
        off = np.abs((direction - towards + 180) % 360 - 180)
        return 1 - 0.2 * np.exp(-((off / 18) ** 2))

    weather = 0.004 * _slow(DAYS, 4, chance)[day] + 0.003 * season
    a = speed * shadow(boom) * (1 + lattice + weather) * (1 + 0.012 * chance.normal(size=n))
    a *= 1 - rate["twins"] / 100 * worn[day]
    b = speed * shadow(boom + 180) * (1 + chance.normal(0, 0.01)) * (1 + 0.012 * chance.normal(size=n))
    every = np.ones(n, bool)
    add("cup-a.wind_speed", "wind_speed", a, 0.12 * a, every)
    add("cup-b.wind_speed", "wind_speed", b, 0.12 * b, every)
    add("vane.wind_direction", "wind_direction", direction, np.full(n, 8.0), every)

    # Sun: haze of the season and of some days; rain cleans to nine tenths, in a dry season there is none.
    cos_z = np.clip(_cos_zenith(day + first.timetuple().tm_yday - 1, hour + 1 / 12), 0, 1)
    haze = 1 - 0.02 * np.cos(2 * np.pi * (day - 20) / 365) + 0.018 * _slow(DAYS, 5, chance)[day]
    cover = _hourly(n, 1.5, chance) + 0.5 * np.cos(2 * np.pi * (day - 200) / 365)
    cloud = np.where(cover > 0.4, 0.25 + 0.5 * chance.random(n), 1.0)
    dirt, lost = np.zeros(DAYS), 0.0
    for each in range(DAYS):
        is_dry = fault == "soiling" and each >= begins
        lost = lost * 0.1 if not is_dry and chance.random() < 0.12 else lost + RATES["soiling"] / 3000
        if fault == "soiling" and each == begins:
            lost = 0.0
        dirt[each] = lost
    sun = np.clip(910 * cos_z - 30, 0, None) * haze * cloud * (1 - dirt[day])
    unsteady = np.where(cloud < 1, 0.15, 0.004) * sun
    add("pyranometer.irradiance", "irradiance", sun, unsteady, sun > 5)

    cold = 0.15 * np.cos(2 * np.pi * (day - 15) / 365) + 0.12 * _slow(DAYS, 3, chance)[day]
    volts = 12.7 - cold + 1.1 * np.clip(cos_z, 0, 0.6) - 0.02 * ((hour + 18) % 24) / 24
    volts *= 1 - rate["supply"] / 100 * worn[day]
    add("battery.voltage", "voltage", volts, np.full(n, 0.02), at % 6 == 0)

    reports = _reports(chance, rate, worn, measured.reshape(DAYS, PER_DAY).any(axis=1), first)
    starts = np.datetime64(first, "us") + at * np.timedelta64(600, "s")
    statistics = pa.concat_tables([
        pa.table({
            "channel": [each["channel"]] * len(each["at"]), "quantity": [each["quantity"]] * len(each["at"]),
            "interval_start": pa.array(starts[each["at"]], pa.timestamp("us", tz="UTC")),
            "date": pa.array(starts[each["at"]].astype("datetime64[D]")),
            "avg": each["avg"], "sd": each["sd"],
        })
        for each in rows
    ])  # fmt: skip
    limit = abs(KINDS[fault].limit) if fault else 0.0
    if fault == "disk":
        limit = 20_000 - limit
    elif fault == "outbox":
        limit -= 1
    ends = begins + round(30 * limit / RATES[fault]) if fault else DAYS
    return History({"statistics": statistics, "health": reports}, fault, begins, ends, boom)


def _reports(
    chance: np.random.Generator, rate: dict[str, float], worn: Any, is_up: Any, first: date
) -> pa.Table:
    """Daily reports: some fail a little, an uplink that is away for days fills the outbox for as long."""
    errors = np.clip(0.004 + 0.004 * chance.standard_exponential(DAYS) + rate["errors"] / 100 * worn, 0, 1)
    errors += np.where(chance.random(DAYS) < 0.01, 0.3 * chance.random(DAYS), 0)
    share = 0.01 + rate["outbox"] / 100 * worn + 0.002 * chance.random(DAYS)
    for _ in range(chance.integers(2, 8)):
        away, long = int(chance.integers(0, DAYS - 9)), int(chance.integers(1, 9))
        share[away : away + long] += 0.03 * np.arange(1, long + 1)
    wander = 150 * _slow(DAYS, 4, chance) - 400 * (np.arange(DAYS) % 30) / 30
    free = np.clip(20_000 + wander - rate["disk"] * worn, 0, None) * 1e6
    days = [at for at in range(DAYS) if is_up[at]]
    begin = datetime(first.year, first.month, first.day, 5, tzinfo=UTC)
    times = pa.array([begin + timedelta(days=at) for at in days], pa.timestamp("us", tz="UTC"))
    recovery = pa.array([[("dht.temperature", max(0.0, 1 - errors[at]))] for at in days],
                        pa.map_(pa.string(), pa.float64()))  # fmt: skip
    return pa.table({
        "time": times, "kafka_time": times, "date": pa.array([first + timedelta(at) for at in days]),
        "daemon": pa.nulls(len(days), pa.string()), "recovery": recovery,
        "outbox_bytes": pa.array([int(1e9 * min(share[at], 1)) for at in days]),
        "outbox_max_bytes": pa.array([10**9] * len(days)),
        "disk_free_bytes": pa.array([int(free[at]) for at in days]),
    })  # fmt: skip


_CHANNELS: Final = """CREATE TABLE channels AS SELECT 'm' AS gateway, unnest(['cup-a.wind_speed',
    'cup-b.wind_speed', 'vane.wind_direction']) AS channel, unnest(['wind_speed', 'wind_speed',
    'wind_direction']) AS quantity, unnest(['cup-b', NULL, NULL]) AS pair, 50.0 AS height_m,
    MAP {'unused': '0'} AS settings, NULL::TIMESTAMPTZ AS valid_from, NULL::TIMESTAMPTZ AS updated_at;
    CREATE TABLE sites AS SELECT 'm' AS gateway, 27.7 AS latitude, 85.5 AS longitude,
    TIMESTAMPTZ '2020-01-01 00:00:00Z' AS valid_from"""


def weekly(history: History, every: int = 7) -> Iterator[tuple[int, list[Trend]]]:
    """The trends of each week: the day, from 0, and what they are then."""
    with duckdb.connect(":memory:", config={"threads": 1}) as lake:
        lake.execute("SET TimeZone = 'UTC'")
        lake.execute(_CHANNELS)
        for name, table in history.tables.items():
            lake.register("given", table)
            more = ", 600 AS interval_s, 1 AS version, 1.0 AS recovery" if name == "statistics" else ""
            lake.execute(f"CREATE TABLE {name} AS SELECT 'm' AS gateway, *{more} FROM given")  # noqa: S608
        # A day's values are the same whenever they are asked for.
        daily = list[Daily]()
        for end in (HISTORY_DAYS, 2 * HISTORY_DAYS, 3 * HISTORY_DAYS):
            for name, sql in queries(FIRST + timedelta(days=end)).items():
                rows = lake.execute(sql).fetchall()
                daily += reported(rows) if name == "reports" else (Daily(*row) for row in rows)
    for day in range(35, DAYS, every):
        until = FIRST + timedelta(days=day)
        since = until - timedelta(days=HISTORY_DAYS)
        yield day, list(trends((each for each in daily if since <= each.day < until), until))


_TWIN: Final = "cup-b.wind_speed"
"""The cup that doesn't wear."""


def is_due(trend: Trend) -> bool:
    """As the packaged rules judge it."""
    left = trend.days_left
    return left is not None and left < WITHIN_DAYS.get(trend.kind, 0)


def judge(history: History, every: int = 7) -> tuple[float | None, list[tuple[int, Trend]]]:
    """Days from the first alarm of the fault to its limit, None without one; and alarms of nothing."""
    lead, false, open_ = None, [], set[tuple[str | None, str]]()
    for day, found in weekly(history, every):
        due = {(each.channel, each.kind): each for each in found if is_due(each)}
        for key, each in due.items():
            is_right = each.kind == history.fault and day > history.begins and each.channel != _TWIN
            if is_right and lead is None:
                lead = float(history.ends - day)
            if not is_right and key not in open_:
                false.append((day, each))
        open_ = set(due)
    return lead, false


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--masts", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    leads: dict[str, list[float | None]] = {name: [] for name in FAULTS}
    false, write = 0, sys.stdout.write
    for at in range(given.masts):
        fault = FAULTS[at // 2 % len(FAULTS)] if at % 2 else None
        lead, wrong = judge(simulate(given.seed * 10_000 + at, fault))
        false += len(wrong)
        for day, each in wrong:
            write(f"mast {at} ({fault}), day {day}: {each.channel}: {each.detail}\n")
        if fault:
            leads[fault].append(lead)
    write("fault | masts | warned of | before the limit | 14 days before | median lead, days\n")
    for name, of_fault in leads.items():
        found = [lead for lead in of_fault if lead is not None]
        counts = (sum(lead >= least for lead in found) for least in (1, 14))
        middle = f"{median(found):.0f}" if found else "-"
        write(" | ".join(map(str, (name, len(of_fault), len(found), *counts, middle))) + "\n")
    write(f"false alarms: {false} in {given.masts} years\n")


if __name__ == "__main__":
    main()
