"""``fieldgate provision``: what Kafka and Mosquitto need before a gateway uses them."""

from __future__ import annotations

import argparse
from pathlib import Path

from gateway.commands.arguments import OK, Subcommands, add_properties, add_timeout, count, fail, port


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``topics`` and ``mosquitto``."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    _add_topics(what)
    _add_mosquitto(what)


def run(arguments: argparse.Namespace) -> int:
    """Provision one of them."""
    code: int = arguments.action(arguments)
    return code


def _add_topics(what: Subcommands) -> None:
    topics = what.add_parser("topics", help="the topics of readings, gateways and alerts")
    topics.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT[,…]")
    topics.add_argument("--partitions", type=count, metavar="N", help="of new topics (default: the broker's)")
    topics.add_argument(
        "--replication", type=count, metavar="N", help="of new topics (default: the broker's)"
    )
    add_timeout(topics)
    topics.add_argument("--dry-run", action="store_true", help="only list what is missing")
    add_properties(topics)
    topics.set_defaults(action=_provision_topics)


def _provision_topics(arguments: argparse.Namespace) -> int:
    from cloud.kafka.provision import BROKER_DEFAULT, provision_topics

    done = provision_topics(
        arguments.bootstrap_servers,
        partitions=arguments.partitions or BROKER_DEFAULT,
        replication=arguments.replication or BROKER_DEFAULT,
        dry_run=arguments.dry_run,
        properties=dict(arguments.properties),
        timeout_s=arguments.timeout,
    )
    for name in done.existing:
        print(f"exists   {name}")
    for name in done.created:
        print(f"{'missing' if arguments.dry_run else 'created'}  {name}")
    return fail("\n".join(done.deviations)) if done.deviations else OK


def _add_mosquitto(what: Subcommands) -> None:
    mosquitto = what.add_parser(
        "mosquitto", help="this machine's broker: listeners, limits, users; starts without a network"
    )
    mosquitto.add_argument(
        "--port", type=port, default=1883, metavar="PORT", help="of this machine's programs (default: 1883)"
    )
    mosquitto.add_argument(
        "--lan", metavar="[ADDRESS:]PORT", help="let devices of the network in, with passwords, e.g. 1884"
    )
    mosquitto.add_argument(
        "--device",
        dest="devices",
        metavar="NAME[=FILTER,…]",
        action="append",
        default=[],
        help="a device's user and its topics (default: devices/NAME/#) (repeatable)",
    )
    mosquitto.add_argument(
        "--passwords", type=Path, metavar="FILE", help="write new passwords there, mode 0600; else shown once"
    )
    mosquitto.add_argument(
        "--root", type=Path, default=Path("/"), metavar="DIR", help="of an image being made (default: /)"
    )
    mosquitto.add_argument("--dry-run", action="store_true", help="only show what would change")
    mosquitto.set_defaults(action=_provision_mosquitto)


def _provision_mosquitto(arguments: argparse.Namespace) -> int:
    from gateway.commands.provision.mosquitto import run

    return run(arguments)
