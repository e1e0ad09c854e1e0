"""The page of all masts: how many are well, a list, and where they stand."""

from __future__ import annotations

import json
import time
from asyncio import to_thread
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from nicegui import ui

from cloud.config import DashboardConfig
from cloud.dashboard.acknowledging import Acknowledge, AcknowledgeDialog
from cloud.dashboard.attention import CALIBRATION_DUE_DAYS, REPORT_DUE_S, AttentionCard
from cloud.dashboard.charts import STATES
from cloud.dashboard.fleet import Fleet, FleetReader
from cloud.dashboard.frame import (
    MapCard,
    address,
    ago,
    card,
    is_open,
    missing,
    moment,
    number,
    page,
    percent,
    tiles,
)


def _sites_map(config: DashboardConfig) -> Callable[[list[dict[str, Any]]], None]:
    """The masts on a map; what shows them."""
    sites = MapCard("Sites", config)
    with sites.head:
        ui.element("span").classes("gap")
        ui.link("CSV", "/csv/fleet").classes("export").props("download")

    def show(masts: list[dict[str, Any]]) -> None:
        drawn = [
            {"name": mast["gateway"], "state": mast["state"], "colour": STATES[mast["state"]],
             "at": [mast["latitude"], mast["longitude"]]}
            for mast in masts if None not in (mast["latitude"], mast["longitude"])
        ]  # fmt: skip
        sites.show("drawSites", drawn or _NO_PLACES)

    return show


_COLUMNS: Final = (
    ("gateway", "mast"), ("name", "site"), ("state", "state"), ("ago_s", "last seen"), ("wind", "wind, m/s"),
    ("day", "recovery 24 h"), ("month", "30 days"), ("alerts", "alerts"), ("waiting", "outbox"), ("lost",
     "lost"), ("report_s", "report"), ("calibration", "calibration"),
)  # fmt: skip
_MAY_LACK: Final = {"report_s": "reported_at", "calibration": "expires"}
"""Columns that are there once a mast has that: an older lake has neither."""
_RENEWED_EVERY: Final = 10
"""Ticks of a second: all masts' rows are sent each time."""
_PERCENT: Final = """<q-td :props="props"><template v-if="props.value != null"><span class="bar"><i
    :style="{width: props.value + '%'}" :class="props.value < 50 ? 'poor' : props.value < 95 ? 'half' :
        ''"></i></span>
    {{ props.value.toFixed(1) }} %</template><template v-else>–</template></q-td>"""
_CELLS: Final = {
    "gateway": """<q-td :props="props"><a :href="'/mast/' + encodeURIComponent(props.value)">{{ props.value
        }}</a></q-td>""",
    "state": """<q-td :props="props"><span :class="'state ' + props.value">{{ props.value }}<template
        v-if="props.row.silent && props.value == 'online'">, {{ props.row.silent }} of {{
        props.row.channels }}
        silent</template></span></q-td>""",
    "ago_s": """<q-td :props="props">{{ props.row.ago }}</q-td>""",
    "alerts": """<q-td :props="props"><span :class="props.value ? 'badge' : ''">{{ props.value ?? '–'
        }}</span></q-td>""",
    "report_s": """<q-td :props="props"><span :class="props.row.is_report_poor ? 'badge' : ''">{{
        props.row.report }}<template v-if="props.row.findings">, {{ props.row.findings }}
        found</template></span></q-td>""",
    "calibration": """<q-td :props="props"><span :class="props.row.is_calibration_due ? 'badge' : ''">{{
        props.value == null ? '–' : props.value < 0 ? 'expired' : props.value + ' d' }}</span></q-td>""",
    **dict.fromkeys(("day", "month"), _PERCENT),
    **dict.fromkeys(("wind", "waiting", "lost", "name"), """<q-td :props="props">{{ props.value ?? '–'
        }}</q-td>"""),
}  # fmt: skip
_GRID: Final = """<div class="q-pa-xs col-12"><a class="channel" style="display:block"
    :href="'/mast/' + encodeURIComponent(props.row.gateway)"><div class="line"><b>{{ props.row.gateway }}</b>
    <span class="soft">{{ props.row.name }}</span><span class="gap"></span><span v-if="props.row.alerts"
        class="badge">{{
    props.row.alerts }}</span></div><div class="line"><span :class="'state ' + props.row.state">{{
        props.row.state }},
    {{ props.row.ago }}</span><span class="gap"></span><span>{{ props.row.wind ?? '–' }} m/s</span><span>{{
    props.row.day == null ? '–' : props.row.day.toFixed(1) + ' %' }}</span></div></a></div>"""

