"""Alerts are acknowledged by command: by whom, until when, and never one that isn't open."""

from __future__ import annotations

from collections.abc import Sequence
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
        "detail": ["silent"] * 5, "severity": ["warning"] * 5, "raised_at": [NOW] * 5,
        "cleared_at": [None, None, None, NOW, None], "historical": [False, False, False, False, True],
    })  # fmt: skip
    return tmp_path


def listed(lake: Path, *words: str) -> dict[str, str]:
    """By alert's id, who has acknowledged it."""
    printed = called("alerts", "list", "--lake", lake, *words)
    assert printed.returncode == 0, printed.stderr
    return {line.split()[0]: line.partition("(acknowledged by ")[2] for line in printed.stdout.splitlines()}


def test_by_id_or_a_whole_mast_with_a_note_and_what_was_noted_last_counts(lake: Path) -> None:
    assert listed(lake) == {"a1": "", "a2": "", "b1": ""}
    one = called("alerts", "ack", "--lake", lake, "a1", "--for", "2h", "--note", "on my way", "--who", "Olga")
    assert one.returncode == 0, one.stderr
    assert one.stdout.startswith("a1 mast-07 Olga, ")
    assert one.stdout.endswith(": on my way\n")
    assert ", until " in one.stdout
    assert listed(lake)["a2"] == ""
    mast = called(
        "alerts", "ack", "--lake", lake, "--mast", "mast-07", "--note", "dismantled", "--who", "Ada"
    )
    assert [line[:2] for line in mast.stdout.splitlines()] == ["a1", "a2"]
    of_mast = listed(lake, "--mast", "mast-07")
    assert sorted(of_mast) == ["a1", "a2"]
    assert all(each.startswith("Ada, ") and each.endswith("UTC: dismantled)") for each in of_mast.values())
    assert DeltaTable(str(lake / "acknowledgements")).to_pyarrow_table().num_rows == 3


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["over"], "no open alert over: `fieldgate alerts list` has those that are open"),
        (["a1", "late"], "no open alert late"),
        ([], "name alerts by their ID, or --mast"),
        (["--mast", "mast-09"], "mast-09 has no open alert"),
        (["a1", "--for", "soon"], "for: 'soon' is not a duration such as"),
        (["a1", "--for", "8d"], "for: 8d isn't above 0 and at most 7d"),
        (["a1", "--for", "0"], "for: 0 isn't above 0"),
        (["a1", "--note", "x" * 501], "the note has 501 characters"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_noted(lake: Path, words: Sequence[str], problem: str) -> None:
    done = called("alerts", "ack", "--lake", lake, *words)
    assert done.returncode == 1
    assert problem in done.stderr
    assert not (lake / "acknowledgements").exists()


def test_its_time_is_over_to_the_second(lake: Path) -> None:
    reader = reader_of(lake)
    acknowledge(reader, "olga", ["a1"], lasts="1h")
    (made,) = acknowledge(reader, "olga", ["a2", "a2"])
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
