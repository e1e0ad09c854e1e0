"""The rules' file: what it may hold, and the problems it is refused for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

from cloud.wire.alert_records import AlertRecord
from spark_jobs.alerting.rules import DEFAULT_RULES, KINDS, Stuck, Threshold, alert_id, load_rules
from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.package import write_package
from tests.support.rules import rules_of

S = 1_000_000


def test_the_packaged_rules_are_of_every_kind_and_send_no_command() -> None:
    packaged = load_rules(DEFAULT_RULES)
    assert {type(rule) for rule in packaged.rules} == set(KINDS)
    assert packaged.max_age_us == 300 * S
    assert not [rule for rule in packaged.rules if rule.command is not None]
    cup = next(rule for rule in packaged.rules if rule.name == "cup-stuck")
    assert isinstance(cup, Stuck)
    assert (cup.tolerance, cup.moving_above, cup.hold_us) == (0.0, 1.5, 600 * S)
    assert cup.applies_to("any-mast", "cup-50m-a.wind_speed")
    assert not cup.applies_to("any-mast", "dht.temperature")
    vane = next(rule for rule in packaged.rules if rule.name == "vane-stuck")
    assert vane.text("mast-07", "vane.wind_direction", 43_200.0) == (
        "mast-07: vane.wind_direction has not turned for 12 h"
    )


def test_the_packaged_rules_are_read_from_the_archive_that_clusters_get(tmp_path: Path) -> None:
    program = "from spark_jobs.alerting import rules as r; print(len(r.load_rules(r.DEFAULT_RULES).rules))"
    ran = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=os.environ | {"PYTHONPATH": str(write_package(tmp_path))},
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ran.stdout.strip(), ran.stderr) == (str(len(load_rules(DEFAULT_RULES).rules)), "")


def test_the_commented_rule_of_the_packaged_file_is_one() -> None:
    _, _, commented = DEFAULT_RULES.read_text().partition("# [[rule]]\n")
    lines = ["[[rule]]", *(line.removeprefix("# ") for line in commented.splitlines())]
    (rule,) = rules_of("\n".join(lines)).rules
    command = rule.command
    assert command is not None
    assert (command.action, command.target, command.per_hour) == ("switch", "heater", 4)
    assert command.args == {"state": "off", "for_s": 3600}


def test_a_rule_is_what_its_table_holds() -> None:
    rules = rules_of(
        """
max_age = "90s"
[[rule]]
name = "hot"
version = "b"
kind = "threshold"
gateway = ["mast-0?", "test"]
channel = "box.*"
above = 60
clear = 55.5
for = "1.5s"
severity = "critical"
message = "{rule} {gateway} {channel} {value:.2f}"
command = { action = "stop", target = "heater" }
"""
    )
    assert rules.max_age_us == 90 * S
    (rule,) = rules.rules
    assert isinstance(rule, Threshold)
    assert (rule.id, rule.above, rule.below, rule.clear) == (("hot", "b"), 60.0, None, 55.5)
    assert (rule.hold_us, rule.severity, rule.quantity) == (1_500_000, "critical", ("*",))
    assert (rule.gateway, rule.channel) == (("mast-0?", "test"), ("box.*",))
    command = rule.command
    assert command is not None
    assert (command.action, command.target, command.args) == ("stop", "heater", {})
    assert (command.expires_us, command.min_interval_us, command.per_hour) == (600 * S, 900 * S, 2)
    assert rule.text("mast-07", None, 61.0) == "hot mast-07 the whole mast 61.00"
    assert rule.applies_to("mast-07", "box.temperature")
    assert rule.applies_to("test", None)
    assert not rule.applies_to("mast-17", "box.temperature")


def test_every_problem_is_reported_at_once_with_its_line() -> None:
    text = """\
