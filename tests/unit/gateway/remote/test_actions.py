"""What each action returns, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cloud.wire.command_records import Command
from gateway.config import ConfigError, load
from gateway.control.interlocks import NotSwitched
from gateway.remote.actions import Action, NotDone, interval, publish, read, reload, self_test, switch
from gateway.status.status import Channel, RelayStatus
from tests.support.config import config_text, cup, write_config
from tests.support.status import CONFIG, channel, status


def command(target: str = "", **args: Any) -> Command:
    return Command(
        id="c1", gateway="mast-07", target=target, action="a", args=args, issued_at="", expires_at=""
    )


def refusal(action: Action, given: Command) -> tuple[str, str]:
    with pytest.raises(NotDone) as error:
        action(given)
    return error.value.reason, str(error.value)


class Relays:
    def __init__(self) -> None:
        self.given: list[Any] = []

    def command(self, *given: Any) -> str:
        self.given.append(given)
        if given[0] == "fan":
            raise NotSwitched("INTERLOCK", "the relay is on: hot")
        return "off"


def test_switch() -> None:
    relays = Relays()
    act = switch(relays)  # type: ignore[arg-type]
    assert act(command("heater", state="off")) == {"state": "off"}
    assert act(command("heater", state="normal", for_s=60)) == {"state": "off"}
    assert relays.given == [("heater", False, 3600.0, "command c1"), ("heater", None, 60.0, "command c1")]
    assert refusal(act, command("fan", state="on")) == ("INTERLOCK", "the relay is on: hot")
    for args in (
        {},
        {"state": "of"},
        {"state": "on", "for_s": 0},
        {"state": "on", "fors": 1},
        {"state": True},
    ):
        assert refusal(act, command("heater", **args))[0] == "BAD_ARGUMENTS"


def test_interval_within_bounds(tmp_path: Path) -> None:
    bounds = {"allow": ["interval"], "min_interval_s": 2, "max_interval_s": 60}
    config = load(write_config(tmp_path, config_text(cup("cup-50m"), commands=bounds)))
    loaded: list[Mapping[str, object]] = []

    def load_with(given: Mapping[str, object]) -> str | None:
        loaded.append(given)
        return "no" if given['sensor."cup-50m".interval_s'] == 7 else None

    act = interval(lambda: config, load_with)
    assert act(command("cup-50m", interval_s=5))["interval_s"] == 5
    for wrong_s in (1.9, 61):
        assert refusal(act, command("cup-50m", interval_s=wrong_s))[0] == "OUT_OF_BOUNDS"
    assert refusal(act, command("cup", interval_s=5))[0] == "UNKNOWN_TARGET"
    assert refusal(act, command("cup-50m"))[0] == "BAD_ARGUMENTS"
    assert loaded == [{'sensor."cup-50m".interval_s': 5}]
    assert refusal(act, command("cup-50m", interval_s=7)) == ("CONFIG_REFUSED", "no")
    assert load(tmp_path / "gateway.toml", loaded[0]).sensors[0].interval_s == 5


def test_read_and_reload(tmp_path: Path) -> None:
    config = load(write_config(tmp_path, config_text(cup())))
    last: dict[str, Channel] = {"cup-b.wind_speed": channel()}
    act = read(lambda: config, lambda: last, lambda _s: False)
    assert refusal(act, command("cup"))[0] == "NO_READING"
    last["cup.wind_speed"] = channel(value=7.1)
    assert act(command("cup")) == {"readings": {"cup.wind_speed": channel(value=7.1)}}
    assert reload(lambda _given: None)(command()) == {}
    assert refusal(reload(lambda _given: "line 3"), command()) == ("CONFIG_REFUSED", "line 3")


def test_a_fresh_reading_is_the_next_one(tmp_path: Path) -> None:
    sensors = cup(interval_s=10), cup("slow", 27, interval_s=600)
    config = load(write_config(tmp_path, config_text(*sensors)))
    last: dict[str, Channel] = {"cup.wind_speed": channel(seq=4)}
    now_s, comes_at_s, stops = [0.0], [9.0], [False]

    def wait(seconds: float) -> bool:
        now_s[0] += seconds
        if now_s[0] >= comes_at_s[0]:
            last["cup.wind_speed"] = channel(seq=5)
        return stops[0]

    act = read(lambda: config, lambda: last, wait, lambda: now_s[0])
    assert act(command("cup", fresh=True)) == {"readings": {"cup.wind_speed": channel(seq=5)}}
    assert now_s[0] == pytest.approx(9, abs=0.2)
    comes_at_s[0] = float("inf")
    assert refusal(act, command("cup", fresh=True)) == ("NO_READING", "cup gives no reading")
    assert now_s[0] == pytest.approx(39, abs=0.5)
    assert act(command("cup"))["readings"]["cup.wind_speed"].seq == 5
    assert refusal(act, command("slow", fresh=True))[0] == "OUT_OF_BOUNDS"
    assert refusal(act, command("cup", fresh="yes"))[0] == "BAD_ARGUMENTS"
    stops[0] = True
    assert refusal(act, command("cup", fresh=True))[0] == "STOPPING"


def test_publish_reaches_devices_only() -> None:
    sent: list[tuple[str, bytes]] = []

    def send(topic: str, payload: bytes) -> bool:
        sent.append((topic, payload))
        return topic != "devices/b"

    act = publish("fieldgate", send)
    assert act(command("devices/a", payload="on")) == {"bytes": 2}
    assert refusal(act, command("devices/b", payload=""))[0] == "NO_BROKER"
    for own in ("fieldgate", "fieldgate/mast-07/cup/wind_speed"):
        assert refusal(act, command(own, payload="{}"))[0] == "NOT_ALLOWED"
    assert refusal(act, command("devices/a"))[0] == "BAD_ARGUMENTS"
    assert sent == [("devices/a", b"on"), ("devices/b", b"")]


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"clock": "unsynced"}, {"mqtt_connected": False}, {"troubles": {"dht": "CHECKSUM"}},
        {"relays": {"heater": RelayStatus(state="off", why="", problem="busy", switches=0, interlocks=())}},
        {"config": replace(CONFIG, problems=("p",))},
    ],
)  # fmt: skip
def test_self_test(wrong: Mapping[str, Any]) -> None:
    assert self_test(lambda: status(**wrong))(command())["ok"] is (not wrong)


@pytest.mark.parametrize(
    ("commands", "problem"),
    [
        ({"allow": ["swich"]}, "commands.allow[1]: must be one of switch, read, interval, reload, self-test"),
        ({"allow": ["switch fan"]}, 'commands.allow: there is no actuator "fan"'),
        ({"allow": ["read cupp"]}, 'commands.allow: there is no sensor "cupp" (did you mean "cup"?)'),
        ({"allow": ["publish"]}, 'needs one topic, as in "publish devices/fan/set"'),
        ({"allow": ["publish devices/#"]}, "needs one topic"),
        ({"allow": ["reload now"]}, "reload has no target"),
        ({"min_interval_s": 9, "max_interval_s": 8}, "commands.min_interval_s: must not be above"),
    ],
)
def test_a_mistake_in_the_config_is_named(tmp_path: Path, commands: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(write_config(tmp_path, config_text(cup(), commands=commands)))
    assert problem in str(error.value)
