"""``fieldgate outbox``: looks into the outbox, carries it home in a file, or empties it into Kafka."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from gateway.commands.arguments import add_config, add_properties
from gateway.commands.cli_types import positive
from gateway.config import Config, ConfigError, load


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fieldgate outbox", description="What waits on this machine for the cloud."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    stats = commands.add_parser("stats", help="what is in it, beside a running daemon too")
    add_config(stats)
    stats.add_argument("--json", action="store_true", help="for programs")
    stats.set_defaults(action=_stats)

    export = commands.add_parser("export", help="write it to a file; nothing is removed")
    export.add_argument("file", metavar="FILE", help="JSON Lines; - for standard output")
    add_config(export)
    export.set_defaults(action=_export)

    bring = commands.add_parser("import", help="send an exported file to Kafka; doing it again is safe")
    bring.add_argument("file", metavar="FILE", help="- for standard input")
    bring.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT[,…]")
    add_properties(bring)
    bring.add_argument(
        "--timeout",
        type=positive,
        default=60.0,
        metavar="S",
        help="seconds Kafka may take for a record (default: 60)",
    )

    drain = commands.add_parser(
        "drain", help="send it to Kafka without a daemon; what has arrived is removed"
    )
    add_config(drain)
    drain.add_argument(
        "--timeout",
        type=positive,
        default=30.0,
        metavar="S",
        help="give up when Kafka has confirmed nothing for so many seconds (default: 30)",
    )
    drain.set_defaults(action=_drain)
    return parser


def _stats(arguments: argparse.Namespace, config: Config) -> int:
    from gateway.commands.outbox import stats

    return stats.run(config, json_output=arguments.json)


def _export(arguments: argparse.Namespace, config: Config) -> int:
    from gateway.commands.outbox import export

    return export.export(config, arguments.file)


def _drain(arguments: argparse.Namespace, config: Config) -> int:
    from gateway.commands.outbox import drain

    return drain.run(config, arguments.timeout)


def _import(arguments: argparse.Namespace) -> int:
    from gateway.commands.outbox import export

    return export.send_file(
        arguments.file, arguments.bootstrap_servers, dict(arguments.properties), arguments.timeout
    )


def run(arguments: Sequence[str]) -> int:
    """Run one of the commands; its exit code."""
    parsed = _parser().parse_args(arguments)
    if parsed.command == "import":
        return _import(parsed)
    try:
        config = load(parsed.config)
    except ConfigError as error:
        for problem in error.problems:
            sys.stderr.write(f"{problem}\n")
        return 1
    command: Callable[[argparse.Namespace, Config], int] = parsed.action
    return command(parsed, config)
