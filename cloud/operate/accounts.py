"""``fieldgate status --lake``: what became of everything that was sampled, by the tables of a lake."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.table import Table

from cloud.command_line import FAILED, OK
from cloud.lake.query import named_lakes
from cloud.lake.reader import ALL, Frame, LakeReader
from cloud.terminal import plain_table, wide_console

_COUNTS: Final = ("sampled", "stored_or_quarantined", "waiting", "dropped", "lost")
_RUNS: Final = """WITH cut AS (
        SELECT gateway, each.run AS run, any_value(each."end") AS cut, max(each.lost_at_most_s) AS may_lack_s
        FROM (SELECT gateway, unnest(unfinished) AS each FROM runs) GROUP BY ALL
    )
    SELECT gateway, run, if(state IN ('running', 'ended'), coalesce(cut, state), state) AS state,
        epoch_ms(started) AS started_at, epoch_ms(reported_at) AS reported_at,
        try_cast(list_sum(map_values(last_seq)) AS BIGINT) AS sampled,
        coalesce(list_sum(map_values(dropped_records)), 0)::BIGINT AS dropped, may_lack_s
    FROM runs LEFT JOIN cut USING (gateway, run) ORDER BY gateway, started, run"""
"""The runs by their records. One that another run reports as cut short has that as its state."""


def balance(reader: LakeReader) -> Frame:
    """What became of all that each mast has numbered: the rest of it is in the lake.

    Without run records or counts the rest is null. Raises Missing, LakeError.
    """
    sampled = dict(
        reader.read(
            "runs",
            "SELECT gateway, try_cast(sum(list_sum(map_values(last_seq))) AS BIGINT) FROM runs GROUP BY ALL",
        ).rows
    )
    missing = reader.read(
        "presence",
        # What many runs claim together may be more than a BIGINT holds: then it isn't known.
        "SELECT gateway, try_cast(sum(pending) AS BIGINT), "
        "try_cast(sum(announced) AS BIGINT), try_cast(sum(lost) AS BIGINT) "
        "FROM presence GROUP BY ALL ORDER BY sum(lost) DESC, gateway",
    )
    rows = []
    for gateway, *counts in missing.rows:
        total = sampled.get(gateway)
        is_known = total is not None and None not in counts
        rows.append((gateway, total, total - sum(counts) if is_known else None, *counts))
    return Frame(("gateway", "sampled", "stored_or_quarantined", "waiting", "dropped", "lost"), rows)


def _gateway_table(gateways: Sequence[Mapping[str, Any]]) -> Table:
    counts = [name.replace("_", " ") for name in _COUNTS]
    table = plain_table("gateway", *counts, right=counts)
    for row in gateways:
        style = None if row["lost"] == 0 else "bold red"
        table.add_row(row["gateway"], *(_count(row[name]) for name in _COUNTS), style=style)
    return table


def _run_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    # A column of its own only where there is something in it.
    may_lack = ["may lack"] if any(row["may_lack_s"] is not None for row in runs) else []
    counts = ["sampled", "dropped"]
    table = plain_table("gateway", "run", "state", "started", "last record", *counts, *may_lack, right=counts)
    for row in runs:
        cells = [row["gateway"], row["run"], row["state"], _moment(row["started_at"])]
        cells += [_moment(row["reported_at"]), _count(row["sampled"]), _count(row["dropped"])]
        if may_lack:
            seconds = row["may_lack_s"]
            cells.append("" if seconds is None else f"its last {seconds:g} s")
        table.add_row(*cells)
    return table


def _count(count: int | None) -> str:
    return "–" if count is None else f"{count:,}"


def _moment(at_ms: int | None) -> str:
    return "–" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%m-%d %H:%M:%SZ")


def run(arguments: argparse.Namespace) -> int:
    """Print the accounts: 0, or 1 where something is lost. Raises CloudError."""
    reader = LakeReader(named_lakes(arguments), ALL if arguments.gateway is None else (arguments.gateway,))
    reader.look()
    gateways, runs = balance(reader).dicts(), reader.read("runs", _RUNS).dicts()
    balanced = all(row["lost"] == 0 for row in gateways)
    if arguments.json:
        print(json.dumps({"balanced": balanced, "gateways": gateways, "runs": runs}, indent=2))
        return OK if balanced else FAILED
    console = wide_console()
    if not gateways and not runs:
        of = "" if arguments.gateway is None else f" of {arguments.gateway}"
        console.print(f"no runs and no readings{of}")
        return OK
    console.print(_gateway_table(gateways))
    console.print()
    console.print(_run_table(runs))
    return OK if balanced else FAILED
