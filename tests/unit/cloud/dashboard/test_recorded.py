"""Five days of a recorded mast, imported: each view's numbers beside pandas of the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cloud.dashboard.server import asked, mast_csv
from tests.support.fleet_lake import reader_of
from tests.support.recorded_views import CUPS, MAST, Comparison, import_recording, write_mast
from tests.support.servers import shared_data

BEGIN = "2016-07-27"


def test_five_days_views_of_an_imported_mast_are_what_pandas_has(tmp_path: Path) -> None:
    path = shared_data("mast_10min_3months.csv.gz")
    if path is None:
        pytest.skip("no shared data: mast_10min_3months.csv.gz")
    recording = import_recording(path, tmp_path, BEGIN)
    write_mast(tmp_path / "lake")
    reader = reader_of(tmp_path / "lake")

    def ask(chart: str, query: Mapping[str, str]) -> str:
        answer = mast_csv(reader, asked(MAST, query), chart)
        assert answer.status_code == 200, answer.body
        return bytes(answer.body).decode()

    compared = Comparison(recording, ask, reader)
    compared.all_of_it(BEGIN, {column: CUPS[column] for column in ("Spd80mN", "Spd40mS")})
    compared.fleet()
    print(compared)  # noqa: T201 - shown with -s, and where it fails
    assert sum(compared.values.values()) > 50_000