max_ag = "5m"
[[rule]]
name = "Hot"
kind = "treshold"
abve = 3
[[rule]]
kind = "threshold"
above = "60"
below = 3
for = "5"
severity = "warn"
message = "{vale}"
[rule.command]
action = "stop it"
per_hour = 0
[[rule]]
name = "x"
kind = "pair"
difference = 0.5
clear = 0.6
pairs = [["a.wind_speed"]]
[[rule]]
name = "x"
kind = "recovery"
below = 90
[[rule]]
name = "Y"
kind = "threshold"
above = 60
clear = 70
gateway = []
"""
    with pytest.raises(SettingsError) as caught:
        rules_of(text)
    assert str(caught.value).splitlines() == [
        'r.toml:1: max_ag: is not a known key (did you mean "max_age"?)',
        'r.toml:4: rule["Hot"].kind: must be one of "threshold", "stuck", "silent", "pair", "recovery", '
        '"anomaly", "cloned", "event", "health", "wear", "calibration", not "treshold" '
        '(did you mean "threshold"?)',
        "r.toml:6: rule[2].name: is required",
        'r.toml:8: rule[2].above: must be a number, not "60": write 60, without quotes',
        'r.toml:10: rule[2].for: must be a duration such as "500ms", "30s", "10m", "1h" or "1d"',
        'r.toml:11: rule[2].severity: must be one of "info", "warning", "critical", not "warn" '
        '(did you mean "warning"?)',
        "r.toml:12: rule[2].message: names {vale}; there are {rule}, {gateway}, {channel}, {value}, "
        '{duration}, {detail} (did you mean "value"?)',
        "r.toml:13: rule[2].command.target: is required",
        "r.toml:14: rule[2].command.action: must be a word of letters, digits, '.', '_' and '-'",
        "r.toml:15: rule[2].command.per_hour: must be at least 1, not 0",
        "r.toml:20: rule[3].clear: must be at most the difference, 0.5: the alert ends there",
        "r.toml:21: rule[3].pairs: must be pairs of channels, e.g. "
        '[["cup-a.wind_speed", "cup-b.wind_speed"]]',
        'r.toml:23: rule[4].name: "x" is a second rule\'s name (the first: line 17): give each its own',
        "r.toml:25: rule[4].below: must be at most 1, not 90",
        'r.toml:27: rule["Y"].name: must be 1 to 63 of a-z, 0-9 and -, beginning with a letter or digit',
        'r.toml:30: rule["Y"].clear: must be at most above, 60: the alert ends there',
        'r.toml:31: rule["Y"].gateway: must be a name or a list of names; * and ? stand for any characters, '
        'e.g. "mast-*"',
    ]


@pytest.mark.parametrize(
    ("kind", "more", "problem"),
    [
        ("threshold", "", '1: rule["a"]: needs above or below: one of them'),
        ("anomaly", 'message = "{value:zz}"', '4: rule["a"].message: is no message: braces name values'),
        ("anomaly", 'message = "{value.real}"', '4: rule["a"].message: names {value.real}'),
        ("stuck", 'for = "0s"', '4: rule["a"].for: must be above 0'),
        (
            "anomaly",
            'command = { action = "a", target = "b", args = [1] }',
            '4: rule["a"].command.args: must be a table of texts, finite numbers, true and false',
        ),
        ("anomaly", "name = ", "4: is not valid TOML: invalid value"),
    ],
)
def test_a_mistake_is_reported(kind: str, more: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        rules_of(f'[[rule]]\nname = "a"\nkind = "{kind}"\n{more}\n')
    assert str(caught.value).startswith(f"r.toml:{problem}")
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none.toml:1: there is no such file: .*--rules"):
        load_rules(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(SettingsError, match=r"is not UTF-8 \(byte 0xe9 on this line\)"):
        load_rules(tmp_path / "latin.toml")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
_KEYS = [
    "name",
    "kind",
    "above",
    "below",
    "clear",
    "for",
    "message",
    "gateway",
    "pairs",
    "difference",
    "command",
]


@given(
    st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=6),
    st.sampled_from(["threshold", "pair", "stuck"]),
)
def test_whatever_is_in_the_file_it_is_rules_or_problems(given_keys: dict[str, object], kind: str) -> None:
    def toml(value: object) -> str:
        if isinstance(value, list):
            return f"[{', '.join(map(toml, value))}]"
        if isinstance(value, bool) or value is None:
            return str(bool(value)).lower()
        if isinstance(value, str):
            return '"' + "".join(f"\\U{ord(char):08x}" for char in value) + '"'
        return repr(value)

    lines = [f"{key} = {toml(value)}" for key, value in {"kind": kind, **given_keys}.items()]
    try:
        rules = rules_of("[[rule]]\n" + "\n".join(lines))
    except SettingsError as error:
        places = re.findall(r"^r\.toml:(\d+): ", str(error), re.MULTILINE)
        assert places
        assert all(1 <= int(line) <= len(lines) + 1 for line in places)
    else:
        assert len(rules.rules) == 1


def test_the_examples_of_the_docs_are_right() -> None:
    docs = Path(__file__).parents[4] / "docs"
    _, _, after = (docs / "alerts.md").read_text().partition('```toml\nmax_age = "5m"')
    (rule,) = rules_of('max_age = "5m"' + after.partition("```")[0]).rules
    _, _, after = (docs / "numbers.md").read_text().partition('```json\n{"v":1,"id":')
    record = msgspec.json.decode('{"v":1,"id":' + after.partition("```")[0], type=AlertRecord)
    assert record.id == alert_id(rule.id, record.gateway, record.channel, record.raised_us)
    assert record.detail == rule.text(record.gateway, record.channel, record.value or 0.0)
