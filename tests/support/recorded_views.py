"""A recorded mast brought in by ``fieldgate import``, and each view of it beside pandas of the files.

The recording is three months of ten minutes, ../shared/data/mast_10min_3months.csv.gz; it has no pyranometer,
so a second logger's file is made up, a sun with holes. What is expected is made of the files alone, never of
the lake. Weibull's A and k are those of windkit.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from deltalake import DeltaTable

from cloud.dashboard.fleet import FleetReader
from cloud.dashboard.live import LiveReader
from cloud.dashboard.views import Request, open_view
from cloud.lake.numbers import series, summary
from cloud.lake.reader import LakeReader
from spark_jobs.platform import schemas
from spark_jobs.transforms.mast_values import MountedChannel, mast_values
from tests.support.commands import import_files as run
from tests.support.fleet_lake import write

MAST: Final = "old-mast-80m"
EXAMPLE: Final = Path(__file__).parents[2] / "docs" / "examples" / "import.toml"
SUN_MAPPING: Final = f"""
[file]
gateway = "{MAST}"
format = "csv"
time = "Time"
interval = "10m"
scan = "1s"
stamps = "end"
utc_offset = "+01:00"
missing = ["NAN"]
[[channel]]
sensor = "sun"
quantity = "irradiance"
avg = "Sun"
max = "SunMax"
count = "SunCount"
"""
CUPS: Final = {
    f"Spd{height}m{side}": f"cup-{height}m-{side.lower()}.wind_speed"
    for height in (80, 60, 40)
    for side in "NS"
}
VANES: Final = {f"Dir{height}mS": f"vane-{height}m.wind_direction" for height in (78, 58, 38)}
SCALED: Final = {
    "T2m": ("air.temperature", 1.0), "RH2m": ("air.humidity", 1.0), "P2m": ("baro.pressure", 0.1),
    "BattMin": ("battery.voltage", 1.0),
}  # fmt: skip
SUN, RAIN, TOP, TWIN = "sun.irradiance", "rain.precipitation", "cup-80m-n.wind_speed", "cup-80m-s.wind_speed"
VANE: Final = "vane-78m.wind_direction"
AHEAD: Final = pd.Timedelta(hours=1)
"""The example's site is an hour ahead of UTC."""
_STEP: Final = pd.Timedelta(minutes=10)
WINDKIT: Final = {
    ("2016-02-01", "cup-80m-n.wind_speed"): (8.314908764221146, 1.8221866613252347),
    ("2016-02-01", "cup-80m-s.wind_speed"): (8.23446945377665, 1.8028642160446031),
    ("2016-02-01", "cup-60m-n.wind_speed"): (7.7843290904592255, 1.7994372129513359),
    ("2016-02-01", "cup-60m-s.wind_speed"): (7.862618046251466, 1.7643986753416137),
    ("2016-02-01", "cup-40m-n.wind_speed"): (7.4758083764392005, 1.7598431925781568),
    ("2016-02-01", "cup-40m-s.wind_speed"): (7.50571702298658, 1.7325979097117832),
    ("2016-07-27", "cup-80m-n.wind_speed"): (6.686402765242057, 2.534291496005158),
    ("2016-07-27", "cup-80m-s.wind_speed"): (6.648232434285476, 2.5266300735621834),
    ("2016-07-27", "cup-60m-n.wind_speed"): (6.515165402540474, 2.4209966762244455),
    ("2016-07-27", "cup-60m-s.wind_speed"): (6.535088842533311, 2.3655423393740715),
    ("2016-07-27", "cup-40m-n.wind_speed"): (6.357049734482647, 2.330750940509095),
    ("2016-07-27", "cup-40m-s.wind_speed"): (6.352253507739617, 2.288918895830203),
}
"""Of windkit 2.2.0, ``fit_weibull_wasp_m1_m3`` of the mean and mean cube of the column from that day on, atol
1e-12."""

Ask = Callable[[str, Mapping[str, str]], str]
"""The text of a chart's CSV, by the chart's name and the address' query."""


