"""The whole report: its sections, made of the lake's tables, head, key figures, and what is missing.

Each section raises Missing or LakeError where it can't be made: the page shows that in its place.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any, Final

from cloud.dashboard import charts
from cloud.dashboard.report import drawings, figures
from cloud.dashboard.report.figures import HALF_A_DAY_MS, Period, PeriodView
from cloud.dashboard.report.markup import document, number, percent, table, tag, tiles
from cloud.errors import CloudError
from cloud.lake.health import read_trends
from cloud.lake.mast import MOST_CHANNELS, Mast, check_known, read_mast, read_site
from cloud.lake.numbers import distribution, insolation, shear, summary, turbulence, wind_rose
from cloud.lake.reader import Frame, LakeReader, Missing, Span
from cloud.lake.tables import WHOLE_MAST
from cloud.wire.reading_records import QUALITIES

Parts = Sequence[ET.Element]
_MOST: Final = 40
"""Rows of a list of periods; the longest are shown, and how many are left out."""


@dataclass(frozen=True)
class Report:
    """What a report is about. ``held`` is None where the lake has no statistics of the mast's period."""

    reader: LakeReader
    gateway: str
    period: Period
    mast: Mast
    held: PeriodView | None
    today: date

    @property
    def view(self) -> PeriodView:
        """The period's statistics. Raises Missing."""
        if self.held is None:
            raise Missing("The lake has no statistics of this mast in this period.")
        return self.held

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Calibration records that were in force in the period. Raises Missing, LakeError."""
        return figures.calibrations(self.reader, self.gateway, self.period)

    @cached_property
    def recovery(self) -> list[dict[str, Any]]:
        """Each channel's recovery, of those too that were to measure and have nothing. Raises Missing."""
        try:
            others = {row["channel"] for row in self.records}
        except Missing:
            others = set()
        return figures.recovery(self.view, others).dicts()


def instruments(report: Report) -> Parts:
    """What measures, and the calibration in force."""
    newest = {row["channel"]: row for row in report.records}
    rows = [
        (row["channel"], row["unit"] or "", row["model"] or row["driver"] or "", row["serial"] or "",
         number(row["height_m"], 1), number(row["boom_deg"], 0), row["pair"] or "")
        for row in newest.values()
    ]  # fmt: skip
    local = report.period.local
    calibrated = [
        (row["channel"], row["cal"] or "", number(row["slope"], 5), number(row["offset"], 4),
         ", ".join(str(row[each]) for each in ("certificate", "lab") if row[each]),
         row["calibrated"] or "", row["expires"] or "",
         "; ".join(f"{local(begin) or '…'} – {local(end) or '…'}" for begin, end in row["periods"]
                   if begin or end) or "throughout")
        for row in report.records
    ]  # fmt: skip
    if not rows:
        raise Missing("The table channels has no record of this mast that was in force in this period.")
    return [
        table(("channel", "*unit", "*model", "*serial", "height, m", "boom, °", "*twin"), rows),
        tag("h3", "Calibration in force"),
        table(("channel", "*record", "slope", "offset", "*certificate", "*calibrated", "*expires",
               "*in force"), calibrated),
    ]  # fmt: skip


def recovery(report: Report) -> Parts:
    """Recovery of each channel, counted twice."""
    view = report.view
    rows = [
        (row["channel"], f"{row['valid']:,}", percent(row["by_intervals"]), f"{row['samples']:,}",
         percent(row["by_samples"]), f"{row['suspect']:,}", f"{row['fail']:,}", f"{row['missing']:,}",
         f"{row['without_row']:,}")
        for row in report.recovery
    ]  # fmt: skip
    head = ("channel", "valid intervals", "% of due", "valid samples", "% of due", "suspect", "failed",
            "missing", "no row")  # fmt: skip
    words = (
        f"{view.due:,} intervals of {view.span.interval_s // 60:g} min were due. Valid intervals, as "
        "the industry counts: closed, with a value, at least half of their samples valid. Valid samples: the "
        "mean of the intervals' recovery, one without a row counting 0. Suspect, failed and missing are "
        "samples; no row: intervals that the lake has nothing of."
    )
    return [table(head, rows), tag("p", words, class_="note"), drawings.recovered(view)]


