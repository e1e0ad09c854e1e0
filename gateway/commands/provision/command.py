"""``fieldgate provision``: what Kafka and Mosquitto need before a gateway uses them."""

from __future__ import annotations

import argparse
from pathlib import Path

from gateway.commands.arguments import (
    OK,
    USAGE,
    add_kafka,
    add_list,
    add_timeout,
    count,
    fail,
    kafka_of,
    port,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``topics`` and ``mosquitto``."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    _add_topics(what.add_parser("topics", help="the topics of readings, gateways and alerts"))
    _add_mosquitto(
        what.add_parser(
            "mosquitto", help="this machine's broker: listeners, limits, users; starts without a network"
        )
    )


def run(arguments: argparse.Namespace) -> int:
    """Provision one of them."""
    if arguments.what == "topics":
        return _provision_topics(arguments)
    from gateway.commands.provision.mosquitto import run

    return run(arguments)


def _add_topics(topics: argparse.ArgumentParser) -> None:
    add_kafka(topics, "default: the config's")
    meaning = "a gateway's config: its forwards' topics too, and its connection to Kafka"
    topics.add_argument("-c", "--config", type=Path, metavar="FILE", help=meaning)
    add_list(topics, "--quantity", "quantities", "NAME", "the topic of a quantity of your own, mqtt.NAME")
    topics.add_argument("--partitions", type=count, metavar="N", help="of new topics (default: the broker's)")
    topics.add_argument(
        "--replication", type=count, metavar="N", help="of new topics (default: the broker's)"
    )
    add_timeout(topics)
    topics.add_argument("--dry-run", action="store_true", help="only list what is missing")


def _provision_topics(arguments: argparse.Namespace) -> int:
    from cloud.kafka.provision import BROKER_DEFAULT, provision_topics
    from cloud.wire.quantities import NAME
    from cloud.wire.reading_records import reading_topic
    from gateway.config import load
    from gateway.config.kafka import open_templates, wanted_topics
    from gateway.config.model import KafkaConfig

    wrong = [name for name in arguments.quantities if NAME.fullmatch(name) is None]
    if wrong:
        return fail(f"{wrong[0]} is no quantity's name: small letters, digits, underscores", USAGE)
    config = None if arguments.config is None else load(arguments.config)
    servers, properties = kafka_of(arguments)
    if config is None and servers is None:
        return fail("one of --bootstrap-servers, --cloud and -c is required", USAGE)
    kafka = KafkaConfig() if config is None or arguments.cloud else config.kafka
    done = provision_topics(
        servers or kafka.bootstrap_servers,
        partitions=arguments.partitions or BROKER_DEFAULT,
        replication=arguments.replication or BROKER_DEFAULT,
        others={
            *(wanted_topics(config) if config else ()),
            *(reading_topic(kafka.topic, name) for name in arguments.quantities),
        },
        dry_run=arguments.dry_run,
        properties={**kafka.properties, **properties},
        timeout_s=arguments.timeout,
    )
    for name in done.existing:
        print(f"exists   {name}")
    for name in done.created:
        print(f"{'missing' if arguments.dry_run else 'created'}  {name}")
    for template in open_templates(config) if config else ():
        print(f"unknown  {template}: create what it becomes, messages for it wait in the outbox until then")
    return fail("\n".join(done.deviations)) if done.deviations else OK


def _add_mosquitto(mosquitto: argparse.ArgumentParser) -> None:
    mosquitto.add_argument(
        "--port", type=port, default=1883, metavar="PORT", help="of this machine's programs (default: 1883)"
    )
    mosquitto.add_argument(
        "--lan", metavar="[ADDRESS:]PORT", help="let devices of the network in, with passwords, e.g. 1884"
    )
    meaning = "a device's user and its topics (default: devices/NAME/#)"
    add_list(mosquitto, "--device", "devices", "NAME[=FILTER,…]", meaning)
    mosquitto.add_argument(
        "--passwords", type=Path, metavar="FILE", help="write new passwords there, mode 0600; else shown once"
    )
    mosquitto.add_argument(
        "--root", type=Path, default=Path("/"), metavar="DIR", help="of an image being made (default: /)"
    )
    mosquitto.add_argument("--dry-run", action="store_true", help="only show what would change")
