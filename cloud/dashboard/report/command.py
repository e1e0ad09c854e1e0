"""``fieldgate report``: a day, week or month of a mast, or of the fleet, as HTML or PDF; extra ``report``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from cloud.command_line import OK
from cloud.dashboard.report.figures import Period
from cloud.dashboard.report.fleet import read_fleet, write_fleet_page
from cloud.dashboard.report.page import read_report, write_page
from cloud.errors import CloudError
from cloud.lake.query import add_lake, named_lakes
from cloud.lake.reader import LakeReader
from cloud.values import installed_version
from cloud.whole_files import whole_files

_PANGO: Final = (
    "a PDF needs Pango: apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 "
    "fonts-dejavu-core; -o FILE.html doesn't"
)

UNITS: Final = {"day": "2026-11-30", "week": "2026-W48 (ISO 8601)", "month": "2026-11"}


def require() -> None:
    """Raises CloudError with the command that installs what is missing."""
    try:
        import weasyprint  # noqa: F401
    except OSError as error:
        raise CloudError(f"{_PANGO} ({str(error).partition(chr(10))[0]})") from error


def pdf_of(html: str) -> bytes:
    """The document's bytes. Raises CloudError."""
    require()
    import weasyprint

    made: bytes = weasyprint.HTML(string=html, url_fetcher=_nothing_else).write_pdf()
    return made


def _nothing_else(url: str) -> dict[str, object]:
    """The page is whole: whatever it names elsewhere isn't fetched."""
    raise ValueError(f"{url} isn't part of the report")


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.description = (
        "A day, week or month in the site's time, as one HTML file or a PDF. It says what is missing."
    )
    arguments.add_argument("--mast", metavar="M", help="the gateway's name (default: a page of all masts)")
    period = arguments.add_mutually_exclusive_group(required=True)
    for unit, example in UNITS.items():
        period.add_argument(f"--{unit}", metavar=unit.upper(), help=f"such as {example}")
    arguments.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help=".html or .pdf (default MAST-PERIOD.html, fleet-PERIOD.html)",
    )
    add_lake(arguments)
    arguments.add_argument(
        "--interval", type=int, metavar="S", help="length of the intervals in seconds (default 600, else the "
        "shortest there is)"
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Writes the report and prints its path. Raises CloudError."""
    now_ms = time.time_ns() // 1_000_000
    [(unit, text)] = [(each, getattr(options, each)) for each in UNITS if getattr(options, each)]
    period = Period.read(text)
    if period.unit != unit:
        raise CloudError(f"--{unit} {text} is no {unit}")
    if options.mast is None and options.interval is not None:
        raise CloudError("--interval is of a mast's report: --mast names it")
    given: Path = options.output or Path(f"{options.mast or 'fleet'}-{period}.html")
    if given.suffix.lower() not in (".html", ".pdf"):
        raise CloudError(f"-o {given}: the file's name ends in .html or .pdf")
    if given.suffix.lower() == ".pdf":
        # At once, not after the sums.
        require()
    reader = LakeReader(named_lakes(options))
    reader.look()
    if options.mast is None:
        fleet = read_fleet(reader, period, now_ms=now_ms)
        page = write_fleet_page(fleet, now_ms=now_ms, version=installed_version())
    else:
        report = read_report(reader, options.mast, period, now_ms=now_ms, interval_s=options.interval)
        page = write_page(report, now_ms=now_ms, version=installed_version())
    content = pdf_of(page) if given.suffix.lower() == ".pdf" else page.encode()
    try:
        with whole_files([given], force=True) as part:
            part[given].write_bytes(content)
    except OSError as error:
        raise CloudError(f"-o {given}: {error.strerror}") from error
    sys.stdout.write(f"{given}\n")
    return OK