def means(report: Report) -> Parts:
    """Each channel's mean and extremes."""
    view = report.view
    rows = [
        (row["channel"], row["unit"] or "", number(row["mean"]), number(row["sd"]), number(row["lowest"]),
         number(row["highest"]), report.period.local(row["highest_at"]), number(row["sum"], 1))
        for row in figures.means(view).dicts()
    ]  # fmt: skip
    try:
        air = figures.density(view)
        rows.append(("air density", "kg/m³", number(air["mean"], 3), "", number(air["lowest"], 3),
                     number(air["highest"], 3), "", ""))  # fmt: skip
    except Missing:
        pass
    head = ("channel", "*unit", "mean", "sd", "lowest", "highest", "*at", "sum")
    return [
        table(head, rows),
        tag("p", "Means of valid intervals, of directions those of vectors; sd is that of intervals' means. "
            "Lowest and highest are single valid readings of every closed interval; of air density, "
            "intervals.", class_="note"),
    ]  # fmt: skip


def wind(report: Report) -> Parts:
    """Speed, power, gusts and directions."""
    view = report.view
    cup = view.cup
    if cup is None:
        raise Missing("This mast has no cups in this period.")
    rows = [
        (row["channel"], number(row["height_m"], 1), number(row["mean"]), number(row["weibull_a_mps"]),
         number(row["weibull_k"], 3), number(row["power_density"], 0), percent(row["turbulence"]),
         number(row["gust"]), report.period.local(row["gust_at"]), number(row["highest"]),
         report.period.local(row["highest_at"]))
        for row in figures.wind(view).dicts()
    ]  # fmt: skip
    head = ("channel", "height, m", "mean, m/s", "A, m/s", "k", "power, W/m²", "TI, %", "gust, m/s", "*at",
            "highest, m/s", "*at")  # fmt: skip
    parts = [
        table(head, rows),
        tag("p", "A and k: Weibull by the first and third moment of intervals' means (WAsP's m1/m3). "
            "Power: mean of ½ρv³, of readings. TI: mean of sd / mean above 3 m/s. Gust: highest mean of 3 s.",
            class_="note"),
        tag("h3", cup.name),
        drawings.over_time(view, cup),
    ]  # fmt: skip
    pictures = [drawings.chart(charts.distribution(distribution(view)), "Distribution of the wind speed")]
    try:
        pictures.append(drawings.rose(charts.wind_rose(wind_rose(view))))
        by_sector = [
            (f"{row['sector']:.0f}°", f"{row['intervals']:,}", percent(row["share"]), number(row["mean"]),
             number(row["weibull_a_mps"]), number(row["weibull_k"], 3))
            for row in figures.sectors(view).dicts()
        ]  # fmt: skip
    except Missing:
        by_sector = []
    parts.append(tag("div", *pictures, class_="pair"))
    bins = [
        (f"{row['from_mps']:.0f}–{row['from_mps'] + 1:.0f}", f"{row['intervals']:,}",
         percent(row["share"], 2), percent(row["weibull_share"], 2) if row["weibull_k"] else "–")
        for row in distribution(view).dicts()
    ]  # fmt: skip
    tables = [table(("m/s", "intervals", "%", "Weibull, %"), bins)]
    if by_sector:
        tables.append(table(("sector", "intervals", "%", "mean, m/s", "A, m/s", "k"), by_sector))
    parts.append(tag("div", *tables, class_="pair"))
    return parts


def day(report: Report) -> Parts:
    """The mean day."""
    channels, hours = figures.by_hour(report.view)
    pictures = [
        drawings.course(channels, hours, quantity)
        for quantity in ("wind_speed", "temperature", "irradiance", "pressure")
    ]
    found = [each for each in pictures if each is not None]
    if not found:
        raise Missing("No channel of this mast has a course of the day.")
    # Where a line may be broken.
    head = ("hour", *(f"{each.name}, {each.unit}".replace(".", ".\u200b") for each in channels))
    rows = [(f"{hour:02d}", *(number(each) for each in means)) for hour, means in enumerate(hours)]
    return [tag("div", *found, class_="pair"), table(head, rows)]


