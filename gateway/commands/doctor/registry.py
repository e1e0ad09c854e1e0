"""The schema registry, where readings leave as Avro: reachable, the login, and this version's schema."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

from cloud.registry import PROVISION, NotRegistered, Registry, RegistryError
from cloud.wire.avro_readings import SUBJECT
from gateway.commands.doctor.findings import Finding
from gateway.config import Config
from gateway.forwarding.reading_format import access_of


def findings(config: Config, timeout_s: float) -> Iterator[Finding]:
    """What the registry answers; it is asked, and nothing is registered."""
    access = access_of(config.kafka)
    if access is None:
        return
    registry, number = Registry(access, timeout_s), None
    begin_s = time.monotonic()
    try:
        with suppress(NotRegistered):
            number = registry.own_id()
        took_ms = 1000 * (time.monotonic() - begin_s)
        refused = registry.incompatibility() if number is None else None
    except RegistryError as error:
        yield Finding(
            "registry", "error", str(error),
            "see kafka.schema_registry_url and its _ca, _username, _password; without the schema's id "
            "readings leave as JSON meanwhile",
        )  # fmt: skip
        return
    login = "" if access.username is None else f", and takes the login of {access.username}"
    yield Finding("registry", "ok", f"{access.url} answers in {took_ms:.0f} ms{login}")
    if number is not None:
        yield Finding("schema", "ok", f"{SUBJECT} has this version's: id {number}")
    elif refused is None:
        found = f"{SUBJECT} hasn't this version's, so readings leave as JSON; it can be registered"
        yield Finding("schema", "error", found, PROVISION)
    else:
        yield Finding(
            "schema", "error", f"{SUBJECT} takes none that is compatible with this version's: {refused}",
            "another registry or subject rule on the cloud side, or kafka.format = \"json\"",
        )  # fmt: skip
