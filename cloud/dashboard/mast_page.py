"""The page of one mast: what it measures now, a channel over time, what happened, what its statistics say."""

from __future__ import annotations

import json
import math
import time
from asyncio import to_thread
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nicegui import ui
from nicegui.events import GenericEventArguments

from cloud.config import DashboardConfig
from cloud.dashboard import charts
from cloud.dashboard.acknowledging import Acknowledge, AlertChoice
from cloud.dashboard.commands import CommandSender, command_card
from cloud.dashboard.frame import (
    ChartCard,
    Link,
    MapCard,
    address,
    ago,
    around,
    card,
    is_open,
    missing,
    moment,
    number,
    page,
    percent,
    table_card,
    tiles,
)
from cloud.dashboard.live import LiveReader
from cloud.dashboard.marks import MarkBook, MarksCard, of_channel
from cloud.dashboard.views import NO_ROWS, TITLES, Request, about_series, draw, draw_series, open_view
from cloud.errors import CloudError
from cloud.kafka.topic_scan import Shown, sparkline
from cloud.lake.events import MOST, Happened, Happenings, Place, Track, happenings, read_track
from cloud.lake.mast import DAY_MS, DOCUMENTS, FOREVER_MS, MOST_CHANNELS, Channel, details
from cloud.lake.numbers import CHARTS, View, series, summary
from cloud.lake.reader import Frame, LakeReader
from cloud.remedies import remedy_of
from cloud.wire.reading_records import QUALITIES

_BARS: Final = 12
"""The number that fits beside a value."""


_NEVER: Final = "imported, or not seen yet by fieldgate jobs run presence"


def _shown(value: float | None, unit: str) -> str:
    return "no value" if value is None else number(value, 4, unit)


class ChannelCards:
    """Built once, and then shown as often as something is new; ``address`` is that of a channel's page."""

    def __init__(
        self, channels: tuple[Channel, ...], chosen: Channel | None, address: Callable[[str], str]
    ) -> None:
        self._problem = ui.label().classes("missing").props('role="status"')
        self._problem.set_visibility(False)
        self._units = {each.name: each.unit for each in channels}
        self._left_out = ui.label().classes("missing")
        self._cards: dict[str, tuple[ui.label, ui.label, ui.label]] = {}
        self._place = ui.element("div").classes("channels")
        for each in channels:
            with self._place, ui.link(target=address(each.name)) as link:
                link.classes("channel here" if each == chosen else "channel")
                self._add(each.name)

    def _add(self, name: str) -> None:
        with ui.element("div").classes("line now"):
            value = ui.label().classes("value")
            bars = ui.label().classes("bars").props('aria-hidden="true"')
        ui.label(name).classes("name")
        self._cards[name] = (value, bars, ui.label().classes("state"))

    def show(
        self,
        known: Mapping[str, Mapping[str, Any]],
        live: Mapping[str, Shown],
        problem: str | None,
        now_s: float,
    ) -> None:
        """``known`` are rows of ``presence`` by channel; a live reading that is as new comes first.

        A channel that has no statistics yet is shown where it is live.
        """
        self._problem.set_text(f"Live values stand still: {problem}" if problem else "")
        self._problem.set_visibility(problem is not None)
        new = sorted(live.keys() - self._cards.keys())
        room = max(0, MOST_CHANNELS - len(self._cards))
        left_out = f"{len(new) - room:,} live channels have no card: fieldgate watch shows them."
        self._left_out.set_text(left_out if len(new) > room else "")
        self._left_out.set_visibility(len(new) > room)
        for name in new[:room]:
            with self._place, ui.element("div").classes("channel"):
                self._add(name)
        for name, (value, bars, state) in self._cards.items():
            row, now = known.get(name, {}), live.get(name)
            if now is not None and now.reading.time_us // 1000 >= (row.get("last_at") or 0):
                reading = now.reading
                word = QUALITIES.get(reading.quality, "not evaluated")
                reasons = f" ({', '.join(reading.reasons)})" if reading.reasons else ""
                value.set_text(_shown(reading.value, reading.unit))
                bars.set_text(sparkline(now.values[-_BARS:]))
                state.set_text(f"{word}{reasons}, {ago(now_s - reading.time_us / 1e6)}")
            else:
                word = row.get("state", "unknown")
                value.set_text(_shown(row.get("last_value"), self._units.get(name, "")))
                bars.set_text("")
                state.set_text(word if row else _NEVER)
            state.classes(replace=f"state {word.replace(' ', '_')}")