def shear_and_turbulence(report: Report) -> Parts:
    """How the wind changes with height, and how unsteady it is."""
    view = report.view
    pictures, tables, notes = [], [], []
    try:
        exponent = figures.profile_exponent(view)
        found = shear(view)
        pictures.append(drawings.chart(charts.shear(found), "Shear profile"))
        rows = found.dicts()
        of_height = [(f"{row['height_m']:g}", row["channel"], number(row["mean_speed"])) for row in rows]
        tables.append(table(("height, m", "*channel", "mean, m/s"), of_height))
        notes.append(
            f"α of the mean speeds {number(exponent, 3)}; mean of the intervals' exponents "
            f"{number(rows[0]['shear_alpha'], 3)}, of {rows[0]['intervals']:,}."
        )
    except Missing as error:
        notes.append(str(error))
    try:
        found = turbulence(view)
        pictures.append(drawings.chart(charts.turbulence(found), "Turbulence intensity by speed"))
        bins = [(f"{row['speed_mps']:.0f}", percent(row["mean"]), percent(row["p90"]),
                 f"{row['intervals']:,}")
                for row in found.dicts()]  # fmt: skip
        tables.append(table(("m/s", "TI, mean, %", "90th percentile, %", "intervals"), bins))
        notes.append("Turbulence of the highest cup, in bins of 1 m/s from three intervals on.")
    except Missing as error:
        notes.append(str(error))
    parts = [tag("p", " ".join(dict.fromkeys(notes)), class_="note")]
    return [tag("div", *pictures, class_="pair"), tag("div", *tables, class_="pair"), *parts]


def sun(report: Report) -> Parts:
    """Insolation by day."""
    view = report.view
    rows = insolation(view).dicts()
    if not rows:
        raise Missing("The table mast has no insolation of this mast in this period.")
    total = sum(row["insolation_wh_m2"] for row in rows) / 1000
    found = sum(row["intervals"] for row in rows)
    words = (
        f"{number(total, 1)} kWh/m² in {found:,} of {view.due:,} intervals; the others are not made up for."
    )
    return [tag("p", words), drawings.sunny_days(view)]


def pairs(report: Report) -> Parts:
    """Redundant pairs."""
    rows = [
        (row["primary"], row["twin"] or "", row["unit"], number(row["mean"], 3), number(row["sd"], 3),
         number(row["lowest"], 3), number(row["highest"], 3), f"{row['intervals']:,}")
        for row in figures.pairs(report.view).dicts()
    ]  # fmt: skip
    if not rows:
        raise Missing("No pairs: they are named in the gateway's config.")
    head = ("primary", "*twin", "*unit", "mean difference", "sd", "lowest", "highest", "intervals")
    return [
        table(head, rows),
        tag("p", "The intervals' means of the primary less those of its twin.", class_="note"),
    ]


