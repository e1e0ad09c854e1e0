"""What differs between two configs, and what of it a running daemon takes over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.config import Config, check, located
from gateway.config.outputs import ActuatorConfig, InterlockConfig
from gateway.config.source import EVERY_S
from gateway.daemon.gateway import ConfigInForce
from gateway.daemon.reload import Names, Reload, compare
from gateway.status.findings import RESTART
from tests.support.config import changed, write_config
from tests.support.forwarding import snapshot

TEXT = """
[gateway]
id = "mast-07"
latitude = 27.7
longitude = 85.5
[mqtt]
port = 1883
[kafka]
bootstrap_servers = "a:9092"
topic = "mqtt.{quantity}"
[kafka.properties]
"linger.ms" = 5
[uplink]
mode = "live"
[outbox]
path = "outbox.db"
max_bytes = "1GiB"
commit_interval_s = 1.0
[clock]
trust = "always"
[status]
listen = "127.0.0.1:8321"
[board]
kind = "simulated"
seed = 1
[[sensor]]
name = "cup"
driver = "hall-anemometer"
pin = 17
slope = 0.765
[[sensor]]
name = "dht"
driver = "dht11"
pin = 4
interval_s = 2
[[forward]]
filter = "sensors/+/temperature"
payload = "number"
quantity = "temperature"
"""
TWIN = '[[sensor]]\nname = "twin"\ndriver = "hall-anemometer"\npin = 27\nslope = 0.765\n'


def config(directory: Path, *changes: tuple[str, str]) -> Config:
    found, problems = check(write_config(directory, changed(TEXT, changes)))
    assert found is not None, problems
    return found


def test_sensors_by_name_whatever_their_order(tmp_path: Path) -> None:
    old = config(tmp_path)
    new = config(tmp_path, ("slope = 0.765\n", f"slope = 0.765\n{TWIN}"), ("pin = 4", "pin = 5"))
    changes = compare(old, new)
    assert changes.sensors == Names(added=("twin",), changed=("dht",))
    assert (changes.ending, changes.starting) == (("dht",), ("twin", "dht"))
    back = compare(new, replace(old, sensors=old.sensors[::-1]))
    assert back.sensors == Names(removed=("twin",), changed=("dht",))


@pytest.mark.parametrize(
    "change", ['serial = "1"', "boom_deg = 90.0", "calibrated = 2026-03-12", "offset = 0.1"]
)
def test_whatever_changes_of_a_sensor_restarts_it_and_only_it(tmp_path: Path, change: str) -> None:
    changes = compare(config(tmp_path), config(tmp_path, ("pin = 17", f"pin = 17\n{change}")))
    assert changes.sensors == Names(changed=("cup",))


def test_a_forward_is_known_by_its_filter(tmp_path: Path) -> None:
    old = config(tmp_path)
    assert compare(old, config(tmp_path, ('"sensors/+/', '"devices/+/'))).forwards == Names(
        added=("devices/+/temperature",), removed=("sensors/+/temperature",)
    )
    assert compare(
        old, config(tmp_path, ('payload = "number"', 'payload = "number"\nscale = 2.0'))
    ).forwards == Names(changed=("sensors/+/temperature",))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (('"a:9092"', '"b:9092"'), ("kafka", "bootstrap_servers")),
        (('"mqtt.{quantity}"', '"met.{quantity}"'), ("kafka", "topic")),
        (('"linger.ms" = 5', '"linger.ms" = 50'), ("kafka", "properties")),
        (("commit_interval_s = 1.0", "commit_interval_s = 2.0"), ("outbox", "commit_interval_s")),
        (("127.0.0.1:8321", "0.0.0.0:8321"), ("status", "listen")),
        (("port = 1883", 'port = 1883\nusername = "mast"'), ("mqtt", "username")),
    ],
)
def test_what_changes_live(tmp_path: Path, change: tuple[str, str], key: tuple[str, str]) -> None:
    changes = compare(config(tmp_path), config(tmp_path, change))
    assert (changes.settings, changes.restart) == ((key,), ())
    assert changes.touches(key[0])
    assert changes.touches(*key)
    assert not changes.touches("board")
    assert changes.summary()["settings"] == [".".join(key)]


def test_a_site_changes_live(tmp_path: Path) -> None:
    old = config(tmp_path, ("[mqtt]", '[site]\nname = "Ridge"\n[mqtt]'))
    new = config(tmp_path, ("[mqtt]", '[site]\nname = "Lake"\n[mqtt]'))
    assert (compare(old, new).settings, compare(old, new).restart) == ((("site", "name"),), ())
    # It has the gateway's position.
    assert old.site.position == (27.7, 85.5)
    assert compare(config(tmp_path), new).restart == ()


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (('"mast-07"', '"mast-08"'), ("gateway", "id")),
        (("latitude = 27.7", "latitude = 28.7"), ("gateway", "latitude")),
        (("port = 1883", "port = 1884"), ("mqtt", "port")),
        (("port = 1883", 'port = 1883\nhost = "10.0.0.1"'), ("mqtt", "host")),
        (("port = 1883", 'port = 1883\ntopic_root = "met"'), ("mqtt", "topic_root")),
        (("port = 1883", "port = 1883\nkeepalive_s = 60"), ("mqtt", "keepalive_s")),
        (('"live"', '"metered"'), ("uplink", "mode")),
        (('"outbox.db"', '"other.db"'), ("outbox", "path")),
        (('trust = "always"', 'trust = "kernel"'), ("clock", "trust")),
        (("seed = 1", "seed = 2"), ("board", "seed")),
        (('kind = "simulated"\nseed = 1', 'kind = "raspberry-pi"'), ("board", "kind")),
    ],
)
def test_what_takes_a_restart(tmp_path: Path, change: tuple[str, str], key: tuple[str, str]) -> None:
    changes = compare(config(tmp_path), config(tmp_path, change))
    assert (changes.settings, changes.restart) == ((), (key,))
    assert changes.refusals == {key: "takes a restart: sudo systemctl restart fieldgate"}


def test_on_a_real_board_the_place_changes_live(tmp_path: Path) -> None:
    to_pi = ('kind = "simulated"\nseed = 1', 'kind = "raspberry-pi"')
    changes = compare(
        config(tmp_path, to_pi), config(tmp_path, to_pi, ("latitude = 27.7", "latitude = 28.7"))
    )
    assert (changes.settings, changes.restart) == ((("gateway", "latitude"),), ())


def test_a_refusal_names_its_keys_line(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(TEXT)
    (problem,) = located(file, {}, {("mqtt", "port"): f"takes a restart: {RESTART}"})
    line = TEXT.splitlines().index("port = 1883") + 1
    assert str(problem) == f"{file}:{line}: mqtt.port: takes a restart: sudo systemctl restart fieldgate"
    (overridden,) = located(file, {"mqtt.port": 1}, {("mqtt", "port"): "no"})
    assert str(overridden) == "--set: mqtt.port: no"


def test_a_certificate_that_is_renewed_at_its_path_is_a_change(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("old")
    named = ('"linger.ms" = 5', f'"linger.ms" = 5\n"ssl.ca.location" = "{authority}"')
    before = config(tmp_path, named)
    authority.write_text("new")
    changes = compare(before, config(tmp_path, named))
    assert changes.settings == (("kafka", "properties", "ssl.ca.location"),)
    assert changes.touches("kafka", "properties")
    assert not changes.restart
    assert compare(config(tmp_path, named), config(tmp_path, named)).settings == ()


def test_the_daemon_reloads_by_itself_once_a_named_file_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("old")
    found = config(tmp_path, ('"linger.ms" = 5', f'"ssl.ca.location" = "{authority}"'))
    gateway: Any = SimpleNamespace(in_force=ConfigInForce(found))
    reload, reloads = Reload(tmp_path / "gateway.toml", {}, gateway, cast(Any, None)), []
    monkeypatch.setattr(reload, "reload", lambda: reloads.append(1))
    reload.tick(snapshot(100.0))
    authority.write_text("new")
    reload.tick(snapshot(100.0 + EVERY_S - 1))
    assert reloads == []
    reload.tick(snapshot(100.0 + EVERY_S))
    assert reloads == [1]
    # One that was refused isn't tried again until the file changes again.
    reload.tick(snapshot(100.0 + 2 * EVERY_S))
    assert reloads == [1]
    authority.unlink()
    reload.tick(snapshot(100.0 + 3 * EVERY_S))
    assert reloads == [1, 1]


def test_a_command_gets_the_outcome_of_its_own_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced: list[str] = []
    gateway: Any = SimpleNamespace(
        in_force=ConfigInForce(config(tmp_path)),
        runs=SimpleNamespace(event=lambda event, problem: f"{event}: {problem}"),
        inbox=SimpleNamespace(announce=announced.append),
    )
    reload = Reload(tmp_path / "gateway.toml", {}, gateway, cast(Any, None))

    def refused() -> None:
        gateway.in_force.error = "no"

    monkeypatch.setattr(reload, "reload", refused)
    with ThreadPoolExecutor() as commands:
        answer = commands.submit(reload.carry_out, {"config": str(tmp_path / "gateway.toml")})
        assert reload.requested.wait(10)
        assert not answer.done()
        reload.tick(snapshot(100.0))
        assert answer.result(10) == {"refused": "no"}
        assert announced == ["config-refused: no"]


def test_a_reload_for_another_file_is_refused(tmp_path: Path) -> None:
    gateway: Any = SimpleNamespace(in_force=ConfigInForce(config(tmp_path)))
    reload = Reload(tmp_path / "gateway.toml", {}, gateway, cast(Any, None))
    other = tmp_path / "other.toml"
    other.touch()
    with pytest.raises(ValueError, match=f"the daemon runs on {tmp_path}/gateway.toml"):
        reload.carry_out({"config": str(other)})
    assert not reload.requested.is_set()


def test_relays_and_interlocks_take_a_restart(tmp_path: Path) -> None:
    relay = ActuatorConfig(name="heater", pin=23)
    interlock = InterlockConfig("dht.temperature > 40", "relay.heater off")
    old = config(tmp_path)
    assert compare(old, replace(old, actuators=(relay,))).restart == (("actuator",),)
    assert compare(old, replace(old, interlocks=(interlock,))).restart == (("interlock",),)
