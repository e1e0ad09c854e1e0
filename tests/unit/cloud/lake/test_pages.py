"""Every query on the analyst's pages runs, over a small lake that has a row or two of each table."""

from __future__ import annotations

import re
import shlex
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql.pandas.types import to_arrow_schema

from cloud.exports import fieldgate
from spark_jobs.platform import schemas
from spark_jobs.platform.schemas import Table
from tests.support.commands import query as run

PROJECT: Final = Path(__file__).parents[4]
PAGES: Final = ("docs/analyse.md", "docs/numbers.md", "docs/anomaly.md", "README.md")

NOON: Final = datetime(2026, 5, 28, 12, tzinfo=UTC)
CUP: Final = "cup-50m-a.wind_speed"
CHANNELS: Final = (CUP, "cup-50m-b.wind_speed", "vane-48m.wind_direction")
VALUES: Final[dict[str, Any]] = {
    "gateway": "mast-07", "channel": CUP, "quantity": "wind_speed", "cal": "5d1c0a7e", "quality": 1,
    "reasons": [], "reason": "NOT_JSON", "historical": False, "turbulence_intensity": [(CUP, 0.11)],
    "score": 2.5, "threshold": 1.2, "rules": ["icing:" + CUP],
    "extra": '{"original":{"value":7.2,"cal":"c0ffee00","quality":1,"reasons":[]}}',
}  # fmt: skip
"""Columns that a query selects by their contents."""


def blocks(page: str, tag: str) -> list[str]:
    """The page's blocks of code of one language."""
    text = (PROJECT / page).read_text()
    return [found[2] for found in re.finditer(r"^( *)```" + tag + r"\n(.*?)^\1```", text, re.M | re.S)]


def queries() -> list[tuple[str, str]]:
    """Page and statement: those of `fieldgate query` and those that stand alone."""
    found = []
    for page in PAGES:
        for line in "".join(blocks(page, "sh")).splitlines():
            words = shlex.split(line)
            if words[1:2] == ["query"]:
                found.append((page, next(word for word in words[2:] if " " in word)))
        found += [(page, block.strip()) for block in blocks(page, "sql")]
    return found


def _value(name: str, kind: Any) -> Any:
    if name in VALUES:
        return VALUES[name]
    if pa.types.is_timestamp(kind):
        return NOON
    if pa.types.is_date(kind):
        return date(2026, 5, 28)
    if pa.types.is_struct(kind):
        return {each.name: _value(each.name, each.type) for each in kind}
    if pa.types.is_map(kind):
        return [(CUP, _value("", kind.item_type))]
    if pa.types.is_list(kind):
        return [_value("", kind.value_type)]
    simple = {"string": "a", "double": 1.5, "bool": True, "binary": b"7.2"}
    return simple.get(str(kind), 7)


def _rows(table: Table) -> Any:
    schema = to_arrow_schema(table.schema)
    row = {field.name: _value(field.name, field.type) for field in schema}
    channels = CHANNELS if table is schemas.STATISTICS else (CUP,)
    rows = [row | {"channel": channel} for channel in channels if "channel" in row] or [row]
    return pa.Table.from_pylist(rows, schema=schema)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("analyst") / "lake"
    for table in vars(schemas).values():
        if not isinstance(table, Table) or table.name.startswith("_"):
            continue
        write_deltalake(root / table.name, _rows(table))
    return root


@pytest.mark.parametrize(("page", "sql"), queries())
def test_a_query_of_a_page_runs(lake: Path, page: str, sql: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([sql, "--lake", str(lake), "--csv"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header, page
    # The small lake has nothing of the last hour.
    assert rows or "now()" in sql, "the small lake should have an answer to it"


def test_the_pages_have_queries() -> None:
    assert {page for page, _ in queries()} == set(PAGES)
    assert "->'$.original'" in "".join(sql for _, sql in queries())


def test_python_of_the_page_runs(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(lake.parent)
    # The wheel has this module as the package fieldgate (tests/integration/test_wheel.py).
    monkeypatch.setitem(sys.modules, "fieldgate", fieldgate)
    for block in blocks("docs/analyse.md", "python"):
        exec(block, {})  # noqa: S102 - the page's own lines
    assert CUP in capsys.readouterr().out