def flagged(report: Report) -> Parts:
    """What is not valid, by reason, and when."""
    local, view = report.period.local, report.view
    parts: list[ET.Element] = []
    gaps = figures.gaps(view)
    rows = [(row["channel"] or "the whole mast", local(row["begin_at"]), local(row["end_at"]),
             f"{row['intervals']:,}") for row in gaps.dicts()[:_MOST]]  # fmt: skip
    parts += [
        tag("h3", "Without a valid reading"),
        *_listed(("channel", "*from", "*to", "intervals"), rows, gaps),
    ]
    parts.append(tag("h3", "Flagged readings by reason"))
    try:
        found = figures.flagged(report.reader, report.gateway, report.period, view.span.interval_s)
    except Missing as error:
        return [*parts, tag("p", str(error), class_="missing")]
    counted = sum(row["suspect"] + row["fail"] for row in report.recovery)
    if counted and not found.rows:
        return [*parts, tag("p", f"{counted:,} flagged readings were counted; the table readings has none of "
                            "them any more.", class_="missing")]  # fmt: skip
    sums: dict[tuple[str, str], list[int]] = {}
    for row in found.dicts():
        held = sums.setdefault((row["channel"], row["reason"]), [0, 0, 0])
        held[0], held[1], held[2] = held[0] + row["readings"], held[1] + row["intervals"], held[2] + 1
    by_reason = [
        (channel, reason, *(f"{each:,}" for each in held)) for (channel, reason), held in sorted(sums.items())
    ]
    if not by_reason:
        return [*parts, tag("p", "None.")]
    periods = [
        (row["channel"], row["reason"], QUALITIES.get(row["worst"], ""), local(row["begin_at"]),
         local(row["end_at"]), f"{row['readings']:,}")
        for row in found.dicts()[:_MOST]
    ]  # fmt: skip
    head = ("channel", "*reason", "*worst flag", "*from", "*to", "readings")
    return [
        *parts,
        table(("channel", "reason", "readings", "intervals", "periods"), by_reason, texts=2),
        tag("p", "A reading may have several reasons. Periods, by whole intervals:", class_="note"),
        *_listed(head, periods, found),
    ]


def _listed(head: Sequence[str], rows: Sequence[Sequence[str]], whole: Frame) -> list[ET.Element]:
    left = len(whole.rows) - len(rows)
    words = f"The {len(rows)} longest; {left:,} shorter ones are left out."
    return [table(head, rows), *([tag("p", words, class_="note")] if left else [])]


def runs(report: Report) -> Parts:
    """The gateway's starts, and what was lost."""
    local = report.period.local
    rows = [
        (row["run"], row["state"] or "", local(row["begin_at"]), local(row["end_at"]),
         ", ".join(f"{each['key']} {each['value']:,}" for each in row["drops"] or ()) or "none",
         number(row["outbox_records"], 0))
        for row in figures.runs(report.reader, report.gateway, report.period)
    ]  # fmt: skip
    parts = [
        table(("run", "*state", "*started", "*ended", "*announced drops", "in the outbox"), rows)
        if rows
        else tag("p", "No run of this mast reaches into the period.")
    ]
    try:
        lost = figures.losses(report.reader, report.gateway).dicts()
    except Missing as error:
        return [*parts, tag("p", str(error), class_="missing")]
    if not lost:
        return [*parts, tag("p", "Nothing is lost: every reading that was issued is in the lake, or waits.")]
    return [
        *parts,
        tag("h3", "Lost, of all runs until now"),
        table(("channel", "lost", "announced", "waiting"),
              [(row["channel"], *(number(row[each], 0) for each in ("lost", "announced", "pending")))
               for row in lost]),
    ]  # fmt: skip


def alerts(report: Report) -> Parts:
    """Alerts that stood in the period."""
    local = report.period.local
    rows = [
        (row["rule"], row["severity"] or "", row["channel"] or "the gateway", local(row["begin_at"]),
         local(row["end_at"]) or "stands", number(row["value"]), row["detail"] or "")
        for row in figures.alerts(report.reader, report.gateway, report.period).dicts()
    ]  # fmt: skip
    return [table(("rule", "*severity", "*channel", "*raised", "*cleared", "value", "*detail"), rows)]


def cleaning(report: Report) -> Parts:
    """What an analyst marked."""
    if report.reader.version("cleaning") < 0:
        # A lake without marks lacks nothing.
        return [tag("p", "Nothing is marked in this lake.")]
    local, view = report.period.local, report.view
    rows = [
        (row["channel"].replace(WHOLE_MAST, "the whole mast"), local(row["begin_at"]),
         local(row["end_at"]) or "no end", row["reason"], row["author"], f"{row['intervals']:,}")
        for row in figures.cleaning(report.reader, view).dicts()
    ]  # fmt: skip
    if not rows:
        return [tag("p", "Nothing of this period is marked.")]
    means = [
        (row["channel"], number(row["with_marked"], 3), number(row["without"], 3), f"{row['intervals']:,}",
         f"{row['marked']:,}")
        for row in figures.means_without_marks(view).dicts()
    ]  # fmt: skip
    words = "The numbers of this report are of everything that was measured, what is marked too."
    return [
        table(("channel", "*from", "*to", "*reason", "*who", "valid intervals"), rows),
        tag("p", words, class_="note"),
        table(("channel", "mean", "mean without the marked", "valid intervals", "marked"), means),
    ]


