"""``fieldgate status``: what the running daemon does; or by the run ledger what became of all readings."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console

from gateway.commands.arguments import (
    CONFIG_PATH,
    OK,
    CommandError,
    add_json,
    add_kafka,
    add_list,
    add_timeout,
)
from gateway.commands.reading_rows import channel_table
from gateway.commands.tables import print_findings, terminal
from gateway.status.client import NoStatus, fetch, listen_address


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the daemon's config; or where the run ledger is."""
    meaning = f"where [status] listen stands (default: {CONFIG_PATH})"
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help=meaning)
    add_json(parser)
    accounts = parser.add_argument_group("what became of everything sampled, by the run ledger in Kafka")
    add_kafka(accounts, "count here")
    accounts.add_argument("--gateway", metavar="ID", help="this one only")
    add_list(accounts, "--topic", "topics", "NAME", "a topic of readings; default: mqtt.… and what runs name")
    add_timeout(accounts)


def run(arguments: argparse.Namespace) -> int:
    """Prints the status. Raises CommandError where the daemon's can't be fetched."""
    if arguments.bootstrap_servers is not None or arguments.cloud is not None:
        # Needs Kafka's library; the daemon's own status doesn't.
        from gateway.commands import accounts

        return accounts.run(arguments)
    if arguments.gateway or arguments.topics or arguments.properties:
        raise CommandError("--gateway, --topic and --property need --bootstrap-servers or --cloud")
    why_default = ""
    try:
        listen, why_default = listen_address(
            arguments.config or CONFIG_PATH, chosen=arguments.config is not None
        )
        status = fetch(listen)
    except NoStatus as error:
        raise CommandError(f"{error}{why_default}") from error
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(status), indent=2).decode())
        return OK
    proven = " (proves itself)" if status.run_proves_itself else ""
    console, width = terminal()
    console.print(
        f"{status.gateway} run {status.run}{proven}: {status.state}, uplink {status.uplink}\n"
        f"sampled {status.sampled}  confirmed {status.confirmed}  in flight {status.in_flight}"
    )
    print_findings(status.findings, console, width)
    Console().print(channel_table(status, datetime.now(UTC)))
    return OK
