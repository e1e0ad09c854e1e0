"""Alerts are acknowledged: by whom, until when, and never one that isn't open."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cloud.lake.acknowledgements import acknowledge, acknowledged
from cloud.lake.tables import LakeError
from spark_jobs.platform import schemas
from tests.support.commands import called
from tests.support.fleet_lake import reader_of, write

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Three masts: two alerts of one, one of another, and what nobody can acknowledge."""
    rows = [("a1", "mast-07"), ("a2", "mast-07"), ("b1", "mast-08"), ("over", "mast-09"), ("late", "mast-09")]
    write(tmp_path, schemas.ALERTS, {
        "id": [name for name, _ in rows], "gateway": [gateway for _, gateway in rows],
        "detail": ["silent"] * 5, "severity": ["warning"] * 5,
        "raised_at": [NOW, NOW, NOW, NOW - timedelta(hours=1), NOW],
        "cleared_at": [None, None, None, NOW, None], "historical": [False, False, False, False, True],
    })  # fmt: skip
    return tmp_path


@pytest.mark.parametrize(
    ("alerts", "lasts", "problem"),
    [
        (["over", "late?"], "", "No such alert is open any more"),
        (["a1"], "soon", "For: 'soon' is not a duration such as"),
        (["a1"], "8d", "For: 8d isn't above 0 and at most 7d"),
        (["a1"], "0", "For: 0 isn't above 0"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_noted(
    lake: Path, alerts: list[str], lasts: str, problem: str
) -> None:
    with pytest.raises(LakeError, match=problem):
        acknowledge(reader_of(lake), "olga", alerts, lasts=lasts)
    assert not (lake / "acknowledgements").exists()


def test_of_one_alert_what_was_noted_last_counts(lake: Path) -> None:
    for author, alerts in (("olga", ["a1", "over"]), ("ada", ["a1", "a2"])):
        acknowledge(reader_of(lake), author, alerts, note=" dismantled ")
    found = acknowledged(reader_of(lake), NOW)
    assert {name: (each.author, each.gateway, each.note) for name, each in found.items()} == {
        "a1": ("ada", "mast-07", "dismantled"), "a2": ("ada", "mast-07", "dismantled"),
    }  # fmt: skip
    assert str(found["a1"]) == f"ada, {found['a1'].noted_at:%Y-%m-%d %H:%M} UTC: dismantled"
    assert DeltaTable(str(lake / "acknowledgements")).to_pyarrow_table().num_rows == 3


def test_its_time_is_over_to_the_second(lake: Path) -> None:
    reader = reader_of(lake)
    acknowledge(reader, "olga", ["a1"], lasts="1h")
    (made,) = acknowledge(reader, "olga", ["a2", "a2", "over"])
    reader.look()
    assert acknowledged(reader_of(lake, gateways=("mast-08",)), NOW) == {}
    until = acknowledged(reader, NOW)["a1"].until
    assert until is not None
    assert abs(until - made.noted_at - timedelta(hours=1)) < timedelta(minutes=1)
    assert sorted(acknowledged(reader, until - timedelta(seconds=1))) == ["a1", "a2"]
    assert list(acknowledged(reader, until)) == ["a2"]
    reader.lakes = {"eu": (str(lake), None), "us": (str(lake), None)}
    reader.look()
    with pytest.raises(LakeError, match="table acknowledgements is written in one lake"):
        acknowledge(reader, "olga", ["a1"])


def test_by_the_command(lake: Path) -> None:
    where = ("--lake", lake)
    now = datetime.now(UTC)
    for name, at in (("lost", now - timedelta(days=6)), ("long-ago", now - timedelta(days=8))):
        row = {"id": name, "gateway": "mast-08", "raised_at": at, "cleared_at": at, "historical": False}
        write(lake, schemas.ALERTS, {key: [value] for key, value in row.items()})
    shown = called("alerts", "list", *where).stdout
    assert [" lost " in shown, " long-ago " in shown] == [True, False]
    assert ["mast-07" in line and "warning" in line for line in shown.splitlines() if " a1 " in line] == [
        True
    ]
    assert " over " not in shown
    done = called(
        "alerts", "acknowledge", *where, "a1", "over", "--for", "2h", "--note", "on my way", "--who", "ada"
    )
    assert (done.returncode, done.stdout) == (0, "a1 is acknowledged\nover is not open any more\n")
    rows = json.loads(called("alerts", "list", *where, "--mast", "mast-07", "--json").stdout)
    assert [(row["id"], (row["acknowledged"] or "")[:5]) for row in rows] == [("a2", ""), ("a1", "ada, ")]
    assert rows[1]["acknowledged"].endswith(": on my way")
    assert rows[0]["raised_at"].startswith("2026-11-30T12:00:00")
    failed = called("alerts", "acknowledge", *where, "over")
    assert (failed.returncode, failed.stderr) == (1, "fieldgate: No such alert is open any more.\n")
    assert json.loads(called("alerts", "list", *where, "--mast", "mast-09", "--json").stdout) == []