@dataclass(frozen=True)
class Recording:
    """The files' rows on the whole grid of ten minutes, NaN where they have none."""

    data: pd.DataFrame

    @property
    def times(self) -> pd.DatetimeIndex:
        """When its intervals begin, UTC."""
        return pd.DatetimeIndex(self.data.index)

    @property
    def local(self) -> pd.DatetimeIndex:
        """The same by the site's clock."""
        return self.times + AHEAD

    def since(self, day: str) -> Recording:
        """From a day on."""
        return Recording(self.data[self.times >= pd.Timestamp(day, tz="UTC")])


def import_recording(recorded: Path, folder: Path, since: str | None = None) -> Recording:
    """Imports the file, or its rows from a day on, and the sun into ``folder/lake``; what they have."""
    table = pd.read_csv(recorded, encoding="utf-8-sig")
    source = recorded
    if since is not None:
        table = table[table["Timestamp"] >= since]
        source = folder / "part.csv"
        table.to_csv(source, index=False)
    data = table.set_index(pd.to_datetime(table["Timestamp"]).dt.tz_localize("UTC")).drop(columns="Timestamp")
    sun = made_up_sun(data)
    stamps = (pd.DatetimeIndex(sun.index) + AHEAD + _STEP).strftime("%Y-%m-%d %H:%M:%S")
    sun.set_index(stamps).to_csv(folder / "sun.csv", index_label="Time", na_rep="NAN")
    (folder / "sun.toml").write_text(SUN_MAPPING)
    for mapping, file in ((EXAMPLE, source), (folder / "sun.toml", folder / "sun.csv")):
        assert run(["--mapping", str(mapping), "--lake", str(folder / "lake"), str(file)]) == 0
    grid = pd.date_range(data.index.min(), data.index.max(), freq=_STEP)
    return Recording(data.join(sun).reindex(grid))


def made_up_sun(data: pd.DataFrame) -> pd.DataFrame:
    """Irradiance by hour and humidity; of some hours no rows, of some no value, of some few samples."""
    at = pd.DatetimeIndex(data.index)
    height = np.sin((np.asarray(at.hour) + np.asarray(at.minute) / 60 - 6) / 12 * np.pi)
    sun = (1000 * height * (1 - 0.6 * (data.RH2m / 100) ** 3)).clip(lower=0).round(2)
    count = np.where(at.day % 5 == 2, np.where(at.hour < 11, 200, 400), 600)
    made = pd.DataFrame({"Sun": sun, "SunMax": (1.2 * sun).round(2), "SunCount": count}, index=data.index)
    made.loc[(at.day % 4 == 3) & (at.hour == 12), ["Sun", "SunMax"]] = np.nan
    is_kept = ~((at.day == 31) & (at.hour.isin([8, 9, 10, 14]))) & ~((at.day == 28) & (at.hour > 4))
    return made[is_kept]