_NO_PLACES: Final = (
    "No mast has coordinates: latitude and longitude in [site] of its gateway.toml, which "
    "fieldgate jobs run ingest puts into table sites, or of an import's mapping."
)
_NO_MASTS: Final = (
    "No mast in the lake yet: fieldgate jobs run all fills it from what gateways publish, "
    "fieldgate import from other loggers' files."
)


def rows(fleet: Fleet, state: str | None, now_s: float) -> list[dict[str, Any]]:
    """The list's rows, those of one state or all."""
    made = []
    for mast in fleet.masts:
        if state is not None and mast["state"] != state:
            continue
        seen = mast["last_seen_at"]
        age_s = None if seen is None else now_s - seen / 1000
        percent = {name: None if mast[name] is None else 100 * mast[name] for name in ("day", "month")}
        wind = None if mast["wind"] is None else round(mast["wind"], 1)
        made.append(mast | percent | _due(mast, now_s) | {"wind": wind, "ago_s": age_s, "ago": ago(age_s)})
    return made


def _due(mast: Mapping[str, Any], now_s: float) -> dict[str, Any]:
    """Cells of the last report and of the first calibration to expire, in whole days in UTC."""
    reported, expires = mast["reported_at"], mast["expires"]
    age_s = None if reported is None else now_s - reported / 1000
    left = None if expires is None else (expires - datetime.fromtimestamp(now_s, UTC).date()).days
    return {
        "report_s": age_s, "report": ago(age_s).removesuffix(" ago"),
        "is_report_poor": bool(mast["findings"]) or (age_s is not None and age_s > REPORT_DUE_S),
        "calibration": left, "is_calibration_due": left is not None and left <= CALIBRATION_DUE_DAYS,
        "expires": expires and str(expires),
    }  # fmt: skip


def columns(fleet: Fleet) -> list[dict[str, Any]]:
    """The list's columns as the table takes them."""
    lacked = [name for name, needs in _MAY_LACK.items() if all(mast[needs] is None for mast in fleet.masts)]
    return [
        {"name": name, "label": label, "field": name, "sortable": True, "align": "left"}
        for name, label in _COLUMNS
        if name not in lacked
    ]


@dataclass(frozen=True)
class Look:
    """How the list is looked at, as the page's address says."""

    state: str | None = None
    find: str = ""
    sort: str = "gateway"
    is_down: bool = False
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Look:
        """Reads an address; what it has wrong is left out."""
        sort, at = query.get("sort", ""), query.get("page", "")
        return cls(
            query.get("state"),
            query.get("find", ""),
            sort if sort in dict(_COLUMNS) else "gateway",
            query.get("down") == "1",
            max(1, int(at)) if at.isascii() and at.isdecimal() and len(at) < 7 else 1,
        )

    def address(self) -> str:
        """The page's address; what is usual is left out."""
        given = {"state": self.state, "find": self.find or None, "down": 1 if self.is_down else None,
                 "sort": None if self.sort == "gateway" else self.sort,
                 "page": None if self.page == 1 else self.page}  # fmt: skip
        return address("/", **given)

    def pagination(self) -> dict[str, Any]:
        """Returns what the table takes."""
        return {"rowsPerPage": 25, "sortBy": self.sort, "descending": self.is_down, "page": self.page}


