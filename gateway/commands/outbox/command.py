"""``fieldgate outbox``: what waits for the cloud: counted, carried home in a file, or sent to Kafka."""

from __future__ import annotations

import argparse
from pathlib import Path

from cloud.command_line import add_config, add_json, add_properties, add_timeout
from gateway.config import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``stats``, ``export``, ``import`` and ``drain``."""
    parser.description = "What waits on this machine for the cloud."
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    stats = commands.add_parser("stats", help="what is in it, while a daemon runs too")
    add_config(stats)
    add_json(stats)

    export = commands.add_parser("export", help="copy it to a file; nothing is removed")
    export.add_argument("file", type=Path, metavar="FILE")
    add_config(export)

    bring = commands.add_parser("import", help="send an exported file to Kafka; doing it again is safe")
    bring.add_argument("file", type=Path, metavar="FILE")
    bring.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT[,…]")
    meaning = "its gateway's config: its name, its topics, the key it signs by"
    bring.add_argument("-c", "--config", type=Path, metavar="FILE", help=meaning)
    add_properties(bring)
    add_timeout(bring, 60.0, "seconds Kafka may take for a record")

    drain = commands.add_parser(
        "drain", help="send it to Kafka without a daemon; what has arrived is removed"
    )
    add_config(drain)
    add_timeout(drain, 30.0, "give up when Kafka has confirmed nothing for so many seconds")


def run(arguments: argparse.Namespace) -> int:
    """Run one of them; its exit code. Raises ConfigError, CommandError, OutboxError, CloudError."""
    # Each imports what it needs alone: stats does without Kafka's library.
    match arguments.command:
        case "stats":
            from gateway.commands.outbox import stats

            return stats.run(load(arguments.config), json_output=arguments.json)
        case "export":
            from gateway.commands.outbox.export import export

            return export(load(arguments.config), arguments.file)
        case "import":
            from gateway.commands.outbox.import_file import send_file

            config = None if arguments.config is None else load(arguments.config)
            kafka = arguments.bootstrap_servers, dict(arguments.properties), arguments.timeout
            return send_file(arguments.file, *kafka, config, arguments.prefix)
        case _:
            from gateway.commands.outbox import drain

            return drain.run(load(arguments.config), arguments.timeout)
