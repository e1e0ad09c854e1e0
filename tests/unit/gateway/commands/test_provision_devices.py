"""Users of the proxy and tokens of [http]: made once, shown once, and nobody else's line is touched."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from gateway.cli import main
from gateway.config.bridges.access_files import read_access, read_tokens, read_users
from gateway.config.bridges.model import MqttProxyConfig
from gateway.devices.mqtt_server import MqttAccess
from gateway.system.atomic_file import Ownership, ownership_of
from tests.support.users import NOBODY, ROOT_ONLY, nobodys_directory

CONFIG = """\
[mqtt_proxy]
passwords = "mqtt-users"
access = "mqtt-access"
[http]
tokens = "http-tokens"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.toml"
    path.write_text(CONFIG)
    return path


def provision(config: Path, *words: str) -> int:
    return main(["provision", "devices", "-c", str(config), *words])


def made(config: Path, *words: str) -> dict[tuple[str, str], str]:
    """What a call hands out, by kind and name."""
    place = config.with_name("handed-out")
    place.unlink(missing_ok=True)
    assert provision(config, "--passwords", str(place), *words) == 0
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    rows = [line.split() for line in place.read_text().splitlines()]
    return {(kind, name): secret for kind, name, secret in rows}


def admitted(config: Path, name: str, password: str) -> bool:
    place = config.parent
    access = MqttAccess(MqttProxyConfig(passwords=place / "mqtt-users", access=place / "mqtt-access"))
    return access.admits(name, password.encode(), "127.0.0.1")