def wear(report: Report) -> Parts:
    """What wears, as of the period's end or of today."""
    until = min(report.period.after, report.today)
    found, missing = read_trends(report.reader.lakes, until, report.gateway)
    rows = [
        (each.channel or "the mast", each.kind, number(each.value), each.unit, number(each.a_month, 2),
         f"{number(each.a_month_low, 2)} to {number(each.a_month_high, 2)}", number(each.limit_value, 0),
         str(each.crosses or "–"), f"{each.crosses_from or '…'} to {each.crosses_until or 'never'}"
         if each.crosses else "–", f"{each.days:,}", f"{each.count:,}")
        for each in found
    ]  # fmt: skip
    if not rows:
        raise Missing(" ".join(missing) or "Nothing of this mast has been measured for long enough.")
    head = ("channel", "*what", "now", "*unit", "a month", "*95 %", "limit", "*reached on", "*95 %", "days",
            "intervals")  # fmt: skip
    words = (
        f"As of {until}: Theil's and Sen's line through medians of days and weeks. Twins, soiling and supply "
        "are changes in % from the start, or from when they were clean and charged."
    )
    return [table(head, rows), *(tag("p", each, class_="note") for each in (words, *missing))]


SECTIONS: Final[dict[str, Callable[[Report], Parts]]] = {
    "Instruments": instruments, "Recovery and coverage": recovery, "Means and extremes": means, "Wind": wind,
    "Course of the day": day, "Shear and turbulence": shear_and_turbulence, "Sun": sun,
    "Redundant pairs": pairs, "Gaps and flagged periods": flagged, "Runs and losses": runs, "Alerts": alerts,
    "Wear and limits": wear, "Cleaning log": cleaning,
}  # fmt: skip
"""The sections in the report's order."""


_TABLES: Final = (
    "statistics", "mast", "readings", "channels", "sites", "runs", "presence", "alerts", "cleaning",
)  # fmt: skip


