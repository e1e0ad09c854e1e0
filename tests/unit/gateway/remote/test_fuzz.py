"""Whatever stands in a command: a result for each record, no defect, and the next one is carried out."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cloud.wire.command_records import ACTIONS, parse_result
from cloud.wire.fields import InvalidFields
from gateway.config import load
from gateway.config.outputs import CommandsConfig
from gateway.remote.actions import Action, interval, publish, read, reload, self_test, switch
from tests.support.any_json import VALUES
from tests.support.config import config_text, cup, write_config
from tests.support.examples import examples
from tests.support.status import HEALTHY
from tests.unit.gateway.remote.test_actions import Relays
from tests.unit.gateway.remote.test_executor import Mast

EVERYTHING = CommandsConfig(allow=tuple(ACTIONS))

_args = st.dictionaries(
    st.sampled_from(["state", "for_s", "interval_s", "payload", "fresh", "x", ""]),
    VALUES | st.sampled_from(["on", "off", "normal", 1, 60.0, True, "\ud800"]),
    max_size=3,
)
_FIELDS: Mapping[str, st.SearchStrategy[Any]] = {
    "action": st.sampled_from([*ACTIONS, "other", ""]),
    "target": st.sampled_from(["", "heater", "cup", "a/b", "fieldgate/x", "#", "x" * 200]),
    "args": _args,
    "expires_at": st.sampled_from(["", "9999-12-31T23:59:59Z", "2026-05-28T20:30:00Z", "now"]),
    "gateway": st.sampled_from(["mast-07", "mast-08", ""]),
    "id": st.text(max_size=4) | st.sampled_from(["c1", "x" * 500]),
}


@st.composite
def _mutated(draw: st.DrawFn) -> bytes:
    """A command that would be carried out, but for some of its fields."""
    fields: dict[str, Any] = {
        "id": "c0", "gateway": "mast-07", "target": "heater", "action": "switch", "args": {"state": "on"},
        "issued_at": "2026-05-28T20:26:40Z", "expires_at": "2026-05-28T20:36:40Z",
    }  # fmt: skip
    for name in draw(st.lists(st.sampled_from([*_FIELDS, *_FIELDS, "issued_at"]), max_size=4)):
        if draw(st.integers(0, 9)) == 0:
            fields.pop(name, None)
        else:
            fields[name] = draw(_FIELDS.get(name, VALUES))
    return json.dumps(fields).encode()


_payloads = st.binary(max_size=60) | _mutated() | st.sampled_from(
    [b"[" * 5000, b'{"id":' * 2000, b"{}" + b" " * 20_000, b"null", b'{"args":{"\\ud800":1}}']
)  # fmt: skip


@pytest.fixture
def actions(tmp_path: Path) -> Mapping[str, Action]:
    config = load(write_config(tmp_path, config_text(cup())))
    return {
        "switch": switch(Relays()),  # type: ignore[arg-type]
        "read": read(lambda: config, dict, lambda _: True),
        "interval": interval(lambda: config, lambda _: None),
        "reload": reload(lambda _: None),
        "self-test": self_test(lambda: HEALTHY),
        "publish": publish("fieldgate", lambda topic, payload: True),
    }


def test_whatever_is_commanded_is_answered(
    actions: Mapping[str, Action], caplog: pytest.LogCaptureFixture
) -> None:
    @settings(
        deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(st.lists(_payloads, min_size=1, max_size=8))
    def attempt(payloads: list[bytes]) -> None:
        with tempfile.TemporaryDirectory() as directory:
            mast = Mast(Path(directory))
            mast.actions = actions
            mast.log = list(payloads)
            mast.send("last", args={"state": "off"})
            mast.run(config=EVERYTHING)
            answered = sum(map(len, mast.results.values()))
            # One whose id was there already has the first one's answer again, or none while that is kept.
            assert 1 <= answered <= len(payloads) + 1
            assert mast.results["last"][-1].outcome == "done"

    attempt()
    assert not [each for each in caplog.records if each.levelname in ("ERROR", "CRITICAL")]


@settings(deadline=None, max_examples=examples(150))
@given(st.binary(max_size=100) | _payloads)
def test_any_result_is_read_or_refused(payload: bytes) -> None:
    try:
        parse_result(payload)
    except InvalidFields:
        return
