"""The whole report: head, key figures, what is missing, and the sections."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, Final

from cloud.dashboard.report import figures
from cloud.dashboard.report.figures import Month, MonthView
from cloud.dashboard.report.markup import document, number, percent, tag
from cloud.dashboard.report.sections import SECTIONS, Report
from cloud.errors import CloudError
from cloud.lake.mast import MOST_CHANNELS, Mast, check_known, read_mast, read_site
from cloud.lake.numbers import View, summary
from cloud.lake.reader import LakeReader, Span

_STYLE: Final = Path(__file__).with_name("style.css")
_TABLES: Final = (
    "statistics", "mast", "readings", "channels", "sites", "runs", "presence", "alerts", "cleaning",
)  # fmt: skip
_HALF_A_DAY_MS: Final = 14 * 3_600_000
"""No place on Earth is further from UTC."""


def read_report(
    reader: LakeReader, gateway: str, asked: Month, *, now_ms: int, interval_s: int | None = None
) -> Report:
    """What the lake has of a mast's month in the site's time. Raises CloudError for an unknown mast."""
    missing: list[str] = []
    site = read_site(reader, gateway, asked.end_ms + _HALF_A_DAY_MS, missing)
    month = Month(asked.year, asked.month, int(site.get("utc_offset_min") or 0))
    try:
        mast = read_mast(reader, gateway, month.begin_ms, month.end_ms, most=MOST_CHANNELS)
    except CloudError as error:
        mast = Mast(gateway, (), (), 0, 0, site, (str(error), *missing))
    if not mast.channels:
        check_known(reader, gateway)
        return Report(reader, gateway, month, mast, None)
    lengths = mast.intervals_s
    if interval_s is not None and interval_s not in lengths:
        there = ", ".join(str(each) for each in lengths)
        raise CloudError(f"--interval {interval_s}: the month's statistics have intervals of {there} seconds")
    chosen = interval_s or (600 if 600 in lengths else lengths[0])
    channel = mast.named(None) or mast.channels[0]
    view = View(
        mast, reader, Span(gateway, chosen, month.begin_ms, month.end_ms, channels=mast.chosen), channel
    )
    (newest,) = view.held.read("SELECT epoch_ms(max(interval_start)) FROM statistics WHERE version > 0").rows[
        0
    ]
    if newest is None:
        return Report(reader, gateway, month, mast, None)
    until = month.end_ms if now_ms >= month.end_ms else min(month.end_ms, newest + 1000 * chosen)
    return Report(reader, gateway, month, mast, MonthView(view, month, until))


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
    made = f"Made {report.month.local(now_ms)} {report.month.offset} by fieldgate {version}."
    return document(
        f"{name}, {report.month.title}",
        _STYLE.read_text(),
        tag(
            "main",
            _head(report),
            *(tag("p", each, class_="missing") for each in _missing(report)),
            _tiles(report),
            *parts,
            tag("footer", f"{made} {_sources(report.reader)}"),
        ),
    )


def _missing(report: Report) -> list[str]:
    found = list(report.mast.missing)
    if not report.mast.site:
        found.append("The table sites has no site of this mast: times are UTC.")
    if report.held is None:
        found.append("The lake has no statistics of this mast in this month.")
    elif report.held.until_ms < report.month.end_ms:
        found.append(f"The month isn't over: this is until {report.month.local(report.held.until_ms)}.")
    return list(dict.fromkeys(found))


def _head(report: Report) -> ET.Element:
    site, month = report.mast.site, report.month
    place = ""
    if site.get("latitude") is not None and site.get("longitude") is not None:
        place = f"{site['latitude']:.5f}°, {site['longitude']:.5f}°"
    facts: dict[str, Any] = {
        "Mast": report.gateway,
        "Owner": site.get("owner"),
        "Position": place,
        "Elevation": site.get("elevation_m") is not None and f"{number(site['elevation_m'], 0)} m",
        "Times": f"{month.offset}, the site's" if site.get("utc_offset_min") is not None else "UTC",
        "From": month.local(month.begin_ms),
        "To": month.local(month.end_ms),
        "Intervals": report.held and f"{report.held.view.span.interval_s / 60:g} min, named by their start",
    }
    return tag(
        "header",
        tag("h1", f"{site.get('name') or report.gateway}, {month.title}"),
        tag(
            "dl",
            *(tag("div", tag("dt", key), tag("dd", str(value))) for key, value in facts.items() if value),
        ),
    )


def _tiles(report: Report) -> ET.Element | None:
    if report.held is None:
        return None
    view = report.held
    sums = summary(view.view).dicts()[0]
    recovery = figures.recovery(view).dicts()
    tiles: list[tuple[str, str, str]] = []
    cup = view.view.cup
    if cup is not None:
        found = next(row for row in figures.wind(view).dicts() if row["channel"] == cup.name)
        tiles += [
            ("mean wind", f"{number(found['mean'])} m/s", cup.name),
            ("highest gust, 3 s", f"{number(found['gust'])} m/s", report.month.local(found["gust_at"])),
            ("power density", f"{number(found['power_density'], 0)} W/m²", cup.name),
            ("Weibull", f"A {number(found['weibull_a_mps'])}, k {number(found['weibull_k'])}", cup.name),
            ("turbulence", f"{percent(found['turbulence'])} %", "mean above 3 m/s"),
        ]
    if sums["alpha"] is not None:
        tiles.append(("shear", f"α {number(sums['alpha'], 3)}", "mean of intervals"))
    if sums["density"] is not None:
        tiles.append(("air density", f"{number(sums['density'], 3)} kg/m³", "mean"))
    if recovery:
        valid, samples = (
            percent(sum(row[name] for row in recovery) / len(recovery))
            for name in ("by_intervals", "by_samples")
        )
        tiles.append(("recovery, intervals", f"{valid} %", "mean of the channels"))
        tiles.append(("recovery, samples", f"{samples} %", "mean of the channels"))
    return tag(
        "div",
        *(tag("div", tag("span", name), tag("b", value), tag("small", more)) for name, value, more in tiles),
        class_="tiles",
    )


def _sources(reader: LakeReader) -> str:
    versions = [f"{table} {reader.version(table)}" for table in _TABLES if reader.version(table) >= 0]
    return f"Versions of the tables: {', '.join(versions)}." if versions else ""
