"""``fieldgate provision schemas``: the schema of readings in Avro, registered where ``cloud.toml`` has it."""

from __future__ import annotations

import argparse

from cloud.command_line import OK, USAGE, fail
from cloud.config import load
from cloud.registry import NotRegistered, Registry
from cloud.wire.avro_readings import COMPATIBILITY, SUBJECT


def provision_schemas(arguments: argparse.Namespace) -> int:
    """Register what is missing; doing it again changes nothing. Raises CloudError, ConfigError."""
    access = load(arguments.cloud).schema_registry.access()
    if access is None:
        return fail(f"{arguments.cloud} has no url in [schema_registry]", USAGE)
    registry = Registry(access, arguments.timeout)
    rule, number = registry.rule(), _number(registry)
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


def _number(registry: Registry) -> int | None:
    try:
        return registry.own_id()
    except NotRegistered:
        return None
