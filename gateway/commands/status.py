"""``fieldgate status``: what the running daemon does; or by a lake's tables what became of all readings."""

from __future__ import annotations

import argparse
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import msgspec
from rich.console import Console

from cloud.command_line import CONFIG_PATH, OK, CommandError, add_json
from gateway.commands.findings import print_findings, terminal
from gateway.commands.reading_rows import channel_table
from gateway.status.client import NoStatus, fetch, listen_address


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the daemon's config, and the lake."""
    meaning = f"where [status] listen stands (default: {CONFIG_PATH})"
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help=meaning)
    add_json(parser)
    accounts = parser.add_argument_group("what became of everything sampled, by the tables of a lake")
    accounts.add_argument("--lake", metavar="URI", help="root of the tables, or a name of [lakes]")
    accounts.add_argument("--cloud", type=Path, metavar="FILE", help="the cloud's config: where the lake is")
    accounts.add_argument("--gateway", metavar="ID", help="this one only")


def run(arguments: argparse.Namespace) -> int:
    """Prints the status. Raises CommandError where the daemon's can't be fetched."""
    if arguments.lake is not None or arguments.cloud is not None:
        if find_spec("duckdb") is None:
            raise CommandError("a lake's accounts need the extra 'analyst': pip install 'fieldgate[analyst]'")
        from cloud.operate import accounts

        return accounts.run(arguments)
    if arguments.gateway:
        raise CommandError("--gateway needs --lake or --cloud")
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
    Console().print(channel_table(status, datetime.fromisoformat(status.now)))
    return OK
