"""The broker's files in a directory that stands for the machine's root; Mosquitto's program makes hashes."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.commands.provision.mosquitto_files import conflicts, drop_in, users, without_network_online

_ROOT = Path(__file__).resolve().parents[4]
TRIXIE_UNIT = """\
[Unit]
Description=Mosquitto MQTT Broker
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
ExecStart=/usr/sbin/mosquitto -c /etc/mosquitto/mosquitto.conf
"""
DEBIANS_CONF = "persistence true\ninclude_dir /etc/mosquitto/conf.d\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with Debian's mosquitto and nothing of ours."""
    units, etc = tmp_path / "usr/lib/systemd/system", tmp_path / "etc/mosquitto"
    units.mkdir(parents=True)
    (etc / "conf.d").mkdir(parents=True)
    (units / "mosquitto.service").write_text(TRIXIE_UNIT)
    (etc / "mosquitto.conf").write_text(DEBIANS_CONF)
    return tmp_path


def provision(root: Path, *words: str) -> int:
    return main(["provision", "mosquitto", "--root", str(root), *words])


def files(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()
    }


def test_loopback_alone_and_again(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(root)
    assert provision(root) == 0
    printed = capsys.readouterr().out
    after = files(root)
    assert set(after) - set(before) == {
        "etc/mosquitto/conf.d/fieldgate.conf",
        "etc/systemd/system/mosquitto.service",
        "etc/systemd/system/mosquitto.service.d/fieldgate.conf",
    }
    assert {name: after[name] for name in before} == before
    assert "systemctl daemon-reload && systemctl enable mosquitto && systemctl restart mosquitto" in printed
    assert provision(root) == 0
    assert capsys.readouterr().out == "nothing to change\n"
    assert files(root) == after


def test_a_dry_run_shows_and_writes_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(root)
    assert provision(root, "--dry-run", "--lan", "1884", "--device", "soil") == 0
    printed = capsys.readouterr().out
    assert "+listener 1883 127.0.0.1\n" in printed
    assert "+topic write devices/soil/#\n" in printed
    assert f"{root}/etc/mosquitto/fieldgate.passwd: new: soil\n" in printed
    assert files(root) == before


def test_a_password_is_made_once_and_kept(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert provision(root, "--lan", "1884", "--device", "soil") == 0
    lines = capsys.readouterr().out.splitlines()
    shown = next(line.split()[1] for line in lines if line.startswith("  soil  "))
    place = root / "etc/mosquitto/fieldgate.passwd"
    first = place.read_text()
    assert set(users(first)) == {"soil"}
    assert shown not in first
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert provision(root, "--lan", "1884", "--device", "soil", "--device", "rain=rain/+/tips") == 0
    printed = capsys.readouterr().out
    assert "  soil  " not in printed
    second = place.read_text()
    assert second.startswith(first)
    assert set(users(second)) == {"soil", "rain"}
    # Without the device its user goes, without the LAN all of it.
    assert provision(root, "--lan", "1884", "--device", "rain=rain/+/tips") == 0
    assert set(users(place.read_text())) == {"rain"}
    assert "user soil" not in (root / "etc/mosquitto/fieldgate.acl").read_text()
    assert provision(root) == 0
    assert not place.exists()


def test_passwords_go_to_a_file_for_its_owner_alone(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    assert provision(root, "--lan", "1884", "--device", "soil", "--passwords", str(file)) == 0
    name, password = file.read_text().split()
    assert name == "soil"
    assert len(password) == 24
    assert password not in capsys.readouterr().out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_another_override_of_the_unit_is_left_alone(root: Path) -> None:
    own = root / "etc/systemd/system/mosquitto.service"
    own.parent.mkdir(parents=True)
    own.write_text("[Service]\nExecStart=/opt/mosquitto\n")
    assert provision(root) == 0
    assert own.read_text() == "[Service]\nExecStart=/opt/mosquitto\n"


def test_a_unit_that_waits_for_no_network_needs_no_override(root: Path) -> None:
    assert provision(root) == 0
    unit = root / "usr/lib/systemd/system/mosquitto.service"
    unit.write_text(unit.read_text().replace("network-online", "network"))
    assert provision(root) == 0
    assert not (root / "etc/systemd/system/mosquitto.service").exists()


def test_with_the_package_the_drop_in_is_there_already(root: Path) -> None:
    packaged = root / "usr/lib/systemd/system/mosquitto.service.d"
    packaged.mkdir()
    (packaged / "fieldgate.conf").write_text(drop_in())
    assert provision(root) == 0
    assert not (root / "etc/systemd/system/mosquitto.service.d/fieldgate.conf").exists()


def test_the_drop_in_is_the_installed_one() -> None:
    assert (_ROOT / "systemd/mosquitto.service.d/fieldgate.conf").read_text() == drop_in()


def test_only_network_online_goes() -> None:
    unit = (
        "[Unit]\nAfter=a.target network-online.target b.target\nWants=network-online.target\n[Service]\nX=1\n"
    )
    changed = without_network_online(unit)
    assert changed is not None
    assert [line for line in changed.splitlines() if not line.startswith("#")] == [
        "[Unit]", "After=a.target b.target", "[Service]", "X=1"
    ]  # fmt: skip
    assert without_network_online(unit.replace("network-online", "network")) is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--device", "soil"), "--device needs --lan PORT"),
        (("--lan", "1883"), "the loopback listener has this port; another, such as 1884"),
        (("--lan", "eth0"), "--lan eth0: PORT or ADDRESS:PORT"),
        (("--lan", "70000"), "the port from 1 to 65535"),
        (("--lan", "1884", "--device", "a b"), "'a b': a device's name has letters"),
        (("--lan", "1884", "--device", "a=x", "--device", "a=y"), "named twice"),
        (("--lan", "1884", "--device", "a=x/#,y", "--device", "b=z,x/b"), "b's x/b has topics of a's x/#"),
        (("--lan", "1884", "--device", "a=fieldgate/#"), "those are the gateway's own topics"),
        (("--lan", "1884", "--device", "a=#"), "topic filter '#': must begin with a level"),
        (("--lan", "1884", "--device", "a=$SYS/x"), "topic filter '$SYS/x': must begin with a level"),
        (("--lan", "1884", "--device", "a=x/#/y"), '"#" must stand alone at the end'),
        (("--lan", "1884", "--device", "a=x/y+"), '"+" must stand alone'),
        (("--lan", "1884", "--device", "a=x,"), "topic filter '': must not be empty"),
    ],
)
def test_what_cannot_be_is_refused(
    words: tuple[str, ...], message: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(root)
    assert provision(root, *words) == 1
    assert message in capsys.readouterr().err
    assert files(root) == before


def test_other_files_that_contradict_are_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = root / "etc/mosquitto/conf.d/local.conf"
    other.write_text("# mine\nlistener 1883\nallow_anonymous true\nmax_connections 10\n")
    assert provision(root) == 1
    printed = capsys.readouterr().err
    assert f"{other}:2: 'listener 1883' takes the same port" in printed
    assert f"{other}:3: 'allow_anonymous true' would count for another listener" in printed
    assert "max_connections" not in printed
    assert list(conflicts({"a": "listener 1884\n"}, [1883])) == []


def test_without_mosquitto(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert provision(tmp_path) == 1
    assert "mosquitto is not installed: apt-get install mosquitto" in capsys.readouterr().err
