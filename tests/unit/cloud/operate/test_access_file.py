"""A gateway's access: the file, what init makes of it on a mast, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cloud.command_line import CommandError
from cloud.operate.access_file import Access, read_access
from cloud.wire.identities import gateway_key
from gateway.cli import main
from gateway.config import check, load
from tests.support.secured_kafka import make_certificates

LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "mast-07"}
OLD = 'se"sa\\me'

MakeAccess = Callable[[str], Access]


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> MakeAccess:
    """An access with this password."""
    place = tmp_path_factory.mktemp("authority") / "certificates"
    make_certificates(place)
    authority = (place / "ca.pem").read_text()

    def make(password: str) -> Access:
        files = {"sasl.password": password, "ssl.ca.location": authority}
        return Access("mast-07", "kafka.example.org:9093", LOGIN, files)

    return make


@pytest.fixture
def config(tmp_path: Path, access: MakeAccess) -> Path:
    """Of a mast that was set up with an access."""
    access(OLD).write(tmp_path / "first.toml")
    path = tmp_path / "gateway.toml"
    sensor = "cup=hall-anemometer:17,slope=0.765,offset=0.35"
    assert main(["init", "--access", str(tmp_path / "first.toml"), "--sensor", sensor, "-o", str(path)]) == 0
    return path


def test_it_is_read_as_it_was_written_by_its_owner_alone(tmp_path: Path, access: MakeAccess) -> None:
    path = tmp_path / "a.toml"
    access(OLD).write(path)
    assert read_access(path) == access(OLD)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(CommandError, match=r"a\.toml: File exists"):
        access(OLD).write(path)


def test_init_makes_a_config_that_names_the_secrets_and_has_none(config: Path) -> None:
    place = config.parent
    kafka = load(config).kafka
    assert kafka.bootstrap_servers == "kafka.example.org:9093"
    assert kafka.properties == {
        **LOGIN, "sasl.password": OLD, "ssl.ca.location": str(place / "kafka-ca.pem"),
    }  # fmt: skip
    assert load(config).gateway.id == "mast-07"
    assert not [each for each in check(config)[1] if "kafka" in each.key and each.severity == "error"]
    assert '"sa' not in config.read_text()
    assert (place / "kafka.password").stat().st_mode & 0o077 in (0, 0o040)


def test_a_second_access_replaces_the_password_alone(
    config: Path, tmp_path: Path, access: MakeAccess, capsys: pytest.CaptureFixture[str]
) -> None:
    access("new").write(tmp_path / "second.toml")
    before = config.read_text()
    assert main(["init", "--access", str(tmp_path / "second.toml"), "-o", str(config)]) == 0
    assert "systemctl reload fieldgate" in capsys.readouterr().out
    assert config.read_text() == before
    assert load(config).kafka.properties["sasl.password"] == "new"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('id = "mast-07"', 'id = "mast-08"', "is mast-08's, the access mast-07's: nothing written"),
        ('"mast-07"\nsasl', '"mast-7"\nsasl', "has another login: nothing written. Put this in its place"),
        ("[kafka", "[[kafka", "nothing written"),
        ("[kafka", f"x = {'[' * 5000}\n[kafka", "is nested too deeply: nothing written"),
        ("sasl.mechanism", f"sasl.{'m.' * 1500}echanism", "is nested too deeply: nothing written"),
    ],
)
def test_an_access_for_another_config_writes_nothing(
    config: Path,
    tmp_path: Path,
    access: MakeAccess,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    problem: str,
) -> None:
    access("new").write(tmp_path / "second.toml")
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))
    assert main(["init", "--access", str(tmp_path / "second.toml"), "-o", str(config)]) == 1
    assert problem in capsys.readouterr().err
    assert (tmp_path / "kafka.password").read_text() == f"{OLD}\n"


KEY, OTHER = gateway_key("m" * 32, "mast-07", 1), gateway_key("m" * 32, "mast-07", 2)


def test_a_key_stands_in_a_file_of_its_own_and_is_replaced_there(
    tmp_path: Path, access: MakeAccess, capsys: pytest.CaptureFixture[str]
) -> None:
    path, first = tmp_path / "gateway.toml", replace(access(OLD), identity_key=KEY)
    first.write(tmp_path / "first.toml")
    assert read_access(tmp_path / "first.toml") == first
    assert KEY not in repr(first)
    sensor = "cup=hall-anemometer:17,slope=0.765,offset=0.35"
    init = ["init", "--access", str(tmp_path / "first.toml"), "-o", str(path)]
    assert main([*init, "--sensor", sensor]) == 0
    assert load(path).gateway.identity_key == KEY
    assert KEY not in path.read_text() + repr(load(path))
    assert (tmp_path / "identity.key").stat().st_mode & 0o077 in (0, 0o040)
    assert main(["check", "-c", str(path)]) == 0
    assert ", its runs prove themselves" in capsys.readouterr().out

    replace(first, identity_key=OTHER).write(tmp_path / "second.toml")
    assert main(["init", "--access", str(tmp_path / "second.toml"), "-o", str(path)]) == 0
    # A reload takes the password, and the next run begins with the key.
    assert "systemctl restart fieldgate" in capsys.readouterr().out
    assert load(path).gateway.identity_key == OTHER


def test_a_config_of_before_says_what_to_add(
    config: Path, tmp_path: Path, access: MakeAccess, capsys: pytest.CaptureFixture[str]
) -> None:
    replace(access("new"), identity_key=KEY).write(tmp_path / "second.toml")
    again = ["init", "--access", str(tmp_path / "second.toml"), "-o", str(config)]
    assert main(again) == 1
    said = capsys.readouterr().err
    assert (tmp_path / "kafka.password").read_text() == f"{OLD}\n"
    line = said.strip().splitlines()[-1]
    config.write_text(config.read_text().replace('id = "mast-07"', f'id = "mast-07"\n{line}'))
    assert main(again) == 0
    assert load(config).gateway.identity_key == KEY
    assert load(config).kafka.properties["sasl.password"] == "new"


HEAD = 'gateway="mast-07"\nservers="b:9092"\n[files]\n[properties]\n'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gateway = 1",
        "x",
        '"\xff',
        'gateway="a"\nservers="b"\n[properties]\n[files]\nx=1',
        f"x = {'[' * 5000}",
        f"{'x.' * 1500}x = 1",
        # What would stand in the gateway's config as lines of their own, or break it.
        HEAD + r'''"client.id = \"x\"\n[commands]\nallow" = "reload"''',
        HEAD + '"a b" = "x"',
        HEAD + r'a = "\u007f"',
        HEAD + '"a" = "x"\n"a.b" = "x"',
        # With which the daemon wouldn't start again.
        'identity_key=""\n' + HEAD,
        f'identity_key="{KEY[1:]}"\n' + HEAD,
    ],
)
def test_any_other_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    assert main(["init", "--access", str(tmp_path / "a.toml"), "-o", str(tmp_path / "gateway.toml")]) == 1
    assert "is no file of `fieldgate provision gateway`" in capsys.readouterr().err
    assert not (tmp_path / "gateway.toml").exists()