_LONGEST_MARK: Final = 90


def event_marks(events: Sequence[Happened]) -> list[dict[str, Any]]:
    """Returns events as points of the chart's strip; those that ask for something are triangles."""
    marks = []
    for each in events:
        words = f"{moment(each.at_ms)} {each.kind}{': ' * bool(each.text)}{each.text}"
        short = words if len(words) <= _LONGEST_MARK else f"{words[: _LONGEST_MARK - 1]}…"
        mark: dict[str, Any] = {"name": short, "value": [each.at_ms, 0]}
        marks.append(mark | ({"symbol": "triangle", "symbolSize": 11} if remedy_of(each.kind) else {}))
    return marks


class EventsCard:
    """The list of what happened in the time that the charts show, and after it where that is the newest."""

    def __init__(self) -> None:
        self._shown: Happenings | None = None
        with card("Events", wide=True):
            self._body = ui.element("div")

    def show(self, events: Happenings) -> None:
        """Shows the newest first; the same ones stay as they are, and where they were scrolled to."""
        if events == self._shown:
            return
        self._shown = events
        self._body.clear()
        with self._body:
            missing(list(events.missing))
            if not events.found:
                ui.label("Nothing happened in this time, as far as the gateway has reported.").classes("soft")
                return
            # A region that is scrolled is one that keys reach.
            with (
                ui.element("div")
                .props('role="list" tabindex="0" aria-label="Events"')
                .classes("causes events")
            ):
                for each in events.found:
                    self._line(each)
            if not events.is_whole:
                ui.label(f"The newest {MOST}; fieldgate query has all: tables events and runs.").classes(
                    "soft"
                )

    @staticmethod
    def _line(event: Happened) -> None:
        remedy = remedy_of(event.kind)
        with ui.element("div").classes("cause").props('role="listitem"'):
            ui.label(moment(event.at_ms)).classes("soft")
            ui.label(f"▲ {event.kind}" if remedy else event.kind)
            with ui.element("div"):
                ui.label(event.text)
                if remedy:
                    ui.label(remedy).classes("soft")


def track_card(track: Track, config: DashboardConfig) -> None:
    """Builds the map of a mast that was moved, with the same in words below it."""
    moved = MapCard("Where the mast was", config, wide=True)
    planned = [{"at": [each.latitude, each.longitude], "words": each.what} for each in track.planned]
    line = sorted((*track.announced, *track.fixes), key=lambda each: each.at_ms)
    dots = [
        {"at": [each.latitude, each.longitude], "words": f"{moment(each.at_ms)} {each.what}"} for each in line
    ]
    moved.show("drawTrack", {"planned": planned, "track": dots})
    with moved.below.props('role="list"'):
        for each in track.planned:
            _place(each, f"{each.what} from {moment(each.at_ms)}")
        for each in track.announced:
            _place(each, f"{moment(each.at_ms)} {each.what}")
        for words, fix in zip(
            ("first fix", "last fix"), (*track.fixes[:1], *track.fixes[1:][-1:]), strict=False
        ):
            _place(fix, f"{moment(fix.at_ms)} {words} shown, by GPS")


def _place(place: Place, words: str) -> None:
    position = f"{place.latitude:.5f}, {place.longitude:.5f}"
    with ui.element("div").classes("line").props('role="listitem"'):
        ui.label(words)
        # A phone opens its map with this.
        ui.link(position, f"geo:{place.latitude:.6f},{place.longitude:.6f}")


