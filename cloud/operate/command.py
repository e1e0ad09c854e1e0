"""``fieldgate command``: have a gateway do something, and see what became of it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from cloud.command_line import (
    FAILED,
    OK,
    USAGE,
    add_json,
    add_kafka,
    add_timeout,
    fail,
    kafka_of,
    override,
    pair,
    positive,
)
from cloud.wire.command_records import ACTIONS, LONGEST_US

if TYPE_CHECKING:
    from cloud.kafka.command_client import CommandClient
    from cloud.wire.command_records import Command, CommandResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``send`` and ``list``."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    send = what.add_parser("send", help="send a command and wait for its result")
    listed = what.add_parser("list", help="a gateway's commands and their results")
    for each in (send, listed):
        add_kafka(each, "the cluster")
        add_timeout(each)
        add_json(each)
        each.add_argument("gateway", metavar="GATEWAY")
    send.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    send.add_argument("target", nargs="?", default="", metavar="TARGET", help="a relay, a sensor, a topic")
    send.add_argument(
        "--arg", dest="args", metavar="KEY=VALUE", type=pair, action="append", default=[],
        help="switch: state=on, off or normal, for_s=600; read: fresh=true; interval: interval_s=10; "
        "publish: payload=TEXT",
    )  # fmt: skip
    send.add_argument(
        "--expires", type=positive, default=600.0, metavar="S",
        help="seconds after which it is not carried out any more, at most a day (default: 600)",
    )  # fmt: skip
    send.add_argument("--wait", type=positive, metavar="S", help="for the result (default: as --expires)")
    listed.add_argument(
        "--hours", type=positive, default=24.0, metavar="H", help="how far back (default: 24)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Exit code 0 only where a command was done. Raises CloudError, ConfigError."""
    from cloud.kafka.command_client import CommandClient

    servers, properties, prefix = kafka_of(arguments)
    if servers is None:
        return fail("one of --bootstrap-servers and --cloud is required", USAGE)
    client = CommandClient(servers, properties, arguments.gateway, arguments.timeout, prefix)
    return _send(arguments, client) if arguments.what == "send" else _list(arguments, client)


def _send(arguments: argparse.Namespace, client: CommandClient) -> int:
    from cloud.errors import CloudError
    from cloud.kafka.command_client import in_words, new_command
    from cloud.wire.fields import InvalidFields

    if arguments.expires * 1e6 > LONGEST_US:
        return fail(f"--expires is at most {LONGEST_US // 1_000_000}", USAGE)
    args = {
        # A payload is text, also where it looks like a number.
        key: value if arguments.action == "publish" else override(f"{key}={value}")[1]
        for key, value in arguments.args
    }
    try:
        command = new_command(arguments.gateway, arguments.action, arguments.target, args, arguments.expires)
    except (CloudError, InvalidFields) as error:
        return fail(error, USAGE)
    progress = sys.stderr.isatty()

    def waiting(so_far_s: float) -> None:
        if progress:
            print(f"\r{command.id}: waiting for {command.gateway}, {so_far_s:.0f} s", end="", file=sys.stderr)

    result = client.send(command, arguments.wait or arguments.expires, waiting)
    if progress:
        print("\r\033[K", end="", file=sys.stderr)
    if arguments.json:
        print(json.dumps(_fields(command, result)))
    else:
        print(in_words(command, result))
    return OK if result is not None and result.outcome == "done" else FAILED


def _list(arguments: argparse.Namespace, client: CommandClient) -> int:
    from cloud.kafka.command_client import in_words

    found = client.since(round((time.time() - arguments.hours * 3600) * 1000))
    for command, result in found:
        print(json.dumps(_fields(command, result)) if arguments.json else in_words(command, result))
    return OK


def _fields(command: Command, result: CommandResult | None) -> dict[str, Any]:
    import msgspec

    return {
        "command": msgspec.structs.asdict(command),
        "result": None if result is None else msgspec.structs.asdict(result),
    }
