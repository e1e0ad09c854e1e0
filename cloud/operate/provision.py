"""The operator's half of ``fieldgate provision``: Kafka's topics, schemas and users, and a gateway's access.

A gateway's config is read by the gateway's own code, which hands over what the config needs of Kafka.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cloud.command_line import OK, USAGE, add_kafka, add_list, add_timeout, count, fail, kafka_of
from cloud.values import CLOUD_CONFIG, duration_s


@dataclass(frozen=True, slots=True)
class Needs:
    """What a gateway's config needs of Kafka: its connection, and topics besides the product's own.

    ``readings`` is the template of the readings' topics, ``open_templates`` are topics that depend on what
    devices publish, ``downlinks`` are topics that the gateway reads.
    """

    servers: str = "127.0.0.1:9092"
    properties: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    readings: str = "mqtt.{quantity}"
    topics: frozenset[str] = frozenset()
    open_templates: tuple[str, ...] = ()
    downlinks: tuple[str, ...] = ()


def add_arguments(what: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """``topics``, ``schemas``, ``users`` and ``gateway``."""
    _add_topics(what.add_parser("topics", help="the topics of readings, gateways and alerts"))
    _add_schemas(what.add_parser("schemas", help="the schema of readings in Avro, in its registry"))
    _add_users(
        what.add_parser(
            "users", help="Kafka's operators, jobs and analysts, their permissions; quotas' commands"
        )
    )
    _add_gateway(
        what.add_parser("gateway", help="a gateway's user of Kafka, and the file that its mast needs")
    )


def run(arguments: argparse.Namespace, needs: Needs | None) -> int:
    """Provision one of them; ``needs`` are those of the gateway's config where one is given."""
    if arguments.what == "topics":
        return _provision_topics(arguments, needs)
    if arguments.what == "schemas":
        return _provision_schemas(arguments)
    from cloud.operate.users import provision_gateway, provision_users

    return provision_users(arguments) if arguments.what == "users" else provision_gateway(arguments, needs)


def _add_topics(topics: argparse.ArgumentParser) -> None:
    add_kafka(topics, "default: the config's")
    meaning = "a gateway's config: its forwards' topics too, and its connection to Kafka"
    topics.add_argument("-c", "--config", type=Path, metavar="FILE", help=meaning)
    add_list(topics, "--quantity", "quantities", "NAME", "the topic of a quantity of your own, mqtt.NAME")
    topics.add_argument("--partitions", type=count, metavar="N", help="of new topics (default: the broker's)")
    topics.add_argument(
        "--replication", type=count, metavar="N", help="of new topics (default: the broker's)"
    )
    topics.add_argument(
        "--retention", type=duration_s, metavar="D", help="how long readings and events stay, as 30d"
    )
    add_timeout(topics)
    mode = topics.add_mutually_exclusive_group()
    mode.add_argument("--dry-run", action="store_true", help="only show what differs")
    meaning = (
        "change what differs, too: settings and retention of topics, and more partitions of the readings'"
    )
    mode.add_argument("--apply", action="store_true", help=meaning)


def _add_cloud(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cloud", type=Path, default=CLOUD_CONFIG, metavar="FILE",
        help=f"the cloud's config: an operator's login (default: {CLOUD_CONFIG})",
    )  # fmt: skip
    add_timeout(parser)


def _add_schemas(schemas: argparse.ArgumentParser) -> None:
    schemas.add_argument(
        "--cloud", type=Path, default=CLOUD_CONFIG, metavar="FILE",
        help=f"the cloud's config, which names the registry (default: {CLOUD_CONFIG})",
    )  # fmt: skip
    add_timeout(schemas, meaning="seconds to wait for the registry")
    schemas.add_argument("--dry-run", action="store_true", help="only show what differs")


def _add_users(users: argparse.ArgumentParser) -> None:
    _add_cloud(users)
    users.add_argument("--dry-run", action="store_true", help="only show what differs")
    users.add_argument(
        "--passwords", type=Path, metavar="FILE", help="write new passwords there, mode 0600; else shown once"
    )
    users.add_argument("--certificates", action="store_true", help="they log in by certificate: no passwords")
    add_list(users, "--rotate", "rotate", "NAME", "a new password of this user")


