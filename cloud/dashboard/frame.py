"""What all pages have in common: head, style, cards, and a chart in its card with its CSV and PNG."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from nicegui import Client, ui

from cloud.config import DashboardConfig
from cloud.errors import CloudError
from cloud.lake.mast import DAY_MS, FOREVER_MS
from cloud.lake.reader import Frame

_STYLE: Final = Path(__file__).with_name("style.css")
_MAPS: Final = Path(__file__).with_name("maps.js")
_DARK: Final = """() => {
    const dark = !document.body.classList.contains('body--dark');
    document.cookie = 'dark=' + (dark ? 1 : 0) + ';path=/;max-age=31536000;samesite=strict';
    location.reload();
}"""

# A slot for the head would be made anew, and lose the focus, whenever a row changes.
_SORT_BY_KEY: Final = """<script>
    const sorted = (th) => !th.classList.contains('sorted') ? 'none'
        : th.classList.contains('sort-desc') ? 'descending' : 'ascending';
    new MutationObserver(() => document.querySelectorAll('th.sortable').forEach((th) => {
        th.tabIndex = 0;
        if (th.ariaSort !== sorted(th)) th.ariaSort = sorted(th);
    })).observe(document, {subtree: true, childList: true, attributeFilter: ['class']});
    document.addEventListener('keydown', (event) => {
        if (!['Enter', ' '].includes(event.key) || !event.target.matches('th.sortable')) return;
        event.preventDefault();
        event.target.click();
    });
</script>"""


def address(path: str, **query: object) -> str:
    """A page's address; what is None is left out."""
    given = {name.rstrip("_"): value for name, value in query.items() if value is not None}
    return quote(path) + ("?" + urlencode(given) if given else "")


def time_ms(text: str | None) -> int | None:
    """A day or time of an address, UTC unless it says otherwise. Raises CloudError."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise CloudError(f"{text[:40]!r} is no time such as 2026-11-23 or 2026-11-23T12:00") from None
    # No calendar has what some zones make of the first and the last year.
    return min(max(0, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)), FOREVER_MS)


def end_ms(text: str | None) -> int | None:
    """As ``time_ms``, not included; a day is in it to its end. Raises CloudError."""
    at = time_ms(text)
    is_day = text is not None and len(text) == len("2026-11-23")
    return at + DAY_MS if at is not None and is_day else at


def moment(ms: float | None, spec: str = "%Y-%m-%d %H:%M") -> str:
    """A time in UTC as people read it."""
    return "–" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime(spec)


def number(value: Any, digits: int = 3, unit: str = "") -> str:
    """A number with so many significant digits; a dash for none."""
    if not isinstance(value, (int, float)) or value != value:
        return "–"
    text = f"{value:,}" if isinstance(value, int) else f"{float(f'{value:.{digits}g}'):,.10g}"
    return f"{text} {unit}".rstrip()


def percent(share: float | None) -> str:
    """A share in percent; a dash for none."""
    return "–" if share is None else f"{100 * share:.1f} %"


def ago(seconds: float | None) -> str:
    """How long ago in words."""
    if seconds is None:
        return "–"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(0, seconds):.0f} s ago"


def is_open(element: ui.element) -> bool:
    """Whether its page is still there: whoever waits for something must look before changing it."""
    return element.client.id in Client.instances


@contextmanager
def page(title: str, here: str) -> Iterator[None]:
    """A page's head and its body, into which what follows is put."""
    request = ui.context.client.request
    ui.dark_mode({"1": True, "0": False}.get(request.cookies.get("dark", "")))
    ui.page_title(f"{title} · fieldgate")
    ui.add_css(_STYLE)
    ui.add_head_html(_SORT_BY_KEY)
    skip = ui.link("To the content").classes("skip")
    with ui.element("header").classes("top"):
        ui.link("fieldgate", "/").classes("brand")
        with ui.element("nav").props('aria-label="Pages"'):
            for name, path in (("Fleet", "/"), ("Alerts", "/alerts"), ("Pipeline", "/pipeline")):
                ui.link(name, path).classes("here" if path == here else "")
        ui.element("span").classes("gap")
        if user := request.scope.get("user"):
            with ui.element("form").props("method=post action=/logout"):
                out = ui.button(icon="logout").props("flat round dense type=submit")
                out.props(
                    f"title={json.dumps(f'{user}: log out')} aria-label={json.dumps(f'Log out {user}')}"
                )
        dark = ui.button(icon="contrast").props('flat round dense aria-label="Dark or light"')
        dark.on("click", js_handler=_DARK)
    with ui.element("div").classes("body").props("tabindex=-1") as body:
        skip.props["href"] = f"#{body.html_id}"
        if here != "/mast":
            # The head's links show already where one is.
            ui.label(title).classes("unseen").props('role="heading" aria-level="1"')
        yield