async def fleet_page(
    sources: tuple[FleetReader, Acknowledge | None], changed: Any, ticks: Any, look: Look,
    config: DashboardConfig,
) -> None:  # fmt: skip
    """Builds the page, and renews it when a table has changed, and every so many of the live ``ticks``."""
    (reader, acknowledge), state = sources, look.state
    fleet = await to_thread(reader.read)
    with page("Fleet", "/"):
        attention = AttentionCard(acknowledge and AcknowledgeDialog(acknowledge).ask)
        top = ui.element("div").classes("sums")
        with ui.element("div").classes("two"):
            with card("Masts" if state is None else f"Masts {state}") as head:
                table = (
                    ui.table(columns=columns(fleet), rows=[], row_key="gateway", pagination=look.pagination())
                    .classes("fleet")
                    .props('flat dense binary-state-sort :grid="window.innerWidth < 700"')
                )
                none = _NO_MASTS if state is None else f"No mast is {state} now."
                table.props(
                    f"no-data-label={json.dumps(none)} no-results-label='No mast has that in its row.'"
                )
                for name, template in _CELLS.items():
                    table.add_slot(f"body-cell-{name}", template)
                table.add_slot("item", _GRID)
            with head:
                ui.element("span").classes("gap")
                find = ui.input(placeholder="find", value=look.find).props(
                    'dense outlined clearable debounce=150 aria-label="Find a mast"'
                )
                find.bind_value_to(table, "filter")
                ui.link("CSV", "/csv/fleet").classes("export").props("download")
            show_sites = _sites_map(config)

    def looked() -> None:
        """Puts into the browser's line how the list is looked at now."""
        now = table.pagination
        sort, is_down = now.get("sortBy") or "gateway", bool(now.get("descending"))
        there = Look(state, find.value or "", sort, is_down, now.get("page") or 1).address()
        ui.run_javascript(f"history.replaceState(null, '', {json.dumps(there)})")

    table.on_pagination_change(looked)
    find.on_value_change(looked)

    def show(fleet: Fleet) -> None:
        shown = rows(fleet, state, time.time())
        attention.show(fleet)
        table.columns = columns(fleet)
        table.rows[:] = shown
        table.update()
        show_sites(shown)
        top.clear()
        with top:
            _tiles(fleet)

    async def renew() -> None:
        fleet = await to_thread(reader.read)
        if is_open(table):
            show(fleet)

    passed = 0

    async def tick() -> None:
        nonlocal passed
        passed += 1
        if passed % _RENEWED_EVERY == 0:
            await renew()

    show(fleet)
    changed.subscribe(renew)
    ticks.subscribe(tick)


def summary(fleet: Fleet) -> dict[str, str]:
    """The fleet in numbers, a dash for one that the lake lacks."""
    days = [mast["day"] for mast in fleet.masts if mast["day"] is not None]
    values = {"masts": number(len(fleet.masts))} | {
        state: number(count) for state, count in fleet.counts().items() if count or state == "online"
    }
    sums = {
        name: [mast[name] for mast in fleet.masts if mast[name] is not None] for name in ("alerts", "lost")
    }
    values["recovery, 24 h"] = percent(sum(days) / len(days) if days else None)
    values["open alerts"] = number(sum(sums["alerts"])) if sums["alerts"] else "–"
    values["readings lost"] = number(sum(sums["lost"])) if sums["lost"] else "–"
    values["statistics up to, UTC"] = moment(fleet.until_ms, "%d %b %H:%M")
    return values


def _tiles(fleet: Fleet) -> None:
    values = summary(fleet)
    links = {"masts": "/", "open alerts": "/alerts"}
    links |= {state: address("/", state=state) for state in fleet.counts()}
    missing(fleet.missing)
    tiles(values, links)
