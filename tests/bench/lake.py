"""What asking a lake costs beside plain DuckDB on the same Parquet, and how soon one of many files answers.

    python -m tests.bench.lake --masts 100 --days 30

Prints rows for docs/performance.md. The lakes are made here: statistics and values of made-up masts, and a
table ``readings`` of 30,000 small files. Each question is asked by turns as `fieldgate query` does and by a
view over ``read_parquet``, both opened for it; the answers have to be equal. Seconds are medians.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Field, Schema, convert_to_deltalake
from deltalake.schema import PrimitiveType

from cloud.lake.tables import LazyLakes
from cloud.lake.wind import add_wind_macros
from tests.support.fleet_lake import write_fleet

_END: Final = datetime(2026, 11, 1, tzinfo=UTC)
QUESTIONS: Final = Path(__file__).with_name("questions.sql")
MANY: Final = (
    ("opened alone", "SELECT 0 AS n FROM (FROM readings LIMIT 0) RIGHT JOIN (SELECT 1) ON true"),
    ("another table", "SELECT count(*) AS n FROM runs"),
    ("one date", "SELECT avg(value) AS v FROM readings WHERE date = '2026-10-20'"),
    ("all of them", "SELECT count(*) AS n, avg(value) AS v FROM readings"),
)


def plain(lake: Path) -> duckdb.DuckDBPyConnection:
    """The same Parquet without a log; for a lake to which rows were only ever added."""
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    add_wind_macros(connection, "gateway, interval_s")
    for folder in (each for each in lake.iterdir() if (each / "_delta_log").is_dir()):
        parts = "date=*/*.parquet" if any(folder.glob("date=*")) else "*.parquet"
        files = f"'{folder}/{parts}', hive_partitioning = true"
        connection.execute(f"CREATE VIEW {folder.name} AS FROM read_parquet({files})")
    return connection


def ours(lake: Path) -> LazyLakes:
    """As `fieldgate query` opens it."""
    return LazyLakes({str(lake): (str(lake), None)})


def timed(
    opened: Callable[[Path], LazyLakes | duckdb.DuckDBPyConnection], lake: Path, question: str
) -> tuple[float, list[Any]]:
    """Seconds from opening to the last row, and the rows."""
    begun = time.monotonic()
    answer = opened(lake).sql(question)
    assert answer is not None
    rows = answer.fetchall()
    return time.monotonic() - begun, rows


def questions() -> dict[str, str]:
    """SQL by name."""
    parts = re.findall(r"^-- (.+)\n((?:[^-\n].*\n)+)", QUESTIONS.read_text(), re.MULTILINE)
    return dict(parts)


def equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether rows are the same but for the order in which figures are added."""
    return len(one) == len(other) and all(
        a == b or (isinstance(a, float) and abs(a - b) <= 1e-9 * abs(a))
        for rows in zip(one, other, strict=True)
        for a, b in zip(*rows, strict=True)
    )


def compacted(lake: Path) -> None:
    """Each table as the jobs leave it: joined, without the files that were, with a checkpoint of its log."""
    for folder in (each for each in lake.iterdir() if (each / "_delta_log").is_dir()):
        table = DeltaTable(str(folder))
        table.optimize.compact()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        DeltaTable(str(folder)).create_checkpoint()


def many_files(lake: Path, files: int) -> None:
    """``readings`` of 30 dates in so many files of a hundred rows; beside it a small ``runs``."""
    rows = np.arange(100)
    for at in range(files):
        folder = lake / "readings" / f"date=2026-10-{at % 30 + 1:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        columns = {"gateway": [f"mast-{at % 100:02d}"] * 100, "seq": rows + at, "value": rows * 0.5}
        pq.write_table(pa.table(columns), folder / f"part-{at:05d}.parquet")
    partitions = Schema([Field("date", PrimitiveType("date"))])
    convert_to_deltalake(str(lake / "readings"), partition_by=partitions, partition_strategy="hive")
    DeltaTable(str(lake / "readings")).create_checkpoint()
    (lake / "runs").mkdir()
    pq.write_table(pa.table({"gateway": ["mast-07"]}), lake / "runs" / "part-0.parquet")
    convert_to_deltalake(str(lake / "runs"))


def command_s(lake: Path, question: str) -> float:
    """Seconds of ``fieldgate query`` as a process."""
    begun = time.monotonic()
    program = str(Path(sys.executable).with_name("fieldgate"))
    command = [program, "query", "--lake", str(lake), "--json", question]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert answer
    return time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--masts", type=int, default=100)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--files", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        lake = Path(made, "lake")
        write_fleet(lake, given.masts, given.days, end=_END)
        compacted(lake)
        sys.stdout.write(f"| question | plain DuckDB | open_lake | ratio |\n|{'---|' * 4}\n")
        for name, question in questions().items():
            seconds: dict[str, list[float]] = {"plain": [], "ours": []}
            for _ in range(given.rounds):
                took, expected = timed(plain, lake, question)
                seconds["plain"].append(took)
                took, found = timed(ours, lake, question)
                seconds["ours"].append(took)
                assert expected, f"{name}: no answer"
                assert equal(expected, found), f"{name}: the answers differ"
            before, now = median(seconds["plain"]), median(seconds["ours"])
            sys.stdout.write(
                f"| {name} | {before * 1e3:.0f} ms | {now * 1e3:.0f} ms | {now / before:.2f} |\n"
            )
        many = Path(made, "many")
        many_files(many, given.files)
        for name, question in MANY:
            inside = median(timed(ours, many, question)[0] for _ in range(given.rounds))
            outside = median(command_s(many, question) for _ in range(given.rounds))
            sys.stdout.write(f"{given.files} files, {name}: {inside:.2f} s, as a command {outside:.2f} s\n")


if __name__ == "__main__":
    main()
