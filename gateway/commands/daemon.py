"""The daemon, and the commands that ask it."""

from __future__ import annotations

import argparse
from pathlib import Path

from gateway.commands.arguments import CONFIG_PATH, Commands, add_config, add_properties, add_timeout
from gateway.commands.cli_types import override, positive
from gateway.commands.outcome import fail


def add_run(commands: Commands) -> None:
    """``fieldgate run``: the daemon itself."""
    run = commands.add_parser("run", help="the daemon on the mast")
    add_config(run)
    run.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        type=override,
        action="append",
        default=[],
        help="override a key of the file, e.g. mqtt.port=1884 (repeatable)",
    )
    run.add_argument(
        "--seconds", type=positive, metavar="N", help="stop sampling after N seconds; go on forwarding"
    )
    run.set_defaults(action=_run)


def _run(arguments: argparse.Namespace) -> int:
    from gateway.daemon.daemon import run

    return run(arguments.config, dict(arguments.overrides), arguments.seconds)


def add_read(commands: Commands) -> None:
    """``fieldgate read``: one reading of each sensor."""
    read = commands.add_parser(
        "read", help="one reading of each sensor: raw, value, quality and why; asks the daemon where one runs"
    )
    read.add_argument("sensors", nargs="*", metavar="SENSOR", help="these only")
    add_config(read)
    read.add_argument("--json", action="store_true", help="for programs")
    read.add_argument(
        "--follow", action="store_true", help="each second, until Ctrl-C: spin a cup and see it"
    )
    read.add_argument("--seconds", type=positive, metavar="N", help="follow for N seconds")
    read.add_argument(
        "--timeout", type=positive, default=20.0, metavar="S", help="wait so long for a sensor (default: 20)"
    )
    read.set_defaults(action=_read)


def _read(arguments: argparse.Namespace) -> int:
    from gateway.commands.read import run

    return run(
        arguments.config,
        arguments.sensors,
        json_output=arguments.json,
        follow=arguments.follow or arguments.seconds is not None,
        timeout_s=arguments.timeout,
        seconds=arguments.seconds,
    )


def add_status(commands: Commands) -> None:
    """``fieldgate status``: the daemon's own, or by the run ledger what became of all readings."""
    status = commands.add_parser(
        "status", help="what the running daemon does; with --bootstrap-servers what became of all readings"
    )
    status.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        help=f"where [status] listen stands (default: {CONFIG_PATH})",
    )
    status.add_argument("--json", action="store_true", help="for programs")
    accounts = status.add_argument_group("what became of everything sampled, by the run ledger in Kafka")
    accounts.add_argument("--bootstrap-servers", metavar="HOST:PORT[,…]", help="count here")
    accounts.add_argument("--gateway", metavar="ID", help="this one only")
    accounts.add_argument(
        "--topic",
        dest="topics",
        metavar="NAME",
        action="append",
        default=[],
        help="a topic of readings (repeatable; default: all mqtt.… but mqtt.raw)",
    )
    add_properties(accounts)
    add_timeout(accounts)
    status.set_defaults(action=_status)


def _status(arguments: argparse.Namespace) -> int:
    if arguments.bootstrap_servers is not None:
        from gateway.commands import accounts

        return accounts.run(
            arguments.bootstrap_servers,
            gateway=arguments.gateway,
            topics=arguments.topics,
            properties=dict(arguments.properties),
            timeout_s=arguments.timeout,
            json_output=arguments.json,
        )
    if arguments.gateway or arguments.topics or arguments.properties:
        return fail("--gateway, --topic and --property need --bootstrap-servers")
    from gateway.commands.status import run

    return run(
        arguments.config or CONFIG_PATH, json_output=arguments.json, chosen=arguments.config is not None
    )


def add_phone(commands: Commands) -> None:
    """``fieldgate phone``: the status page, opened to a phone."""
    phone = commands.add_parser(
        "phone",
        help="open the status page to a phone for an hour: a QR code with its address",
    )
    add_config(phone)
    phone.add_argument(
        "--minutes",
        type=positive,
        default=60.0,
        metavar="N",
        help="close it after N (default: 60)",
    )
    phone.add_argument("--address", metavar="ADDRESS", help="of this machine, where it has several")
    phone.add_argument("--close", action="store_true", help="close it now")
    phone.add_argument("--json", action="store_true", help="for programs; no code")
    phone.set_defaults(action=_phone)


def _phone(arguments: argparse.Namespace) -> int:
    from gateway.commands.phone import run

    return run(
        arguments.config,
        minutes=arguments.minutes,
        address=arguments.address,
        close=arguments.close,
        json_output=arguments.json,
    )
