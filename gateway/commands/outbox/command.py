"""``fieldgate outbox``: what waits for the cloud: counted, carried home in a file, or sent to Kafka."""

from __future__ import annotations

import argparse

from gateway.commands.arguments import add_config, add_json, add_properties, positive
from gateway.config import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``stats``, ``export``, ``import`` and ``drain``."""
    parser.description = "What waits on this machine for the cloud."
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    stats = commands.add_parser("stats", help="what is in it, while a daemon runs too")
    add_config(stats)
    add_json(stats)
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
    bring.set_defaults(action=_import)

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


def run(arguments: argparse.Namespace) -> int:
    """Run one of them; its exit code. Raises ConfigError, CommandError, OutboxError, CloudError."""
    code: int = arguments.action(arguments)
    return code


def _stats(arguments: argparse.Namespace) -> int:
    from gateway.commands.outbox import stats

    return stats.run(load(arguments.config), json_output=arguments.json)


def _export(arguments: argparse.Namespace) -> int:
    from gateway.commands.outbox import export

    return export.export(load(arguments.config), arguments.file)


def _import(arguments: argparse.Namespace) -> int:
    from gateway.commands.outbox import export

    return export.send_file(
        arguments.file, arguments.bootstrap_servers, dict(arguments.properties), arguments.timeout
    )


def _drain(arguments: argparse.Namespace) -> int:
    from gateway.commands.outbox import drain

    return drain.run(load(arguments.config), arguments.timeout)
