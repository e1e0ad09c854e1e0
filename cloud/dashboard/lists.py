"""Pages that are tables: alerts and anomalies of all masts, and how the pipeline is."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Awaitable, Callable
from typing import Any, Final

from nicegui import ui

from cloud.dashboard.acknowledging import Acknowledge, AlertChoice
from cloud.dashboard.frame import around, is_open, page, table_card
from cloud.errors import CloudError
from cloud.lake.acknowledgements import open_alerts
from cloud.lake.mast import DEVIATING
from cloud.lake.reader import Frame, LakeReader
from cloud.operate.accounts import balance

RUNS: Final = """SELECT gateway, run, state, epoch_ms(started) AS started_at, epoch_ms(ended) AS ended_at,
    try_cast(list_sum(map_values(last_seq)) AS BIGINT) AS sampled, in_flight, outbox_records,
    coalesce(list_sum(map_values(dropped_records)), 0)::BIGINT AS dropped, drops_unknown
    FROM runs ORDER BY runs.started DESC LIMIT 300"""
"""The newest runs: what each has numbered, what waits, and what it announced as dropped."""

PAYLOADS: Final = """WITH newest AS (
        SELECT reason, unnest(arg_max({
            'at': epoch_ms(kafka_time), 'gateway': gateway, 'source': left(source, 200),
            'bytes': payload_bytes,
            'payload': coalesce(try(decode(payload))[:200], '0x' || left(hex(payload), 200))
        }, kafka_time, 5)) AS each FROM quarantine WHERE overflow IS NULL GROUP BY reason
    )
    SELECT left(reason, 300) AS reason, each.gateway, each.at AS arrived_at, each.source, each.bytes,
        each.payload
    FROM newest ORDER BY newest.reason, each.at DESC LIMIT 500"""
"""The newest five of each reason; a payload that is no text in hexadecimal digits. By ``arg_max``, which
holds five of them, not all as a window would."""

PAGES: Final[dict[str, dict[str, tuple[str, str] | Callable[[LakeReader], Frame]]]] = {
    "Alerts": {
        "Open alerts": open_alerts,
        "Cleared alerts": (
            "alerts",
            """SELECT gateway, rule, kind, severity, channel, epoch_ms(raised_at) AS raised_at,
            epoch_ms(cleared_at) AS cleared_at, value, detail FROM alerts WHERE cleared_at IS NOT NULL
            ORDER BY alerts.raised_at DESC LIMIT 200""",
        ),
        "Anomalies above their threshold": (
            "anomalies",
            f"SELECT gateway, {DEVIATING} ORDER BY anomalies.interval_start DESC LIMIT 200",
        ),
    },
    "Pipeline": {
        "What became of all readings": balance,
        "Freshness": (
            "presence",
            """SELECT gateway, string_agg(DISTINCT state, ', ' ORDER BY state) AS state,
            epoch_ms(max(last_seen)) AS last_seen_at, epoch_ms(max(last_time)) AS newest_reading_at,
            round(epoch(max(last_seen)) - epoch(max(last_time)), 1) AS way_s,
            try_cast(sum(pending) AS BIGINT) AS pending,
            try_cast(sum(announced) AS BIGINT) AS announced_drops,
            try_cast(sum(lost) AS BIGINT) AS lost FROM presence
            GROUP BY ALL ORDER BY max(last_seen)""",
        ),
        "Statistics": (
            "statistics",
            """SELECT interval_s, epoch_ms(max(interval_start)) AS newest_interval_at,
            epoch_ms(max(updated_at)) AS written_at, count(*) FILTER (version = 0) AS open, count(*)
            FILTER (version > 1) AS corrected FROM statistics WHERE date >= (SELECT max(date) FROM
            statistics) - 1 GROUP BY ALL ORDER BY ALL""",
        ),
        "Quarantine by reason": (
            "quarantine",
            """SELECT left(reason, 300) AS reason, sum(coalesce(overflow, 1))::BIGINT AS records,
            count(DISTINCT gateway) AS gateways, epoch_ms(min(kafka_time)) AS oldest_at,
            epoch_ms(max(kafka_time)) AS newest_at FROM
            quarantine GROUP BY ALL ORDER BY records DESC LIMIT 100""",
        ),
        "Quarantined payloads": ("quarantine", PAYLOADS),
        "Runs": ("runs", RUNS),
    },
}
"""Cards of each page, and what is in them: the answer of one table, or what is made of several."""


_NO_PRESENCE: Final = (
    "No mast in table presence yet: fieldgate jobs run presence fills it from what masts send; "
    "what was imported is not in it."
)
NO_ROWS: Final = {
    "Open alerts": "None is open: fieldgate jobs run alerts raises them by the rules of its --rules.",
    "Cleared alerts": "None so far: one that was raised is cleared when its rule no longer holds.",
    "Anomalies above their threshold": "No interval above its threshold, and no rule broken. "
    "Scores need a model: fieldgate jobs train.",
    "What became of all readings": _NO_PRESENCE,
    "Freshness": _NO_PRESENCE,
    "Statistics": "No interval yet: fieldgate jobs run statistics makes them of readings.",
    "Quarantine by reason": "Empty: no record was refused.",
    "Quarantined payloads": "Empty: no record was refused.",
    "Runs": "No run yet: gateways publish them, fieldgate jobs run ingest stores them.",
}
"""What a card says whose table has no rows."""


def read_lists(reader: LakeReader, title: str) -> dict[str, Frame | str]:
    """Each card of a page: its rows, or why there are none."""
    found: dict[str, Frame | str] = {}
    for name, asked in PAGES[title].items():
        try:
            found[name] = reader.read(*asked) if isinstance(asked, tuple) else asked(reader)
        except CloudError as error:
            found[name] = str(error)
    return found


def link_of_row(row: dict[str, Any]) -> str:
    """The mast's page at an alert's or anomaly's channel and time."""
    return around(row["gateway"], row["channel"], row.get("raised_at") or row["interval_start_at"])


async def lists_page(
    reader: LakeReader,
    changed: Any,
    title: str,
    *,
    first: Callable[[], Awaitable[None]] | None = None,
    acknowledge: Acknowledge | None = None,
) -> None:
    """Builds the page, ``first`` what renews itself, and renews the rest when a table has changed.

    ``acknowledge``: what a user may do with the alerts.
    """
    with page(title, f"/{title.lower()}"):
        if first is not None:
            with ui.element("div").classes("lists"):
                await first()
        choice = acknowledge and AlertChoice(acknowledge)
        body = ui.element("div").classes("lists")

    async def renew() -> None:
        found = await to_thread(read_lists, reader, title)
        if not is_open(body):
            return
        body.clear()
        with body:
            for name, rows in found.items():
                link = link_of_row if title == "Alerts" else None
                table_card(name, rows, NO_ROWS[name], link, also=choice.add if choice is not None else None)

    await renew()
    changed.subscribe(renew)
