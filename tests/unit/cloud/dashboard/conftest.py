"""What tests of the pages share."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.fleet_lake import write_fleet


@pytest.fixture(scope="package")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of a day of two masts, to be read alone."""
    root = tmp_path_factory.mktemp("whole") / "lake"
    write_fleet(root, 2, 1, end=datetime(2026, 11, 21, tzinfo=UTC))
    return root


@pytest.fixture
def lake(whole: Path, tmp_path: Path) -> Path:
    """A copy of it, to spoil."""
    return Path(shutil.copytree(whole, tmp_path / "lake"))