@contextmanager
def card(title: str, *, wide: bool = False) -> Iterator[ui.element]:
    """A card; yields its head, for buttons."""
    with ui.element("section").classes("card wide" if wide else "card"):
        with ui.element("div").classes("head") as head:
            ui.label(title).classes("title").props('role="heading" aria-level="2"')
        yield head


def missing(words: list[str] | tuple[str, ...]) -> None:
    """What the lake lacks, above what it has."""
    for each in words:
        ui.label(each).classes("missing").props('role="status"')


def tiles(values: Mapping[str, str], links: Mapping[str, str] | None = None) -> None:
    """Numbers in large print, each with its name; some lead somewhere."""
    with ui.element("div").classes("tiles"):
        for name, value in values.items():
            target = (links or {}).get(name)
            with ui.link(target=target).classes("tile") if target else ui.element("div").classes("tile"):
                ui.label(value).classes("big")
                ui.label(name).classes("name")


class ChartCard:
    """A chart, or words in its place: ``is_drawn`` says which."""

    is_drawn = False

    def __init__(self, title: str, csv: str, *, wide: bool = False, tall: bool = False) -> None:
        with card(title, wide=wide) as head:
            self._subject = ui.label().classes("soft subject")
            self._words = ui.label().classes("missing").props('role="status"')
            self.chart = ui.echart({}).classes("chart tall" if tall else "chart")
            self.chart.props(f'role="img" aria-label={json.dumps(title)}')
        name = re.sub(r"[^\w.-]+", "-", title).strip("-").lower()
        with head:
            ui.element("span").classes("gap")
            ui.link("CSV", csv).classes("export").props("download")
            png = ui.link("PNG", "#").classes("export")
        png.on(
            "click",
            js_handler=f"""(event) => {{
                event.preventDefault();
                const link = document.createElement('a'), plot = getElement({self.chart.id}).chart;
                const colours = getComputedStyle(document.body), backgroundColor = colours.backgroundColor;
                const drawn = plot.renderToCanvas({{pixelRatio: 2, backgroundColor}});
                const {{text = '', subtext = ''}} = plot.getOption().title?.[0] ?? {{}};
                const lines = text ? [text, ...subtext.split('\\n')] : [], top = 36 * lines.length;
                const whole = Object.assign(document.createElement('canvas'),
                    {{width: drawn.width, height: drawn.height + top}});
                const pen = whole.getContext('2d');
                pen.fillStyle = backgroundColor;
                pen.fillRect(0, 0, whole.width, whole.height);
                pen.fillStyle = colours.color;
                lines.forEach((line, at) => {{
                    pen.font = (at ? '24px' : '600 28px') + ' system-ui, sans-serif';
                    pen.fillText(line, 16, 32 + 36 * at, whole.width - 32);
                }});
                pen.drawImage(drawn, 0, top);
                const days = (lines[2] ?? '').match(/\\d{{4}}-\\d\\d-\\d\\d/g) ?? [];
                const name = [text || '{name}', ...days].join('_');
                link.href = whole.toDataURL();
                link.download = name.replace(/[^\\w.-]+/g, '-') + '.png';
                link.click();
            }}""",
        )

    def show(self, drawn: dict[str, Any] | str) -> None:
        """Draws a chart's options, or shows words in its place."""
        is_words = isinstance(drawn, str)
        self.is_drawn = not is_words
        self._words.set_text(drawn if isinstance(drawn, str) else "")
        self._words.set_visibility(is_words)
        subject = "" if isinstance(drawn, str) else drawn.get("title", {}).get("subtext", "")
        self._subject.set_text(subject.partition("\n")[0])
        self.chart.set_visibility(not is_words)
        if not isinstance(drawn, str):
            self.chart.options.clear()
            self.chart.options.update(drawn)
            self.chart.update()


