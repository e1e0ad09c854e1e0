"""The examples' notebooks run on a month of a made-up mast, and their figures are those of SQL.

In a wheel's own environment, with brightwind beside them: ``tests/integration/test_wheel.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import pytest

from cloud.exports import fieldgate
from cloud.lake.cleaning import Mark, add
from tests.support.fleet_lake import write_fleet
from tests.support.notebooks import code_of

END: Final = datetime(2026, 5, 30, tzinfo=UTC)
CUP, TWIN, VANE, SUN = (
    "cup-50m-a.wind_speed", "cup-50m-b.wind_speed", "vane-48m.wind_direction", "pyranometer.irradiance",
)  # fmt: skip


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a lake, in which an hour of a twin is marked."""
    root = tmp_path_factory.mktemp("desk")
    write_fleet(root / "lake", 1, 30, end=END)
    begin = END - timedelta(days=2)
    mark = Mark("mast-01", "cup-50m-b", begin, begin + timedelta(hours=1), "iced", "A. Analyst", END)
    add({"": (str(root / "lake"), None)}, [mark])
    return root


@pytest.fixture
def run(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Runs a notebook there; its variables."""
    mpl.use("Agg")
    from matplotlib import pyplot

    monkeypatch.chdir(desk)
    monkeypatch.setitem(sys.modules, "fieldgate", fieldgate)

    def executed(name: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        exec(compile(code_of(name), name, "exec"), found)  # noqa: S102 - the page's own lines
        return found

    yield executed
    pyplot.close("all")


def test_a_wind_engineers_figures_are_those_of_sql(run: Any, desk: Path) -> None:
    found = run("wind.ipynb")
    lake = fieldgate.open(desk / "lake")
    assert (found["cup"], found["vane"]) == (CUP, VANE)
    assert found["recovery"][CUP] == pytest.approx(
        lake.sql(f"SELECT avg(recovery) AS r FROM statistics WHERE channel = '{CUP}'")  # noqa: S608
        .to_pandas()
        .r[0]
    )
    assert found["left_out"].to_dict() == dict.fromkeys(found["means"], 0) | {f"{TWIN}_avg": 6}
    rose = lake.sql(f"FROM wind_rose('{CUP}', '{VANE}')").to_pandas()
    assert found["rose"].share.tolist() == pytest.approx(rose.share.tolist())
    mast = lake.mast("mast-01").to_pandas()
    # Three heights; the made-up mast's own column is of the lowest and the highest alone.
    assert found["shear"].mean() == pytest.approx(mast.shear_alpha[found["shear"].index].mean(), abs=0.02)
    a, k = found["weibull"]
    assert fieldgate.weibull(found["speed"].mean(), (found["speed"] ** 3).mean()) == (a, k)
    assert 1 < k < 4
    intensity = mast[f"{CUP}_turbulence_intensity"].dropna()
    assert found["intensity"].dropna().tolist() == pytest.approx(intensity.tolist())


def test_a_solar_engineers_insolation_is_that_of_sql(run: Any, desk: Path) -> None:
    pytest.importorskip("pvlib")
    found = run("solar.ipynb")
    (total,) = fieldgate.open(desk / "lake").sql(
        f"SELECT sum(avg) / 6000 AS kwh FROM statistics WHERE channel = '{SUN}' AND avg > 0"  # noqa: S608
    ).to_arrow()["kwh"].to_pylist()  # fmt: skip
    assert found["insolation"].measured.sum() == pytest.approx(total, rel=0.02)
    assert 0.5 < found["index"].median() < 1.2
    assert -3 < found["checks"]["night offset, W/m2"] < 3
