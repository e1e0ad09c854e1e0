"""A report from the command as a user types it: on a screen and a phone in a real Chromium, and as a PDF."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.browser import Chromium
from tests.support.fleet_lake import write_fleet


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report") / "lake"
    write_fleet(root, 1, 3, end=datetime(2026, 11, 21, tzinfo=UTC))
    return root


def report(lake: Path, output: Path) -> Path:
    asked = ["--lake", str(lake), "--mast", "mast-01", "--month", "2026-11", "-o", str(output)]
    done = subprocess.run(
        (sys.executable, "-m", "gateway.cli", "report", *asked), capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"{output}\n")
    return output


def test_on_a_screen_and_on_a_phone(chromium: Chromium, lake: Path, tmp_path: Path) -> None:
    url = report(lake, tmp_path / "r.html").as_uri()
    for width, height in ((1280, 900), (390, 844)):
        page = chromium.page(width, height)
        page.open(url)
        page.see("footer", lambda text: "statistics" in text)
        assert page.text("h1") == "Ridge 1, November 2026"
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
        # Charts keep within their cards, whatever is in them.
        assert page.run("[...document.querySelectorAll('svg')].every(each => each.getBBox().width > 100)")
        assert page.complaints() == []
        assert [at for at in page.requested() if at != url] == []


def test_as_a_pdf(lake: Path, tmp_path: Path) -> None:
    content = report(lake, tmp_path / "r.pdf").read_bytes()
    assert content.startswith(b"%PDF-1.")
    assert content.rstrip().endswith(b"%%EOF")
    assert 40_000 < len(content) < 1_000_000
