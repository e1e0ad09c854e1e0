"""The demo's own device and rules: whenever it is run for half a minute, there is an alert."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cloud.wire.command_records import Command, parse_command
from gateway.commands.demo.command import cabinet_temperature
from gateway.commands.demo.layout import MAST
from gateway.config import load
from spark_jobs.alerting.alarm import Transition
from spark_jobs.alerting.engine import Engine
from spark_jobs.alerting.gateway_state import Sample
from spark_jobs.alerting.notifications import Notifier
from spark_jobs.alerting.rules import load_rules

RULES = MAST.with_name("alerts.toml")
START_S = 1_795_000_000


@pytest.mark.parametrize("begin_s", range(START_S, START_S + 30))
def test_a_hot_cabinet_is_raised_within_half_a_minute_and_cleared(begin_s: int) -> None:
    engine = Engine(load_rules(RULES))
    found: list[tuple[str, Transition, int]] = []
    for time_s in range(begin_s, begin_s + 60):
        time_us, value = time_s * 1_000_000, round(cabinet_temperature(time_s), 1)
        sample = Sample("mast", "cabinet.temperature", time_us, 1_000_000, value, 2, False, time_us)
        events = engine.observe([sample], time_us)
        found += [(event.rule.name, event.transition, time_s - begin_s) for event in events]
    assert {name for name, _, _ in found} == {"cabinet-hot"}
    assert {transition for _, transition, _ in found} == {Transition.RAISED, Transition.CLEARED}
    assert min(after_s for _, transition, after_s in found if transition is Transition.RAISED) <= 30


@pytest.mark.parametrize("begin_s", range(START_S, START_S + 30, 10))
def test_a_hot_cabinet_commands_a_relay_of_the_demos_mast_off(begin_s: int) -> None:
    """Alert, command, relay; the rest of the chain, from Spark to the result, is in the whole demo's test."""
    config, engine, notifier = load(MAST), Engine(load_rules(RULES)), Notifier()
    normal = {each.name: each.normal for each in config.actuators}
    commands: list[tuple[Command, int]] = []
    for time_s in range(begin_s, begin_s + 60):
        now_us, value = time_s * 1_000_000, round(cabinet_temperature(time_s), 1)
        sample = Sample("demo-mast", "cabinet.temperature", now_us, 1_000_000, value, 2, False, now_us)
        commands += [(each, time_s) for each in notifier.records(engine.observe([sample], now_us), now_us)[1]]
    assert len(commands) in (2, 3)
    for command, _ in commands:
        parsed = parse_command(command.to_json())
        assert config.commands.allows(parsed.action, parsed.target)
        assert (normal[parsed.target], parsed.args["state"]) == ("on", "off")
        # On again before the next one.
        assert parsed.args["for_s"] < 10
    assert all(later - sooner >= 20 for (_, sooner), (_, later) in pairwise(commands))