class MapCard:
    """A map in its card, without a ground where no tiles are named. Shown anew it stays where it was left.

    ``head`` and ``below`` take what is beside and below it.
    """

    def __init__(self, title: str, config: DashboardConfig, *, wide: bool = False) -> None:
        self._tiles, self._attribution = config.tiles, config.tiles_attribution
        ui.add_head_html(f"<script>{_MAPS.read_text()}</script>")
        with card(title, wide=wide) as self.head:
            self._words = ui.label().classes("missing").props('role="status"')
            # The page is scrolled by the wheel; the map has buttons.
            self._map = ui.leaflet(options={"scrollWheelZoom": False}).classes("chart tall map")
            # NiceGUI's own tiles are another's.
            self._map.layers.clear()
            self._map.props(f'role="group" aria-label={json.dumps(title)}')
            self.below = ui.element("div")

    def show(self, draw: str, drawn: object | str) -> None:
        """Has a function of ``maps.js`` draw, or shows words in its place."""
        is_words = isinstance(drawn, str)
        self._words.set_text(drawn if isinstance(drawn, str) else "")
        self._words.set_visibility(is_words)
        self._map.set_visibility(not is_words)
        if not is_words:
            given = ", ".join(json.dumps(each) for each in (drawn, self._tiles, self._attribution))
            self._map.client.run_javascript(f"{draw}({self._map.id}, {given})")


def around(gateway: str, channel: str | None, at_ms: int) -> str:
    """The address of a mast's page at some hours about a time."""
    begin, end = (moment(at_ms + hours * 3_600_000, "%Y-%m-%dT%H:%M") for hours in (-3, 3))
    return address(f"/mast/{gateway}", channel=channel, from_=begin, to=end)


_MOST_ROWS: Final = 500


Link = Callable[[dict[str, Any]], str]
"""The address that a row leads to."""


def table(columns: tuple[str, ...], rows: list[dict[str, Any]], link: Link | None = None) -> ui.table:
    """A small table: times as people read them, numbers with few digits; ``link``: where first cells lead.

    The browser gets all rows at once, so there is a bound.
    """
    if len(rows) > _MOST_ROWS:
        missing([f"{len(rows) - _MOST_ROWS:,} more rows are left out: `fieldgate query` has them all."])
        rows = rows[:_MOST_ROWS]
    shown = [{"n": at, **{name: _cell(name, row[name]) for name in columns}} for at, row in enumerate(rows)]
    if link is not None:
        shown = [each | {"link": link(row)} for each, row in zip(shown, rows, strict=True)]
    heads = [
        {"name": name, "label": name.removesuffix("_at").replace("_", " "), "field": name, "align": "left",
         "sortable": True}
        for name in columns
    ]  # fmt: skip
    made = ui.table(columns=heads, rows=shown, row_key="n", pagination=25).props("flat dense")
    if link is not None:
        # Vue escapes both.
        made.add_slot(
            f"body-cell-{columns[0]}",
            '<q-td :props="props"><a :href="props.row.link">{{ props.value }}</a></q-td>',
        )
    return made.props("hide-bottom") if len(rows) <= 25 else made


def table_card(
    title: str,
    found: Frame | str,
    none: str,
    link: Link | None = None,
    *,
    wide: bool = False,
    also: Callable[[ui.element, ui.table, list[Any]], None] | None = None,
) -> None:
    """A card with a table's rows, or with words: why there is no table, or no row.

    A column ``id`` isn't shown: ``also`` gets it, with the card's head and the table.
    """
    with card(title, wide=wide) as head:
        if isinstance(found, str):
            missing([found])
        elif not found.rows:
            ui.label(none).classes("soft")
        else:
            made = table(tuple(each for each in found.columns if each != "id"), found.dicts(), link)
            if also is not None and "id" in found.columns:
                also(head, made, found.column("id"))


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name.endswith("_at"):
        return moment(value)
    return number(value, 6) if isinstance(value, float) else str(value)