def read_report(
    reader: LakeReader, gateway: str, asked: Period, *, now_ms: int, interval_s: int | None = None
) -> Report:
    """What the lake has of a mast's period in the site's time. Raises CloudError for an unknown mast."""
    missing: list[str] = []
    today = datetime.fromtimestamp(now_ms // 1000, UTC).date()
    site = read_site(reader, gateway, asked.end_ms + HALF_A_DAY_MS, missing)
    period = replace(asked, offset_min=int(site.get("utc_offset_min") or 0))
    try:
        mast = read_mast(reader, gateway, period.begin_ms, period.end_ms, most=MOST_CHANNELS)
    except CloudError as error:
        mast = Mast(gateway, (), (), 0, 0, site, (str(error), *missing))
    if not mast.channels:
        check_known(reader, gateway)
        return Report(reader, gateway, period, mast, None, today)
    lengths = mast.intervals_s
    if interval_s is not None and interval_s not in lengths:
        there = ", ".join(str(each) for each in lengths)
        raise CloudError(
            f"--interval {interval_s}: the period's statistics have intervals of {there} seconds"
        )
    chosen = interval_s or (600 if 600 in lengths else lengths[0])
    channel = mast.named(None) or mast.channels[0]
    span = Span(gateway, chosen, period.begin_ms, period.end_ms, channels=mast.chosen)
    view = PeriodView(mast, reader, span, channel, period, period.end_ms)
    ((newest,),) = view.read("SELECT epoch_ms(max(interval_start)) FROM statistics WHERE version > 0").rows
    if newest is not None and now_ms < period.end_ms:
        view = replace(view, until_ms=min(period.end_ms, newest + 1000 * chosen))
    return Report(reader, gateway, period, mast, None if newest is None else view, today)


def write_page(report: Report, *, now_ms: int, version: str) -> str:
    """The report as HTML, one file."""
    parts: list[ET.Element] = []
    for title, build in SECTIONS.items():
        try:
            found = build(report)
        except CloudError as error:
            found = [tag("p", str(error), class_="missing")]
        parts.append(tag("section", tag("h2", title), *found))
    name = report.mast.site.get("name") or report.gateway
    made = f"Made {report.period.local(now_ms)} {report.period.offset} by fieldgate {version}."
    return document(
        f"{name}, {report.period.title}",
        tag(
            "main",
            _head(report),
            *(tag("p", each, class_="missing") for each in missing(report)),
            _tiles(report),
            *parts,
            tag("footer", f"{made} {_sources(report.reader)}"),
        ),
    )


def missing(report: Report) -> list[str]:
    """What the report lacks, a sentence each."""
    found = list(report.mast.missing)
    if not report.mast.site:
        found.append("The table sites has no site of this mast: times are UTC.")
    if report.held is None:
        found.append("The lake has no statistics of this mast in this period.")
    elif report.held.until_ms < report.period.end_ms:
        found.append(
            f"The {report.period.unit} isn't over: this is until {report.period.local(report.held.until_ms)}."
        )
    return list(dict.fromkeys(found))


def _head(report: Report) -> ET.Element:
    site, period = report.mast.site, report.period
    place = ""
    if site.get("latitude") is not None and site.get("longitude") is not None:
        place = f"{site['latitude']:.5f}°, {site['longitude']:.5f}°"
    facts: dict[str, Any] = {
        "Mast": report.gateway,
        "Owner": site.get("owner"),
        "Position": place,
        "Elevation": site.get("elevation_m") is not None and f"{number(site['elevation_m'], 0)} m",
        "Times": f"{period.offset}, the site's" if site.get("utc_offset_min") is not None else "UTC",
        "From": period.local(period.begin_ms),
        "To": period.local(period.end_ms),
        "Intervals": report.held and f"{report.held.span.interval_s / 60:g} min, named by their start",
    }
    return tag(
        "header",
        tag("h1", f"{site.get('name') or report.gateway}, {period.title}"),
        tag(
            "dl",
            *(tag("div", tag("dt", key), tag("dd", str(value))) for key, value in facts.items() if value),
        ),
    )


def _tiles(report: Report) -> ET.Element | None:
    if report.held is None:
        return None
    view = report.held
    sums = summary(view).dicts()[0]
    recovery = report.recovery
    values: list[tuple[str, str, str]] = []
    cup = view.cup
    if cup is not None:
        found = next(row for row in figures.wind(view).dicts() if row["channel"] == cup.name)
        values += [
            ("mean wind", f"{number(found['mean'])} m/s", cup.name),
            ("highest gust, 3 s", f"{number(found['gust'])} m/s", report.period.local(found["gust_at"])),
            ("power density", f"{number(found['power_density'], 0)} W/m²", cup.name),
            ("Weibull", f"A {number(found['weibull_a_mps'])}, k {number(found['weibull_k'])}", cup.name),
            ("turbulence", f"{percent(found['turbulence'])} %", "mean above 3 m/s"),
        ]
    if sums["alpha"] is not None:
        values.append(("shear", f"α {number(sums['alpha'], 3)}", "mean of intervals"))
    if sums["density"] is not None:
        values.append(("air density", f"{number(sums['density'], 3)} kg/m³", "mean"))
    if recovery:
        valid, samples = (
            percent(sum(row[name] for row in recovery) / len(recovery))
            for name in ("by_intervals", "by_samples")
        )
        values.append(("recovery, intervals", f"{valid} %", "mean of the channels"))
        values.append(("recovery, samples", f"{samples} %", "mean of the channels"))
    return tiles(values)


def _sources(reader: LakeReader) -> str:
    versions = [f"{table} {reader.version(table)}" for table in _TABLES if reader.version(table) >= 0]
    return f"Versions of the tables: {', '.join(versions)}." if versions else ""
