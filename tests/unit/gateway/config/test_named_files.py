"""Passwords and certificates that a config names: whether the service can read them; it starts without."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import cli
from gateway.config import ConfigError, check, load, named_files
from tests.support.config import baro, config_text, write_config

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="tries for another user, which root alone may")
SECURED = {"security.protocol": "SSL"}


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that everybody may enter, on a mast whose service is ``nobody``."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    monkeypatch.setattr(named_files, "service_user", lambda: pwd.getpwnam("nobody"))
    monkeypatch.setattr(named_files, "_HIDDEN", ())
    yield directory
    shutil.rmtree(directory)


def config_with(directory: Path, **properties: object) -> Path:
    path = write_config(directory, config_text(baro(), kafka={"properties": {**SECURED, **properties}}))
    path.chmod(0o640)
    return path


def certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate and its key."""
    made, key = directory / f"{name}.pem", directory / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
         f"/CN={name}", "-keyout", str(key), "-out", str(made), "-days", "2"],
        check=True, capture_output=True,
    )  # fmt: skip
    return made, key


@ROOT_ONLY
def test_what_only_root_can_read_is_an_error_that_names_key_file_and_remedy(place: Path) -> None:
    authority, _ = certificate(place, "ca")
    path = config_with(place, **{"ssl.ca.location": str(authority)})
    assert check(path)[1] == ()
    authority.chmod(0o600)
    config, (problem,) = check(path)
    assert problem.severity == "error"
    assert str(problem).startswith(
        f'{path}:12: kafka.properties."ssl.ca.location": {authority}: can\'t be read by user nobody, '
        f"which the service runs as: sudo chgrp nobody {authority} && sudo chmod 640 {authority} (namei"
    ), problem
    assert config is not None
    assert config.problems == (problem,)
    authority.chmod(0o644)
    place.chmod(0o700)
    assert "can't be read by user nobody" in check(path)[1][0].message


def test_what_the_service_cannot_see_is_an_error(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, _ = certificate(place, "ca")
    monkeypatch.setattr(named_files, "_HIDDEN", (str(place),))
    (problem,) = check(config_with(place, **{"ssl.ca.location": str(authority)}))[1]
    assert problem.message == f"{authority}: the service sees nothing in {place}: move it to /etc/fieldgate"


def test_on_the_mast_a_missing_file_is_an_error(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config_with(place, **{"ssl.ca.location": str(place / "ca.pem")})
    assert cli.main(["check", "-c", str(path)]) == 1
    assert capsys.readouterr().out == (
        f'{path}:12: kafka.properties."ssl.ca.location": {place / "ca.pem"}: there is no such file: '
        "put it there, or correct this line\n1 error, 0 warnings\n"
    )


def test_the_daemon_starts_with_it_and_other_commands_do_not(tmp_path: Path) -> None:
    path = config_with(tmp_path, **{"ssl.ca.location": str(tmp_path / "ca.pem")})
    config = load(path, starting=True)
    assert [str(problem) for problem in config.problems] == [
        f'{path}:12: kafka.properties."ssl.ca.location": {tmp_path / "ca.pem"}: there is no such file: '
        "put it there, or correct this line"
    ]
    with pytest.raises(ConfigError):
        load(path)
    # Elsewhere than on the mast nobody can say.
    assert [problem.severity for problem in check(path)[1]] == ["warning"]


def test_a_key_of_another_certificate_is_found(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "mast")
    files = {"ssl.certificate.location": str(made), "ssl.key.location": str(key)}
    assert check(config_with(tmp_path, **files))[1] == ()
    _, other = certificate(tmp_path, "other")
    (problem,) = check(config_with(tmp_path, **{**files, "ssl.key.location": str(other)}))[1]
    assert problem.severity == "error"
    assert "key" in problem.message


@pytest.mark.parametrize("protocol", [None, "SSL", "plaintext"])
def test_a_login_that_librdkafka_leaves_out_is_an_error(tmp_path: Path, protocol: str | None) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "m", "sasl.password": "p"}
    given = {"security.protocol": protocol} if protocol else {}
    path = write_config(tmp_path, config_text(baro(), kafka={"properties": {**given, **login}}))
    path.chmod(0o640)
    config, (problem,) = check(path)
    assert (problem.key, problem.severity) == ('kafka.properties."sasl.mechanism"', "error")
    shown = protocol.upper() if protocol else "PLAINTEXT"
    assert problem.message == (
        f"logs nobody in with security.protocol {shown}: that must be SASL_SSL or SASL_PLAINTEXT"
    )
    assert config is not None
