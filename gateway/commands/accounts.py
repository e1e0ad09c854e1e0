"""``fieldgate status --bootstrap-servers``: what became of everything that was sampled, as a table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from rich.table import Table

from cloud.kafka.run_accounts import Books, RunAccount
from cloud.kafka.topic_scan import read_books
from gateway.commands.arguments import FAILED, OK, kafka_of, schemas_of
from gateway.commands.tables import plain_table, progress_bar, wide_console

_COUNTS: Final = (
    "sampled", "in_kafka", "repeats", "dead_letters", "dropped", "expired", "pending", "unaccounted",
    "never_sampled",
)  # fmt: skip
_ONLY_IF_ANY: Final = frozenset({"expired", "never_sampled"})


def _totals(accounts: Sequence[RunAccount]) -> dict[str, int]:
    return {name: sum(getattr(account, name) or 0 for account in accounts) for name in _COUNTS}


def as_json(books: Books, accounts: Sequence[RunAccount]) -> dict[str, Any]:
    """The accounts as one object, for programs."""
    letters: dict[str, dict[str, int]] = {}
    for (gateway, reason), count in sorted(books.letters.items()):
        letters.setdefault(gateway, {})[reason] = count
    return {
        "balanced": all(account.balanced for account in accounts),
        "total": _totals(accounts),
        "runs": [asdict(account) | {"balanced": account.balanced} for account in accounts],
        "dead_letters_by_reason": letters,
        "unreadable_records": dict(books.unreadable),
    }


def _table(accounts: Sequence[RunAccount]) -> Table:
    totals = _totals(accounts)
    shown = [name for name in _COUNTS if name not in _ONLY_IF_ANY or totals[name]]
    counts = [name.replace("_", " ") for name in shown]
    # Columns of their own only where there is something in them.
    may_lack = ["may lack"] if any(account.unannounced_s is not None for account in accounts) else []
    table = plain_table("gateway", "run", "state", "last record", *counts, *may_lack, right=counts)
    for account in accounts:
        cells = [account.gateway, account.run, account.state, _moment(account.told_ms)]
        cells += [_cell(getattr(account, name)) for name in shown]
        if may_lack:
            cells.append("" if account.unannounced_s is None else f"its last {account.unannounced_s:g} s")
        table.add_row(*cells, style=None if account.balanced else "bold red")
    if len(accounts) > 1:
        table.add_row("total", "", "", "", *(_cell(totals[name]) for name in shown), style="bold")
    return table


def _cell(count: int | None) -> str:
    return "–" if count is None else f"{count:,}"


def _moment(at_ms: int | None) -> str:
    return "–" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%m-%d %H:%M:%SZ")


def run(arguments: argparse.Namespace) -> int:
    """Print the accounts: 0, or 1 where something is unaccounted. Raises CloudError."""
    servers, properties, prefix = kafka_of(arguments)
    with progress_bar("records read") as progress:
        books = read_books(
            servers or "",
            gateway=arguments.gateway,
            topics=arguments.topics or None,
            properties=properties,
            prefix=prefix,
            timeout_s=arguments.timeout,
            progress=progress,
            schemas=schemas_of(arguments),
        )
    accounts = books.accounts()
    result = as_json(books, accounts)
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        console = wide_console()
        if accounts:
            console.print(_table(accounts))
        else:
            of = "" if arguments.gateway is None else f" of {arguments.gateway}"
            console.print(f"no runs and no readings{of}")
        for topic, count in sorted(books.unreadable.items()):
            console.print(f"{topic}: {count:,} records are not what the topic is for", highlight=False)
        if books.unknown_schemas:
            unknown = f"{books.unknown_schemas:,} of them are Avro of an unknown schema"
            console.print(f"{unknown}: name the registry in [schema_registry] of --cloud", highlight=False)
    return OK if result["balanced"] else FAILED
