"""``fieldgate provision schemas``: registered once, by its rule, and refused with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud.wire.avro_readings import SCHEMA, SUBJECT
from gateway.cli import main
from tests.support.schema_registry import SmallRegistry, small_registry


@pytest.fixture
def small() -> Iterator[SmallRegistry]:
    with small_registry(SmallRegistry(login="jobs:sesame")) as registry:
        yield registry


def provision(directory: Path, url: str, *more: str, password: str = "sesame") -> int:  # noqa: S107 - the test's
    (directory / "registry.password").write_text(password)
    file = directory / "cloud.toml"
    login = 'username = "jobs"\npassword = { file = "registry.password" }\n'
    file.write_text(f'[schema_registry]\nurl = "{url}"\n{login}' if url else "# nothing\n")
    return main(["provision", "schemas", "--cloud", str(file), *more])


def test_it_is_registered_once(
    small: SmallRegistry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert provision(tmp_path, small.url, "--dry-run") == 0
    rule = "fieldgate.Reading: FULL_TRANSITIVE, not None\n"
    assert capsys.readouterr().out == f"differs  {rule}missing  fieldgate.Reading\n"
    assert (small.subjects, small.rules) == ({}, {})
    assert provision(tmp_path, small.url) == 0
    assert capsys.readouterr().out == f"changed  {rule}created  fieldgate.Reading: id 1\n"
    assert (small.schemas, small.rules) == ({1: SCHEMA}, {SUBJECT: "FULL_TRANSITIVE"})
    assert provision(tmp_path, small.url) == 0
    assert capsys.readouterr().out == "exists   fieldgate.Reading: id 1\n"
    assert list(small.schemas) == [1]


def test_what_the_rule_forbids_is_refused_and_nothing_changes(
    small: SmallRegistry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small.register(SUBJECT, '"another"')
    small.refuses = "site at /fields/20"
    assert provision(tmp_path, small.url) == 1
    error = capsys.readouterr().err
    assert f"{SUBJECT} is not compatible with what is registered: site at /fields/20" in error
    assert (list(small.schemas), small.rules) == ([1], {})


def test_faults_are_one_line(
    small: SmallRegistry, tmp_path: Path, capsys: pytest.CaptureFixture[str], nowhere: str
) -> None:
    assert provision(tmp_path, "") == 2
    assert "cloud.toml has no url in [schema_registry]" in capsys.readouterr().err
    assert provision(tmp_path, f"http://{nowhere}") == 1
    assert "refused" in capsys.readouterr().err
    assert provision(tmp_path, small.url, password="sesamo") == 1  # noqa: S106 - the test's
    error = capsys.readouterr().err
    assert "refuses this login (401)" in error
    assert "sesam" not in error