_SPANS: Final = (
    ("1 h", 1 / 24),
    ("24 h", 1),
    ("7 days", 7),
    ("30 days", 30),
    ("90 days", 90),
    ("1 year", 365),
)


def _series(view: View, begin_ms: int, end_ms: int) -> Frame:
    return series(view, view.channel.name, begin_ms, end_ms)


@dataclass(frozen=True)
class _Read:
    """All that the page shows."""

    view: View
    series: Frame
    drawn: dict[str, Any]
    tables: dict[str, Frame | str]
    sums: Frame
    marks: list[dict[str, Any]]
    events: Happenings

    @property
    def last_values(self) -> dict[str, dict[str, Any]]:
        """The lake's, by channel."""
        found = self.tables["Live"]
        return {} if isinstance(found, str) else {row["channel"]: row for row in found.dicts()}

    @property
    def bands(self) -> dict[str, Any]:
        """What is marked of the channel, for its chart."""
        return charts.marked(of_channel(self.marks, self.view.channel.name), self.view.span.end_ms)


def _read(reader: LakeReader, request: Request, book: MarkBook) -> _Read:
    view = open_view(reader, request)
    return _Read(
        view,
        _series(view, view.span.begin_ms, view.span.end_ms),
        {name: draw(view, name) for name in CHARTS},
        details(reader, request.gateway),
        summary(view),
        book.of(request.gateway),
        happenings(reader, request.gateway, view.span.begin_ms, _until_ms(view)),
    )


def _until_ms(view: View) -> int:
    """What happened after the newest interval belongs to the newest view."""
    return view.span.end_ms if view.span.end_ms < view.mast.end_ms else FOREVER_MS


def _moved(reader: LakeReader, view: View) -> Track | None:
    """Where the mast went, if its GPS has ever found it elsewhere."""
    receivers = [each.name for each in view.mast.of("location")]
    try:
        return read_track(reader, view.mast.gateway, receivers, _until_ms(view)) if receivers else None
    except CloudError:
        # The card of events says what can't be read.
        return None


@dataclass(frozen=True)
class Sources:
    """What a mast's page reads and writes, as its user may.

    Without a ``sender`` no commands, without ``acknowledge`` no alerts are acknowledged.
    """

    reader: LakeReader
    live: LiveReader
    book: MarkBook
    sender: CommandSender | None
    acknowledge: Acknowledge | None
    config: DashboardConfig


