"""``fieldgate outbox``: what waits for the cloud: counted, carried home in a file, or sent to Kafka."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from buffer.reader import OutboxReader
from cloud.command_line import OK, CommandError, add_config, add_json, add_properties, add_timeout, os_problem
from cloud.terminal import progress_bar
from gateway.config import Config, load
from gateway.system.atomic_file import replacing


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
            return export(load(arguments.config), arguments.file)
        case "import":
            from gateway.commands.outbox.import_file import send_file

            config = None if arguments.config is None else load(arguments.config)
            kafka = arguments.bootstrap_servers, dict(arguments.properties), arguments.timeout
            return send_file(arguments.file, *kafka, config, arguments.prefix)
        case _:
            from gateway.commands.outbox import drain

            return drain.run(load(arguments.config), arguments.timeout)


def export(config: Config, target: Path) -> int:
    """Copy it to a file, which has its name only when all of it is on the disk.

    Raises CommandError, OutboxError.
    """
    if target == Path("-"):
        raise CommandError("an outbox can't be written to standard output: name a file")
    if target.exists():
        raise CommandError(f"{target} is there already; choose another name")
    try:
        with (
            progress_bar("pages copied") as progress,
            OutboxReader(config.outbox.path) as reader,
            replacing(target) as file,
        ):
            reader.copy_to(Path(file.name), progress)
    except OSError as error:
        raise CommandError(os_problem(error, target)) from error
    sys.stderr.write(f"{config.outbox.path} copied to {target}: {target.stat().st_size:,} bytes\n")
    return OK