def test_made_once_and_never_again(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--device", "soil", "--device", "rain=devices/rain/mm,other/rain", "--token", "logger-3")
    assert provision(config, "--dry-run", *words) == 0
    assert [each.name for each in config.parent.iterdir()] == ["gateway.toml"]
    assert capsys.readouterr().out == (
        "new      user soil\nnew      user rain\ntopics   soil: devices/soil/#\n"
        "topics   rain: devices/rain/mm, other/rain\nnew      token logger-3\n"
    )
    secrets = made(config, *words)
    printed = capsys.readouterr().out
    assert set(secrets) == {("user", "soil"), ("user", "rain"), ("token", "logger-3")}
    files = {each: config.with_name(each) for each in ("mqtt-users", "mqtt-access", "http-tokens")}
    for path in files.values():
        assert stat.S_IMODE(path.stat().st_mode) == (0o640 if os.geteuid() == 0 else 0o600)
        for secret in secrets.values():
            assert secret not in path.read_text() + printed
    assert admitted(config, "soil", secrets["user", "soil"])
    assert not admitted(config, "soil", secrets["user", "rain"])
    assert read_access(files["mqtt-access"]) == {
        "soil": ("devices/soil/#",),
        "rain": ("devices/rain/mm", "other/rain"),
    }
    digest = hashlib.sha256(secrets["token", "logger-3"].encode()).digest()
    assert read_tokens(files["http-tokens"]) == {digest: "logger-3"}
    before = {path: path.read_bytes() for path in files.values()}
    # Without topics it keeps those that it has.
    for again in (words, ("--device", "rain")):
        assert provision(config, *again) == 0
        assert capsys.readouterr().out == "nothing to change\n"
    assert {path: path.read_bytes() for path in files.values()} == before


def test_mosquittos_program_reads_the_hash(config: Path) -> None:
    made(config, "--device", "soil")
    users = config.with_name("mqtt-users")
    ours = read_users(users)["soil"]
    # It changes the other's line alone, so it has read ours; and ours is of the form it makes.
    subprocess.run(["mosquitto_passwd", "-b", str(users), "rain", "".join(("w", "et"))], check=True)
    both = read_users(users)
    assert both["soil"] == ours
    assert (len(ours.salt), len(ours.digest), ours.rounds) == (
        len(both["rain"].salt),
        len(both["rain"].digest),
        both["rain"].rounds,
    )


def test_others_stay_as_they_are_and_one_is_rotated_or_removed(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = made(config, "--device", "soil", "--device", "rain", "--token", "rain", "--token", "snow")
    access, tokens = config.with_name("mqtt-access"), config.with_name("http-tokens")
    by_hand = "# by hand\nuser gauge\ntopic write gauges/#\ntopic read downlink/gauge/#\n\n"
    access.write_text(by_hand + access.read_text())
    tokens.chmod(0o640)
    tokens.write_text("# of May\n" + tokens.read_text())
    capsys.readouterr()
    second = made(config, "--rotate", "rain")
    assert set(second) == {("user", "rain"), ("token", "rain")}
    assert set(second.values()).isdisjoint(first.values())
    assert admitted(config, "rain", second["user", "rain"])
    assert not admitted(config, "rain", first["user", "rain"])
    assert admitted(config, "soil", first["user", "soil"])
    assert tokens.read_text().startswith("# of May\nrain ")
    assert stat.S_IMODE(tokens.stat().st_mode) == 0o640
    assert list(read_tokens(tokens).values()) == ["rain", "snow"]
    assert provision(config, "--device", "gauge=gauges/1/#", "--remove", "rain") == 0
    printed = capsys.readouterr().out
    assert "removed  rain\n" in printed
    assert "new      user gauge\ntopics   gauge: gauges/1/#\n" in printed
    assert access.read_text().startswith(
        "# by hand\nuser gauge\ntopic write gauges/1/#\ntopic read downlink/gauge/#\n\n"
    )
    assert set(read_users(config.with_name("mqtt-users"))) == {"soil", "gauge"}
    assert list(read_tokens(tokens).values()) == ["snow"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "name a --device"),
        (("--device", "soil", "--device", "soil=a/b"), "named twice"),
        (("--device", "a:b"), "letters, digits"),
        (("--device", "soil=#"), "a level of the device's own"),
        (("--token", "Logger"), "small letters"),
        (("--rotate", "none"), "--rotate none: there is no such device"),
        (("--remove", "none"), "--remove none: there is no such device"),
    ],
)
def test_what_cannot_be_done_changes_nothing(
    config: Path, words: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert provision(config, *words) == 1
    assert problem in capsys.readouterr().err
    assert [each.name for each in config.parent.iterdir()] == ["gateway.toml"]


def test_a_config_or_a_file_that_is_wrong_changes_nothing(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for nonsense in ("mqtt_proxy = 5", "[http", "a = " + "[" * 5000):
        config.write_text(nonsense)
        assert provision(config, "--device", "soil") == 1
        assert "nothing written" in capsys.readouterr().err
    config.write_text('[http]\ntokens = "http-tokens"\n')
    assert provision(config, "--device", "soil") == 1
    assert "has no passwords and access in [mqtt_proxy]" in capsys.readouterr().err
    config.write_text(CONFIG)
    config.with_name("mqtt-users").write_text("soil:clear\n")
    assert provision(config, "--device", "soil") == 1
    assert "mqtt-users:1: must be NAME:$7$" in capsys.readouterr().err
    config.with_name("mqtt-users").unlink()
    config.with_name("there").touch()
    assert provision(config, "--device", "soil", "--passwords", str(config.with_name("there"))) == 1
    captured = capsys.readouterr()
    assert ("there already" in captured.err, captured.out) == (True, "")
    assert not config.with_name("mqtt-users").exists()


@pytest.mark.parametrize("name", ["gateway.toml", "http-tokens", "mqtt-users", "./mqtt-access", "link"])
def test_what_is_handed_out_takes_no_place_of_the_config_s(
    config: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # One that leads to a file that isn't there yet.
    config.with_name("link").symlink_to("http-tokens")
    place = f"{config.parent}/{name}"
    assert provision(config, "--token", "logger-3", "--device", "soil", "--passwords", place) == 1
    captured = capsys.readouterr()
    assert ("nothing written; name another file" in captured.err, captured.out) == (True, "")
    assert sorted(each.name for each in config.parent.iterdir()) == ["gateway.toml", "link"]
    assert config.read_text() == CONFIG


def test_a_link_is_neither_followed_nor_replaced(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = config.parent / "elsewhere" / "tokens"
    target.parent.mkdir()
    config.with_name("http-tokens").symlink_to(target)
    for there in (False, True):
        assert provision(config, "--token", "logger-3") == 1
        assert f"http-tokens is a link: name {target} in the config" in capsys.readouterr().err
        assert (config.with_name("http-tokens").is_symlink(), target.exists()) == (True, there)
        target.touch()
    assert target.read_bytes() == b""


@ROOT_ONLY
def test_in_a_directory_of_the_services_root_writes_as_its_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    roots = tmp_path / "etc"
    roots.mkdir(mode=0o700)
    with nobodys_directory() as directory:
        config = directory / "gateway.toml"
        config.write_text('[http]\ntokens = "own/http-tokens"\n')
        (directory / "own").symlink_to(roots)
        assert provision(config, "--token", "logger-3") == 1
        assert "Permission denied" in capsys.readouterr().err
        assert list(roots.iterdir()) == []
        (directory / "own").unlink()
        (directory / "own").mkdir()
        os.chown(directory / "own", NOBODY, NOBODY)
        for device in ("logger-3", "logger-4"):
            assert provision(config, "--token", device) == 0
            facts = ownership_of(directory / "own" / "http-tokens")
            assert facts == Ownership(NOBODY, NOBODY, 0o600)


def test_one_call_at_a_time(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = os.open(config.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        assert provision(config, "--token", "logger-3") == 1
        assert "another `provision devices` is at work" in capsys.readouterr().err
    finally:
        os.close(directory)
    assert [each.name for each in config.parent.iterdir()] == ["gateway.toml"]
    assert provision(config, "--token", "logger-3") == 0


LINES = st.sampled_from(
    ["# a", "", "user soil", "user a b", "topic write x/#", "topic x", "topic read soil/#", "user rain"]
)


@settings(max_examples=20, deadline=None)
@given(st.lists(LINES, max_size=12))
def test_whatever_others_have_written_stays(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    place = tmp_path_factory.mktemp("devices")
    config, access = place / "gateway.toml", place / "mqtt-access"
    config.write_text(CONFIG)
    access.write_text("".join(f"{line}\n" for line in lines))
    try:
        before = read_access(access)
    except ValueError:
        assert provision(config, "--device", "soil=own/#") == 1
        assert access.read_text().splitlines() == lines
        return
    assert provision(config, "--device", "soil=own/#") == 0
    after = read_access(access)
    assert after.pop("soil") == ("own/#",)
    before.pop("soil", None)
    assert after == before


def test_an_indented_user_is_no_part_of_the_one_before(config: Path) -> None:
    access = config.with_name("mqtt-access")
    config.with_name("mqtt-users").write_text("one:$7$101$YQ==$YQ==\ntwo:$7$101$YQ==$YQ==\n")
    access.write_text("user one\ntopic write one/#\n  user two\n  topic write two/#\n")
    assert provision(config, "--remove", "one") == 0
    assert read_access(access) == {"two": ("two/#",)}
