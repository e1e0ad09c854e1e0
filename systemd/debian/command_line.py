"""The package's manual page and bash completion, made from the parsers by argparse-manpage and shtab."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import shtab
from argparse_manpage.manpage import Manpage

from gateway import cli

_NOT_PACKAGED: Final = frozenset({
    "jobs", "query", "import", "dashboard", "token", "report", "export", "health", "alerts", "cleaning",
    "documents", "notify", "deliver", "simulate", "demo",
})  # fmt: skip
"""Commands that need Spark, Java or the analysts' packages, which a mast has not, or are for a cluster."""
_MORE: Final = r"""
.SH FILES
.TP
.I /etc/fieldgate/gateway.toml
The config.
.TP
.I /var/lib/fieldgate/outbox.db
What Kafka has not confirmed, where outbox.path isn't set.
.TP
.I /usr/local/lib/fieldgate
Drivers that others write.
.TP
.I /usr/share/doc/fieldgate
Installing, configuring, operating; examples.
.SH EXIT STATUS
0 done, 1 failed, 2 wrong usage, 130 interrupted.
.SH SEE ALSO
.BR systemctl (1),
.BR journalctl (1),
.BR mosquitto (8)
"""


def packaged_parser() -> argparse.ArgumentParser:
    """Returns the parser of everything that the packaged ``fieldgate`` takes."""
    top = argparse.ArgumentParser(prog="fieldgate", description=cli.parser().description)
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    made: dict[str, argparse.ArgumentParser] = {}
    below: dict[str, Any] = {}
    for name, command in cli.COMMANDS.items():
        first, _, second = name.partition(" ")
        if second and first not in below:
            if first in cli.GROUPS:
                made[first] = commands.add_parser(first, help=cli.GROUPS[first])
            below[first] = made[first].add_subparsers(metavar="COMMAND", required=first in cli.GROUPS)
        if name not in _NOT_PACKAGED:
            made[name] = (below[first] if second else commands).add_parser(second or name, help=command.help)
            cli.add_arguments(name, made[name])
    return top


def completion() -> str:
    """Returns the completion of the command line, to be sourced by bash."""
    top = packaged_parser()
    for parser in parsers(top):
        for action in parser._actions:
            if action.type is Path or action.metavar == "FILE":
                action.complete = shtab.FILE  # type: ignore[attr-defined] # shtab reads it
    return shtab.complete(top, "bash")


def manual(version: str, epoch: int) -> str:
    """Returns the page fieldgate(1) in man(7)'s macros."""
    top = packaged_parser()
    top.man_short_description = "field gateway for met masts"  # type: ignore[attr-defined] # Manpage reads it
    page = Manpage(top, format="single-commands-section")
    page.date = datetime.fromtimestamp(epoch, UTC).date().isoformat()
    page.source, page.manual = f"fieldgate {version}", "User Commands"
    return f"{page}{_MORE}"


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yields a parser and those of its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)
