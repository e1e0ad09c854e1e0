"""The page of all masts: how many are well, a list, and where they stand."""

from __future__ import annotations

import time
from asyncio import to_thread
from typing import Any, Final

from nicegui import ui

from cloud.dashboard import charts
from cloud.dashboard.fleet import Fleet, FleetReader
from cloud.dashboard.frame import ChartCard, address, ago, card, is_open, missing, moment, number, page, tiles

_COLUMNS: Final = (
    ("gateway", "mast"), ("name", "site"), ("state", "state"), ("ago_s", "last seen"), ("wind", "wind, m/s"),
    ("day", "recovery 24 h"), ("month", "30 days"), ("alerts", "alerts"), ("waiting", "outbox"), ("lost",
     "lost"),
)  # fmt: skip
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
        made.append(mast | percent | {"wind": wind, "ago_s": age_s, "ago": ago(age_s)})
    return made


async def fleet_page(reader: FleetReader, changed: Any, ticks: Any, state: str | None) -> None:
    """Builds the page, and renews it when a table has changed, and every so many of the live ``ticks``."""
    fleet = await to_thread(reader.read)
    with page("Fleet", "/"):
        top = ui.element("div").classes("top-of-fleet")
        with ui.element("div").classes("two"):
            with card("Masts" if state is None else f"Masts {state}") as head:
                table = ui.table(
                    columns=[
                        {"name": name, "label": label, "field": name, "sortable": True, "align": "left"}
                        for name, label in _COLUMNS
                    ],
                    rows=[],
                    row_key="gateway",
                    pagination={"rowsPerPage": 25, "sortBy": "gateway"},
                ).props('flat dense :grid="window.innerWidth < 700"')
                for name, template in _CELLS.items():
                    table.add_slot(f"body-cell-{name}", template)
                table.add_slot("item", _GRID)
            with head:
                ui.element("span").classes("gap")
                find = ui.input(placeholder="find").props(
                    'dense outlined clearable debounce=150 aria-label="Find a mast"'
                )
                find.bind_value_to(table, "filter")
                ui.link("CSV", "/csv/fleet").classes("export").props("download")
            sites = ChartCard("Sites", "/csv/fleet", tall=True)

    def show(fleet: Fleet) -> None:
        shown = rows(fleet, state, time.time())
        table.rows[:] = shown
        table.update()
        placed = [mast for mast in shown if mast["latitude"] is not None]
        sites.show(
            charts.sites(placed)
            if placed
            else "No mast has coordinates: [site] in its config, then table sites."
        )
        top.clear()
        with top:
            _summary(fleet)

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


def _summary(fleet: Fleet) -> None:
    counts = fleet.counts()
    days = [mast["day"] for mast in fleet.masts if mast["day"] is not None]
    values = {"masts": number(len(fleet.masts))} | {
        state: number(count) for state, count in counts.items() if count or state == "online"
    }
    links = {"masts": "/"} | {state: address("/", state=state) for state in counts}
    sums = {
        name: [mast[name] for mast in fleet.masts if mast[name] is not None] for name in ("alerts", "lost")
    }
    values["recovery, 24 h"] = f"{100 * sum(days) / len(days):.1f} %" if days else "–"
    values["open alerts"] = number(sum(sums["alerts"])) if sums["alerts"] else "–"
    values["readings lost"] = number(sum(sums["lost"])) if sums["lost"] else "–"
    values["statistics up to, UTC"] = moment(fleet.until_ms, "%d %b %H:%M")
    missing(fleet.missing)
    tiles(values, links | {"open alerts": "/alerts"})