async def mast_page(sources: Sources, changed: Any, ticks: Any, request: Request) -> None:
    """Builds the page, and renews it when a table has changed, what is live with each of the ``ticks``."""
    reader, book, live = sources.reader, sources.book, sources.live
    with page(request.gateway, "/mast"):
        try:
            read = await to_thread(_read, reader, request, book)
            track = await to_thread(_moved, reader, read.view)
        except CloudError as error:
            ui.label(request.gateway).classes("h1")
            missing([str(error)])
            if request != Request(request.gateway):
                ui.link("the mast's last seven days", address(f"/mast/{request.gateway}"))
            # A new mast is live before it has statistics.
            new = ChannelCards((), None, str)

            def tick_new() -> None:
                new.show({}, live.of(request.gateway), live.problem, time.time())

            tick_new()
            ticks.subscribe(tick_new)
            return
        view, path = read.view, f"/mast/{request.gateway}"
        mast, channel = view.mast, view.channel
        _head(view, request, path)
        missing(mast.missing)
        top = ui.element("div").classes("sums")
        channels = ChannelCards(mast.channels, channel, lambda name: request.address(path, channel=name))
        with ui.element("div").classes("spans"):
            _spans(view, request, path)
        csv = f"/csv{path}"
        top_chart = ChartCard(
            f"{channel.name} over time", request.address(f"{csv}/series"), wide=True, tall=True
        )
        zoom = _Zoom(top_chart, read, request, path)
        events = EventsCard()
        if track is not None:
            track_card(track, sources.config)
        marks = MarksCard(mast.gateway, channel, book, zoom.seen_ms)
        with ui.element("div").classes("charts"):
            cards = {
                name: ChartCard(
                    title, request.address(f"{csv}/{name}"), wide=name == "recovery", tall=name == "recovery"
                )
                for name, title in TITLES.items()
            }
        choice = sources.acknowledge and AlertChoice(sources.acknowledge)
        below = ui.element("div").classes("charts")
        if sources.sender is not None:
            command_card(mast.gateway, sources.sender, lambda: time.time_ns() // 1_000_000)

    def tick() -> None:
        gateway = mast.gateway
        channels.show(zoom.read.last_values, live.of(gateway), live.problem, time.time())

    def show(read: _Read) -> None:
        top.clear()
        with top:
            _sums(read)
        tick()
        for name, each in cards.items():
            each.show(read.drawn[name])
        if not top_chart.is_drawn:
            # Once it is, a zoom is what it shows.
            top_chart.show(draw_series(read.view, read.series, read.bands, event_marks(read.events.found)))
        events.show(read.events)
        marks.show(read.marks)
        below.clear()
        with below:
            for title, found in read.tables.items():
                if title != "Live":
                    _table(title, found, mast.gateway, choice)

    show(read)
    top_chart.chart.on(
        "chart:datazoom",
        zoom.moved,
        js_handler="(e) => { const z = e.batch ? e.batch[0] : e; emit(z.start, z.end); }",
    )

    async def renew() -> None:
        try:
            newer = await to_thread(_read, reader, request, book)
        except CloudError as error:
            if is_open(top):
                ui.notify(str(error), type="warning")
            return
        if not is_open(top):
            return
        zoom.read = newer
        show(newer)
        await zoom.refine()

    changed.subscribe(renew)
    ticks.subscribe(tick)


class _Zoom:
    """Which part of the time is seen; its points are made anew from all intervals of it."""

    def __init__(self, chart: ChartCard, read: _Read, request: Request, path: str) -> None:
        self.read = read
        self._chart, self._request, self._path = chart, request, path
        self._seen = (0.0, 100.0)
        self._drawn: tuple[float, float] | None = None
        self._busy = False

    async def moved(self, event: GenericEventArguments) -> None:
        """The browser's part of the whole, in percent. What comes while one is made counts at its end."""
        begin, end = (float(each) for each in event.args)
        if not (math.isfinite(begin) and math.isfinite(end) and 0 <= begin < end <= 100):
            return
        self._seen = (begin, end)
        if self._busy:
            return
        self._busy = True
        try:
            while self._drawn != self._seen:
                await self.refine()
        finally:
            self._busy = False

    def seen_ms(self) -> tuple[int, int]:
        """From and to, milliseconds since 1970."""
        span = self.read.view.span
        begin, end = (span.begin_ms + (span.end_ms - span.begin_ms) * each / 100 for each in self._seen)
        return round(begin), round(end)

    async def refine(self) -> None:
        """Points for what is seen, and its address for the browser's line."""
        seen, (begin, end) = self._seen, self.seen_ms()
        if not self._chart.is_drawn:
            return
        frame = await to_thread(_series, self.read.view, begin, end)
        self._drawn = seen
        if not is_open(self._chart.chart):
            return
        data: list[dict[str, Any]] = [{"data": each} for each in charts.series_data(frame)]
        data[charts.VALUE]["markArea"] = self.read.bands
        data.append({"data": event_marks(self.read.events.found)})
        self._chart.chart.run_chart_method(
            "setOption", about_series(self.read.view, {"series": data}, begin, end)
        )
        if seen != (0.0, 100.0):
            there = self._request.address(
                self._path,
                channel=self.read.view.channel.name,
                from_=moment(begin, "%Y-%m-%dT%H:%M"),
                to=moment(end, "%Y-%m-%dT%H:%M"),
            )
            ui.run_javascript(f"history.replaceState(null, '', {json.dumps(there)})")


def _head(view: View, request: Request, path: str) -> None:
    mast = view.mast
    site = mast.site
    with ui.element("div").classes("line"):
        ui.label(mast.gateway).classes("h1").props('role="heading" aria-level="1"')
        if site:
            offset = mast.offset_min
            position = (number(site.get(name), 6) + "°" for name in ("latitude", "longitude"))
            place = ", ".join((*position, number(site.get("elevation_m"), 5, "m")))
            local = f"UTC{'+' if offset >= 0 else '−'}{abs(offset) // 60:02d}:{abs(offset) % 60:02d}"
            parts = (site.get("name"), site.get("owner"), place, local)
            ui.label(" · ".join(str(each) for each in parts if each)).classes("soft")
        ui.element("span").classes("gap")
        for length in mast.intervals_s if len(mast.intervals_s) > 1 else ():
            ui.link(f"{length / 60:g} min", request.address(path, interval=length))


def _sums(read: _Read) -> None:
    """The span's numbers."""
    (found,) = read.sums.dicts()
    insolation = found["insolation"]
    tiles(
        {
            "mean wind": number(found["mean"], 3, "m/s"),
            "gust, 3 s": number(found["gust"], 3, "m/s"),
            "highest reading": number(found["highest"], 3, "m/s"),
            "turbulence > 3 m/s": percent(found["ti"]),
            "mean shear α": number(found["alpha"], 3),
            "air density, kg/m³": number(found["density"], 4),
            "insolation, kWh/m²": "–" if insolation is None else f"{insolation / 1000:.1f}",
            "recovery": percent(found["recovery"]),
        }
    )
    last_values = read.tables["Live"]
    if isinstance(last_values, str):
        missing([last_values])


def _spans(view: View, request: Request, path: str) -> None:
    span = view.span
    for name, days in _SPANS:
        begin = moment(view.mast.end_ms - round(days * DAY_MS), "%Y-%m-%dT%H:%M")
        is_current = request.end is None and (request.begin == begin or (request.begin is None and days == 7))
        ui.link(name, request.address(path, from_=begin, to=None)).classes("here" if is_current else "")
    jump: Callable[[str], str] = lambda name: (  # noqa: E731
        "(e) => { const at = new URL(location.href); at.searchParams.set('"
        + name
        + "', e.target.value); location = at; }"
    )
    for name, at in (("from", span.begin_ms), ("to", span.end_ms - 1)):
        day = ui.element("input").props(f'type=date value={moment(at, "%Y-%m-%d")} aria-label="{name}, UTC"')
        day.on("change", js_handler=jump(name))
    for name, marks in (("with marked periods", None), ("without", "without")):
        is_current = request.is_clean == (marks is not None)
        ui.link(name, request.address(path, marks=marks)).classes("here" if is_current else "")
    ui.label(
        f"{moment(span.begin_ms)} to {moment(span.end_ms)} UTC, {span.interval_s / 60:g}-minute statistics"
    ).classes("soft")


_TIMES: Final = {"Alerts": "raised_at", "Anomalies": "interval_start_at"}
"""Tables whose rows lead to the charts about their time."""


def _table(title: str, found: Frame | str, gateway: str, choice: AlertChoice | None) -> None:
    link: Link | None = None
    if title == DOCUMENTS:
        link = lambda row: address(f"/documents/{gateway}/{row['id']}")  # noqa: E731
    elif title in _TIMES:
        link = lambda row: around(gateway, row["channel"], row[_TIMES[title]])  # noqa: E731
    wide = title.startswith(("Calibration", "Imported", "Documents", "Alerts", "Anomalies"))
    also = choice.add if choice is not None and title == "Alerts" else None
    table_card(title, found, NO_ROWS.get(title, ""), link, wide=wide, also=also)
