"""What doctor reports of the schema registry, from what one answers over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloud.wire.avro_readings import SCHEMA, SUBJECT
from gateway.commands.doctor import registry
from gateway.config import load
from tests.support.config import baro, config_text, write_config
from tests.support.schema_registry import small_registry

PASSWORD = "".join(("of", "-the-registry"))


def found(tmp_path: Path, url: str, **more: Any) -> list[tuple[str, str, str]]:
    kafka = {"format": "avro", "schema_registry_url": url, **more}
    config = load(write_config(tmp_path, config_text(baro(), gateway={"id": "mast"}, kafka=kafka)))
    return [(each.subject, each.state, each.found) for each in registry.findings(config, 2.0)]


def test_each_thing_that_may_be_wrong_has_one_line(tmp_path: Path, nowhere: str) -> None:
    login = {"schema_registry_username": "mast", "schema_registry_password": PASSWORD}
    with small_registry() as small:
        small.login = f"mast:{PASSWORD}"
        # Without a login, with a wrong one, with the right one.
        for given in ({}, {**login, "schema_registry_password": "another"}):
            ((subject, state, text),) = found(tmp_path, small.url, **given)
            assert (subject, state) == ("registry", "error")
            assert text == f"{small.url} refuses this login (401): look at username and password"
        answered, schema = found(tmp_path, small.url, **login)
        assert answered[:2] == ("registry", "ok")
        assert answered[2].startswith(f"{small.url} answers in ")
        assert answered[2].endswith(" ms, and takes the login of mast")
        assert schema == (
            "schema",
            "error",
            f"{SUBJECT} hasn't this version's, so readings leave as JSON; it can be registered",
        )
        small.register(SUBJECT, '"string"')
        small.refuses = "reader field v is missing"
        _, schema = found(tmp_path, small.url, **login)
        assert schema[1] == "error"
        assert schema[2].endswith("compatible with this version's: reader field v is missing")
        number = small.register(SUBJECT, SCHEMA)
        _, schema = found(tmp_path, small.url, **login)
        assert schema == ("schema", "ok", f"{SUBJECT} has this version's: id {number}")
        assert not [each for each in small.requests if each.endswith("/versions")]
    ((_, state, text),) = found(tmp_path, f"http://{nowhere}")
    assert (state, "refused" in text) == ("error", True)


@pytest.mark.parametrize("kafka", [{}, {"format": "json"}])
def test_json_needs_no_registry(tmp_path: Path, kafka: dict[str, str]) -> None:
    config = load(write_config(tmp_path, config_text(baro(), gateway={"id": "mast"}, kafka=kafka)))
    assert not list(registry.findings(config, 2.0))