@dataclass
class Comparison:
    """One lake's views beside a recording: how many values were compared, how far the farthest is off."""

    recording: Recording
    ask: Ask
    reader: LakeReader
    values: dict[str, int] = field(default_factory=dict)
    farthest: dict[str, float] = field(default_factory=dict)

    def csv(self, chart: str, query: Mapping[str, str], *keys: str) -> pd.DataFrame:
        """A chart's numbers."""
        found = pd.read_csv(io.StringIO(self.ask(chart, query)))
        if "time" in found.columns:
            found["time"] = pd.to_datetime(found["time"], utc=True)
        return found.set_index(list(keys)).sort_index() if keys else found

    def close(self, view: str, found: Any, expected: Any, within: float = 1e-9) -> None:
        """Equal to that relative difference, and both NaN or neither."""
        given, wanted = (np.asarray(each, float) for each in (found, expected))
        assert given.size
        np.testing.assert_allclose(given, wanted, rtol=within, atol=within, err_msg=view)
        self.values[view] = self.values.get(view, 0) + given.size
        with np.errstate(invalid="ignore"):
            off = np.nanmax(np.abs(given - wanted), initial=0.0)
        self.farthest[view] = max(self.farthest.get(view, 0.0), float(off))

    def same(self, view: str, found: Any, expected: Any) -> None:
        """Keys, in the same order."""
        assert list(found) == list(expected), view
        self.values[view] = self.values.get(view, 0) + len(list(found))

    def all_of_it(self, begin: str, cups: Mapping[str, str] = CUPS) -> None:
        """Each view, from a day on to the recording's end; series and distribution of these cups."""
        here, query = self.recording.since(begin), {"from": begin}
        for column, channel in cups.items():
            self._over_time(here, query, channel, column, high=f"{column}Max")
            self._distribution(here, begin, channel, column)
        for column, (channel, scale) in SCALED.items():
            self._over_time(here, query, channel, column, scale)
        for column, channel in VANES.items():
            self._over_time(here, query, channel, column)
        self._over_time(here, query, RAIN, "PrcpTot")
        self._over_time(here, query, SUN, "Sun", high="SunMax", count="SunCount")
        self._in_buckets(here, begin)
        self._rose(here, query)
        self._days(here, query)
        self._shear(here, query)
        for column in ("Spd80mN", "Spd40mS"):
            self._turbulence(here, query, column)
        self._pair(here, query)
        self._sun(here, query)
        self._rain(here, query)
        self._recovery(here, query)
        self._tiles(here, begin)

    def _over_time(
        self, here: Recording, query: Mapping[str, str], channel: str, column: str, scale: float = 1.0,
        *, high: str | None = None, count: str | None = None,
    ) -> None:  # fmt: skip
        view = "series"
        made = self.csv("series", {**query, "channel": channel}, "time")
        value = here.data[column] * scale
        self.same(view, made.index, here.times)
        self.close(view, made.value, value % 360 if channel in VANES.values() else value, 1e-12)
        extremes = here.data[high] if high else value * np.nan
        self.close(view, made.high.astype(float), extremes)
        self.close(view, made.low.astype(float), value * np.nan)
        share = value.notna() * (1.0 if count is None else here.data[count] / 600)
        # Where the file has nothing there is a row that says so.
        self.close(view, made.not_evaluated, share.fillna(0.0))
        for name in ("good", "suspect", "fail"):
            self.close(view, made[name], np.zeros(len(value)))

    def _in_buckets(self, here: Recording, begin: str) -> None:
        """As a screen has them: means by samples and the highest, of directions as vectors."""
        for channel, column in ((TOP, "Spd80mN"), (VANE, "Dir78mS"), (SUN, "Sun"), (RAIN, "PrcpTot")):
            view = open_view(self.reader, Request(MAST, channel, begin))
            made = pd.DataFrame(series(view, channel, view.span.begin_ms, view.span.end_ms, 150).dicts())
            step = pd.Timedelta(made.time[1] - made.time[0], unit="ms")
            at = here.times.floor(f"{step.total_seconds():g}s")
            value = here.data[column]
            weight = here.data.SunCount if channel == SUN else value.notna() * 600.0
            weight = weight.where(value.notna(), 0.0)
            if channel == VANE:
                angle = np.radians(value)
                sums = [
                    (part * weight).groupby(at).sum(min_count=1) for part in (np.sin(angle), np.cos(angle))
                ]
                expected = np.degrees(np.arctan2(*sums)) % 360
            elif channel == RAIN:
                expected = value.groupby(at).sum(min_count=1)
            else:
                expected = (value * weight).groupby(at).sum() / weight.groupby(at).sum().replace(0.0, np.nan)
            self.same("series on a screen", pd.to_datetime(made.time, unit="ms", utc=True), expected.index)
            self.close("series on a screen", made.value, expected)
            if channel in (TOP, SUN):
                highest = here.data[f"{column}Max"].groupby(at).max()
                self.close("series on a screen", made.high.astype(float), highest)

    def _rose(self, here: Recording, query: Mapping[str, str]) -> None:
        both = here.data[["Spd80mN", "Dir78mS"]].dropna()
        sector = ((both.Dir78mS + 11.25) % 360 // 22.5 * 22.5).rename("sector")
        speeds = (both.Spd80mN // 3 * 3).clip(upper=15).rename("from_mps")
        expected = both.Spd80mN.groupby([sector, speeds]).agg(["size", "mean"])
        made = self.csv("wind-rose", {**query, "channel": TOP}, "sector", "from_mps")
        self.same("wind-rose", made.index, expected.index)
        self.close("wind-rose", made.intervals, expected["size"])
        self.close("wind-rose", made.share, expected["size"] / len(both))
        self.close("wind-rose", made.mean_speed, expected["mean"])

    def _distribution(self, here: Recording, begin: str, channel: str, column: str) -> None:
        made = self.csv("distribution", {"from": begin, "channel": channel}, "from_mps")
        speed = here.data[column].dropna()
        counts = np.floor(speed).value_counts().reindex(np.arange(int(speed.max()) + 1.0), fill_value=0)
        self.same("distribution", made.index, counts.index)
        self.close("distribution", made.intervals, counts)
        self.close("distribution", made.share, counts / len(speed))
        if (begin, channel) in WINDKIT:
            scale, shape = WINDKIT[begin, channel]
            self.close("Weibull beside windkit", made.weibull_a_mps, np.full(len(made), scale), 1e-6)
            self.close("Weibull beside windkit", made.weibull_k, np.full(len(made), shape), 1e-6)
            edges = np.arange(len(made) + 1.0)
            below = 1 - np.exp(-((edges / scale) ** shape))
            self.close("Weibull beside windkit", made.weibull_share, np.diff(below), 1e-6)

    def _days(self, here: Recording, query: Mapping[str, str]) -> None:
        for channel, column, scale in (
            (TOP, "Spd80mN", 1.0), (VANE, "Dir78mS", 1.0), ("baro.pressure", "P2m", 0.1),
            ("air.temperature", "T2m", 1.0), (SUN, "Sun", 1.0),
        ):  # fmt: skip
            made = self.csv("diurnal", {**query, "channel": channel}, "month", "hour")
            value = here.data[column] * scale
            if channel == SUN:
                value = value[here.data.SunCount >= 300]
            value = value.dropna()
            local = pd.DatetimeIndex(value.index) + AHEAD
            hours = value.groupby([local.strftime("%Y-%m"), local.hour])
            means = hours.mean()
            if channel == VANE:
                keys = [local.strftime("%Y-%m"), local.hour]
                parts = [of(np.radians(value)).groupby(keys).mean() for of in (np.sin, np.cos)]
                means = np.degrees(np.arctan2(*parts)) % 360
            # Of directions there is no band.
            band = [hours.quantile(at) * (np.nan if channel == VANE else 1.0) for at in (0.1, 0.9)]
            expected = pd.concat([means, *band, hours.size()], axis=1)
            self.same("diurnal", made.index, expected.index)
            self.close("diurnal", made[["mean", "p10", "p90", "intervals"]].astype(float), expected)

    def _shear(self, here: Recording, query: Mapping[str, str]) -> None:
        speeds = here.data[["Spd40mN", "Spd60mN", "Spd80mN"]].dropna()
        together = speeds[speeds.min(axis=1) > 3]
        made = self.csv("shear", query, "height_m")
        self.same("shear", made.channel, [f"cup-{height}m-n.wind_speed" for height in (40, 60, 80)])
        self.close("shear", made.mean_speed, together.mean())
        exponents = np.polyfit(np.log([40.0, 60.0, 80.0]), np.log(together.to_numpy()).T, 1)[0]
        self.close("shear", made.shear_alpha, [exponents.mean()] * 3)
        self.close("shear", made.intervals, [len(together)] * 3)

    def _turbulence(self, here: Recording, query: Mapping[str, str], column: str) -> None:
        fast = here.data[here.data[column] > 3]
        intensity = (fast[f"{column}Std"] / fast[column]).groupby(np.floor(fast[column] + 0.5))
        expected = intensity.agg(["mean", "size"]).assign(p90=intensity.quantile(0.9))
        expected = expected[expected["size"] >= 3]
        made = self.csv("turbulence", {**query, "channel": CUPS[column]}, "speed_mps")
        self.same("turbulence", made.index, expected.index)
        self.close("turbulence", made[["mean", "intervals", "p90"]], expected)

    def _pair(self, here: Recording, query: Mapping[str, str]) -> None:
        both = here.data[["Spd80mN", "Spd80mS"]].dropna()
        made = self.csv("pair", {**query, "channel": TOP}, "time")
        # Of more than 1,500 those, each once, that the scatter shows.
        assert made.index.is_unique
        self.close("pair", [len(made)], [min(1500, len(both))])
        self.close("pair", made, both.loc[made.index])
        turning = here.data[["Spd80mN", "Spd80mS", "Dir78mS"]].dropna()
        turning = turning[turning[["Spd80mN", "Spd80mS"]].min(axis=1) > 3]
        sector = ((turning.Dir78mS + 5) % 360 // 10 * 10).rename("sector")
        ratio = (turning.Spd80mN / turning.Spd80mS).groupby(sector).agg(["mean", "size"])
        shadow = self.csv("shadow", {**query, "channel": TOP}, "sector")
        ratio = ratio.reindex(shadow.index)
        self.close("shadow", shadow.ratio, ratio["mean"])
        self.close("shadow", shadow.intervals, ratio["size"].fillna(0))
        judged = ratio["mean"].where(ratio["size"] >= 10)
        self.close("shadow", shadow.relative, judged / judged.median())

    def _sun(self, here: Recording, query: Mapping[str, str]) -> None:
        sun = here.data.Sun[here.data.SunCount >= 300].dropna()
        local = pd.DatetimeIndex(sun.index) + AHEAD
        by_time = sun.groupby((local.hour + local.minute / 60).to_numpy())
        made = self.csv("irradiance", query)
        self.same("irradiance", made.day, local.strftime("%Y-%m-%d"))
        self.close("irradiance", made.hour, local.hour + local.minute / 60)
        self.close("irradiance", made.value, sun)
        self.close("irradiance", made["mean"], by_time.transform("mean"))
        self.close("irradiance", made.highest, by_time.transform("max"))
        days = (sun / 6).groupby(local.strftime("%Y-%m-%d")).agg(["sum", "size"])
        of_days = self.csv("insolation", query, "day")
        self.same("insolation", of_days.index, days.index)
        self.close("insolation", of_days, days)

    def _rain(self, here: Recording, query: Mapping[str, str]) -> None:
        is_week = len(here.data) <= 1008
        place = here.local.floor("h" if is_week else "D") - AHEAD
        rain = here.data.PrcpTot.groupby(place)
        expected = pd.concat([rain.sum(min_count=1), rain.count(), rain.size()], axis=1)
        made = self.csv("rain", {**query, "channel": RAIN}, "time")
        self.same("rain", made.index, expected.index)
        self.close("rain", made[["sum_mm", "intervals", "due"]], expected)

    def _shares(self, here: Recording) -> pd.DataFrame:
        """Recovery by channel."""
        columns = CUPS | VANES | {column: channel for column, (channel, _) in SCALED.items()}
        columns |= {"PrcpTot": RAIN}
        shares = here.data[list(columns)].notna().astype(float).rename(columns=columns)
        samples = here.data.SunCount.where(here.data.Sun.notna(), 0.0)
        return shares.assign(**{SUN: samples / 600})

    def _recovery(self, here: Recording, query: Mapping[str, str]) -> None:
        shares = self._shares(here)
        days = shares.groupby(here.times.strftime("%Y-%m-%d"))
        made = self.csv("recovery", query).pivot_table(
            index="day", columns="channel", values=["recovery", "samples"]
        )
        self.same("recovery", made.recovery.columns, sorted(shares))
        expected = days.mean()[made.recovery.columns]
        self.same("recovery", made.index, expected.index)
        self.close("recovery", made.recovery, expected)
        self.close("recovery", made.samples, (days.sum() * 600)[made.recovery.columns])

    def _tiles(self, here: Recording, begin: str) -> None:
        (found,) = summary(open_view(self.reader, Request(MAST, TOP, begin))).dicts()
        data = here.data
        fast = data[data.Spd80mN > 3]
        speeds = data[["Spd40mN", "Spd60mN", "Spd80mN"]].dropna()
        together = np.log(speeds[speeds.min(axis=1) > 3].to_numpy())
        kelvin = data.T2m + 273.15
        steam = data.RH2m / 100 * 0.0000205 * np.exp(0.0631846 * kelvin)
        density = (data.P2m * 100 / 287.05 - steam * (1 / 287.05 - 1 / 461.5)) / kelvin
        expected = {
            "mean": data.Spd80mN.mean(), "highest": data.Spd80mNMax.max(),
            "recovery": self._shares(here).to_numpy().mean(), "ti": (fast.Spd80mNStd / fast.Spd80mN).mean(),
            "alpha": np.polyfit(np.log([40.0, 60.0, 80.0]), together.T, 1)[0].mean(),
            "density": density.mean(), "insolation": (data.Sun[data.SunCount >= 300] / 6).sum(),
        }  # fmt: skip
        # The file has no gusts.
        assert found["gust"] is None
        self.close("tiles", [found[name] for name in expected], list(expected.values()))

    def fleet(self) -> None:
        """Recovery of the last day and of the last thirty."""
        (mast,) = FleetReader(self.reader, LiveReader(None, ())).read().masts
        newest = self.recording.times.max()
        for name, length in (("day", pd.Timedelta(hours=24)), ("month", pd.Timedelta(days=30))):
            is_here = self.recording.times > newest - length
            shares = self._shares(Recording(self.recording.data[is_here]))
            self.close("fleet", [mast[name]], [shares.to_numpy().mean()])

    def __str__(self) -> str:
        return "\n".join(
            f"{view}: {n:,} values, {self.farthest.get(view, 0.0):.2g}" for view, n in self.values.items()
        )


def write_mast(lake: Path) -> None:
    """The table ``mast`` of what was imported, by the job's own values without its session."""
    records = DeltaTable(str(lake / "channels")).to_pyarrow_table(columns=["channel", "height_m", "pair"])
    mounted = {row["channel"]: (row["height_m"], row["pair"]) for row in records.to_pylist()}
    names = ["channel", "quantity", "avg", "sd", "cube_mean", "recovery"]
    rows = DeltaTable(str(lake / "statistics")).to_pyarrow_table(
        columns=[*names, "interval_start"], filters=[("count", ">", 0)]
    )
    intervals: dict[datetime, list[MountedChannel]] = {}
    for row in rows.to_pylist():
        start, (height_m, pair) = row.pop("interval_start"), mounted[row["channel"]]
        twin = pair and f"{pair}.{row['quantity']}"
        intervals.setdefault(start, []).append(MountedChannel(**row, height_m=height_m, twin=twin))
    starts = sorted(intervals)
    values = [mast_values(intervals[start], 600)._asdict() for start in starts]
    n = len(starts)
    maps = {
        name: pa.array([list(row[name].items()) for row in values], pa.map_(pa.string(), kind))
        for name, kind in (
            *(
                (each, pa.float64())
                for each in (
                    "turbulence_intensity",
                    "wind_power_density",
                    "pair_difference",
                    "insolation_by_channel",
                )
            ),
            ("inputs", pa.string()),
        )
    }
    write(lake, schemas.MAST, {
        "gateway": [MAST] * n, "interval_s": [600] * n, "interval_start": starts, "version": [1] * n,
        "date": [start.date() for start in starts],
        **{name: maps.get(name, [row[name] for row in values]) for name in values[0]},
    })  # fmt: skip
