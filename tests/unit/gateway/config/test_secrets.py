"""Secrets: named in the file, read where the service runs, shown nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloud.toml_problems import is_secret
from cloud.toml_source import CREDENTIALS as DIRECTORY
from gateway import cli
from gateway.config import ConfigError, check, load
from gateway.daemon.reload import compare

HEAD = '[gateway]\nid = "m"\n[[forward]]\nfilter = "a"\n'
KAFKA = (
    HEAD
    + '[kafka.properties]\nsecurity.protocol = "SASL_SSL"\nsasl.mechanism = "PLAIN"\nsasl.username = "mast"\n'
)
PASSWORD = "open sesame"  # noqa: S105


@pytest.fixture(autouse=True)
def _no_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DIRECTORY, raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.toml"
    path.touch(mode=0o640)
    return path


def _reported(path: Path, *, at_work: bool = False) -> list[str]:
    _, problems = check(path, at_work=at_work)
    reported = [f"{each.line}: {each.key}: {each.message} [{each.severity}]" for each in problems]
    assert not any(PASSWORD in text for text in reported)
    return [text.replace(str(path.parent), "DIR") for text in reported]


def _file(directory: Path, name: str, content: str = PASSWORD + "\n", mode: int = 0o600) -> Path:
    directory.mkdir(exist_ok=True)
    file = directory / name
    file.touch(mode=mode)
    file.chmod(mode)
    file.write_text(content)
    return file


def test_of_a_file_beside_the_config(path: Path) -> None:
    path.write_text(KAFKA + 'sasl.password = { file = "kafka.password" }\n')
    _file(path.parent, "kafka.password")
    assert load(path).kafka.properties == {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "mast",
        "sasl.password": PASSWORD,
    }  # fmt: skip
    assert _reported(path) == []


def test_of_a_credential(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(
        KAFKA
        + '"sasl.password" = { credential = "kafka" }\n'
        + '[mqtt]\nusername = "mast"\npassword = { credential = "mqtt" }\n'
    )
    _file(tmp_path / "credentials", "kafka")
    _file(tmp_path / "credentials", "mqtt", "other\r\n")
    monkeypatch.setenv(DIRECTORY, str(tmp_path / "credentials"))
    config = load(path)
    assert config.kafka.properties["sasl.password"] == PASSWORD
    assert config.mqtt.login == ("mast", "other")
    for shown in (repr(config), str(config.kafka), repr(config.mqtt)):
        assert PASSWORD not in shown
        assert "other" not in shown


def test_without_systemd_a_credential_is_a_warning_to_check_and_an_error_to_run(path: Path) -> None:
    path.write_text(KAFKA + 'sasl.password = { credential = "kafka" }\n')
    place = '9: kafka.properties.sasl.password.credential: systemd gives "kafka" to the running service only'
    assert _reported(path) == [f"{place}; not examined here [warning]"]
    assert _reported(path, at_work=True) == [
        f"{place}: add LoadCredential=kafka:/path/of/its/file to the service [error]"
    ]
    config, _ = check(path)
    assert config is not None
    assert "sasl.password" not in config.kafka.properties
    with pytest.raises(ConfigError):
        load(path)


def test_a_file_that_is_not_there(path: Path) -> None:
    path.write_text(KAFKA + 'sasl.password = { file = "none" }\n')
    place = "9: kafka.properties.sasl.password.file: DIR/none: there is no such file"
    assert _reported(path) == [f"{place}; not examined here [warning]"]
    assert _reported(path, at_work=True) == [f"{place}: put it there, or correct this line [error]"]


def test_a_credential_that_systemd_does_not_load(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY, str(path.parent))
    path.write_text(KAFKA + 'sasl.password = { credential = "kafka" }\n')
    assert _reported(path, at_work=True) == [
        "9: kafka.properties.sasl.password.credential: DIR/kafka: there is no such file: "
        "add LoadCredential=kafka:/path/of/its/file to the service [error]"
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('{ credental = "x" }', "sasl.password.credental"),
        ('{ file = "x", credential = "y" }', "names a credential and a file: keep one of them"),
        ('{ file = "x", mode = 1 }', "is not a known key"),
        ("{ file = 3 }", 'must be a string, in "quotes", not 3'),
        ('{ credential = "../shadow" }', "must be the name given to LoadCredential="),
        ('{ credential = ".." }', "must be the name given to LoadCredential="),
    ],
)
def test_references_that_name_nothing(path: Path, value: str, message: str) -> None:
    path.write_text(KAFKA + f"sasl.password = {value}\n")
    (reported,) = _reported(path)
    assert message in reported
    assert reported.endswith("[error]")


@pytest.mark.parametrize("content", ["", "\n", "a\0b", "x" * 70_000])
def test_files_that_hold_no_secret(path: Path, content: str) -> None:
    path.write_text(KAFKA + 'sasl.password = { file = "kafka.password" }\n')
    _file(path.parent, "kafka.password", content)
    (reported,) = _reported(path)
    assert "must hold one secret as text" in reported


def test_everybody_may_read_it(path: Path) -> None:
    path.write_text(KAFKA + 'sasl.password = { file = "kafka.password" }\n')
    _file(path.parent, "kafka.password", mode=0o644)
    warning = "a secret stands in a file that everybody here may read: chmod 640 DIR"
    assert _reported(path) == [f"9: kafka.properties.sasl.password.file: {warning}/kafka.password [warning]"]
    path.write_text(KAFKA + f'sasl.password = "{PASSWORD}"\n')
    assert _reported(path) == []
    path.chmod(0o644)
    assert _reported(path) == [f"9: kafka.properties.sasl.password: {warning}/gateway.toml [warning]"]


@pytest.mark.parametrize(
    "line",
    [
        f'ssl.key.pem = "{PASSWORD}"',
        f'sasl.passwort = "{PASSWORD}"',
        f'sasl.password = ["{PASSWORD}"]',
        f"sasl.password = {PASSWORD}",
        f"sasl.password: {PASSWORD}",
        f'sasl.password = "{PASSWORD}',
        f'enable.sasl.oauthbearer.unsecure.jwt = {{ file = "kafka.password" }}',  # noqa: F541
    ],
)
def test_a_wrong_one_is_not_shown(path: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    _file(path.parent, "kafka.password")
    path.write_text(KAFKA + line + "\n")
    _reported(path)
    cli.main(["check", "-c", str(path), "--json"])
    assert PASSWORD not in capsys.readouterr().out


def test_mqtt(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text(HEAD + f'[mqtt]\npassword = "{PASSWORD}"\n')
    assert _reported(path) == ["6: mqtt.password: needs username too [error]"]
    path.write_text(HEAD + '[mqtt]\nusername = "mast"\npassword = 3\n')
    assert _reported(path) == [
        '7: mqtt.password: must be a string, in "quotes", or { credential = "name" } [error]'
    ]
    path.write_text(HEAD + f'[mqtt]\nusername = "mast"\npassword = "{PASSWORD}"\n')
    assert load(path).mqtt.login == ("mast", PASSWORD)
    assert cli.main(["check", "-c", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


def test_a_secret_among_the_sections_own_keys_is_not_shown(path: Path) -> None:
    path.write_text(HEAD + '[kafka]\nsasl.password = { file = "kafka.password" }\n')
    (reported,) = _reported(path)
    assert reported.startswith("6: kafka.sasl: is not a known key; there are bootstrap_servers, ")


def test_a_new_secret_is_a_change_and_only_its_key_is_reported(path: Path) -> None:
    path.write_text(KAFKA + 'sasl.password = { file = "kafka.password" }\n')
    file = _file(path.parent, "kafka.password")
    before = load(path)
    file.write_text("another")
    changes = compare(before, load(path))
    assert changes.summary()["settings"] == ["kafka.properties"]
    assert "another" not in repr(changes)


def test_names_of_secrets() -> None:
    for name in ("sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"):
        assert is_secret(name)
    for name in ("sasl.username", "ssl.key.location", "security.protocol"):
        assert not is_secret(name)