def _add_gateway(gateway: argparse.ArgumentParser) -> None:
    gateway.add_argument("gateway", metavar="ID", help="the gateway's, such as mast-07")
    _add_cloud(gateway)
    meaning = "the gateway's config, for the topics of its forwards"
    gateway.add_argument("-c", "--config", type=Path, metavar="FILE", help=meaning)
    meaning = "as the mast reaches Kafka (default: the cloud's)"
    gateway.add_argument("--bootstrap-servers", metavar="HOST:PORT[,…]", help=meaning)
    gateway.add_argument("--user", metavar="NAME", help="its user of Kafka (default: its id)")
    for name, what in (
        ("certificate", "certificate, PEM, in place of a password"),
        ("key", "the certificate's key"),
    ):
        gateway.add_argument(f"--{name}", type=Path, metavar="FILE", help=what)
    meaning = "the file for the mast (default: ID.access.toml); must not be there yet"
    gateway.add_argument("-o", "--output", type=Path, metavar="FILE", help=meaning)
    mode = gateway.add_mutually_exclusive_group()
    mode.add_argument("--rotate", action="store_true", help="a new password, and a new key of its runs")
    mode.add_argument("--revoke", action="store_true", help="take its password, all permissions, its name")
    enforce = "from in a minute on, its new runs must prove themselves by its newest key"
    mode.add_argument("--enforce", action="store_true", help=enforce)
    mode.add_argument("--no-enforce", action="store_true", help="its runs needn't prove themselves any more")
    accept = "a run that needn't, whatever else is enforced"
    mode.add_argument("--accept-run", metavar="RUN", help=accept)
    gateway.add_argument("--dry-run", action="store_true", help="only show what would be done")


def _provision_topics(arguments: argparse.Namespace, needs: Needs | None) -> int:
    from cloud.config import load
    from cloud.kafka.provision import BROKER_DEFAULT, provision_topics
    from cloud.wire.quantities import NAME
    from cloud.wire.reading_records import reading_topic

    wrong = [name for name in arguments.quantities if NAME.fullmatch(name) is None]
    if wrong:
        return fail(f"{wrong[0]} is no quantity's name: small letters, digits, underscores", USAGE)
    servers, properties, prefix = kafka_of(arguments)
    if needs is None and servers is None:
        return fail("one of --bootstrap-servers, --cloud and -c is required", USAGE)
    of_config = needs or Needs()
    # With the cloud's config the connection is the operator's, not the gateway's.
    kafka = Needs() if arguments.cloud else of_config
    done = provision_topics(
        servers or kafka.servers,
        partitions=arguments.partitions or BROKER_DEFAULT,
        replication=arguments.replication or BROKER_DEFAULT,
        others={
            *of_config.topics,
            *of_config.downlinks,
            *(reading_topic(kafka.readings, name) for name in arguments.quantities),
            *(stream.topic for stream in (load(arguments.cloud).streams if arguments.cloud else ())),
        },
        prefix=prefix or kafka.prefix,
        retention_s=arguments.retention,
        dry_run=arguments.dry_run,
        apply=arguments.apply,
        properties={**kafka.properties, **properties},
        timeout_s=arguments.timeout,
    )
    for name in done.existing:
        print(f"exists   {name}")
    for name in done.created:
        print(f"{'missing' if arguments.dry_run else 'created'}  {name}")
    for line in done.differences:
        print(f"differs  {line}")
    for line in done.changed:
        print(f"changed  {line}")
    for template in of_config.open_templates:
        print(f"unknown  {template}: create what it becomes, messages for it wait in the outbox until then")
    return fail("\n".join(done.deviations)) if done.deviations else OK


def _provision_schemas(arguments: argparse.Namespace) -> int:
    """Register what is missing; doing it again changes nothing. Raises CloudError, ConfigError."""
    from cloud.config import load
    from cloud.registry import NotRegistered, Registry
    from cloud.wire.avro_readings import COMPATIBILITY, SUBJECT

    access = load(arguments.cloud).schema_registry.access()
    if access is None:
        return fail(f"{arguments.cloud} has no url in [schema_registry]", USAGE)
    registry = Registry(access, arguments.timeout)
    rule, number = registry.rule(), None
    with suppress(NotRegistered):
        number = registry.own_id()
    if number is None and (problem := registry.incompatibility()) is not None:
        return fail(f"{access.url}: {SUBJECT} is not compatible with what is registered: {problem}")
    if rule != COMPATIBILITY:
        print(f"{'differs' if arguments.dry_run else 'changed'}  {SUBJECT}: {COMPATIBILITY}, not {rule}")
        if not arguments.dry_run:
            registry.set_rule()
    if number is not None:
        print(f"exists   {SUBJECT}: id {number}")
    elif arguments.dry_run:
        print(f"missing  {SUBJECT}")
    else:
        print(f"created  {SUBJECT}: id {registry.register()}")
    return OK
