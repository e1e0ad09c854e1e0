"""``fieldgate provision``: what Kafka and Mosquitto need before a gateway uses them."""

from __future__ import annotations

import argparse
from pathlib import Path

from gateway.commands.arguments import Commands, add_properties, add_timeout
from gateway.commands.cli_types import count, port
from gateway.commands.outcome import OK, fail, say


def add_provision(commands: Commands) -> None:
    """``fieldgate provision``, with ``topics`` and ``mosquitto``."""
    provision = commands.add_parser(
        "provision", help="create what Kafka and Mosquitto need; doing it again changes nothing"
    )
    what = provision.add_subparsers(dest="what", metavar="WHAT", required=True)
    _add_topics(what)
    _add_mosquitto(what)


def _add_topics(what: Commands) -> None:
    topics = what.add_parser("topics", help="the topics of readings, gateways and alerts")
    topics.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT[,…]")
    topics.add_argument("--partitions", type=count, metavar="N", help="of new topics (default: the broker's)")
    topics.add_argument(
        "--replication", type=count, metavar="N", help="of new topics (default: the broker's)"
    )
    add_timeout(topics)
    topics.add_argument("--dry-run", action="store_true", help="only say what is missing")
    add_properties(topics)
    topics.set_defaults(action=_provision_topics)


def _provision_topics(arguments: argparse.Namespace) -> int:
    from cloud.kafka.provision import BROKER_DEFAULT, ProvisionError, provision_topics

    try:
        done = provision_topics(
            arguments.bootstrap_servers,
            partitions=arguments.partitions or BROKER_DEFAULT,
            replication=arguments.replication or BROKER_DEFAULT,
            dry_run=arguments.dry_run,
            properties=dict(arguments.properties),
            timeout_s=arguments.timeout,
        )
    except ProvisionError as error:
        return fail(str(error))
    for name in done.existing:
        say(f"exists   {name}")
    for name in done.created:
        say(f"{'missing' if arguments.dry_run else 'created'}  {name}")
    return fail("\n".join(done.deviations)) if done.deviations else OK


def _add_mosquitto(what: Commands) -> None:
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
        "--root",
        type=Path,
        default=Path("/"),
        metavar="DIR",
        help="of an image being made (default: /)",
    )
    mosquitto.add_argument("--dry-run", action="store_true", help="only show what would change")
    mosquitto.set_defaults(action=_provision_mosquitto)


def _provision_mosquitto(arguments: argparse.Namespace) -> int:
    from gateway.commands.provision.mosquitto import run

    return run(arguments)
