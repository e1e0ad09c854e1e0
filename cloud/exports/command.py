"""``fieldgate export``: a mast's data as CSV, TOA5, Parquet and IEA 43's data model. Needs ``analyst``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Final

import duckdb
from deltalake.exceptions import DeltaError

from cloud.command_line import OK
from cloud.errors import CloudError
from cloud.exports.files import (
    TIME,
    CsvFile,
    Export,
    ParquetFile,
    Toa5File,
    batches,
    columns_of,
    write_columns,
)
from cloud.exports.iea43 import describe
from cloud.lake.mast import (
    DAY_MS,
    FOREVER_MS,
    LONGEST_GAP,
    USUAL_S,
    Mast,
    check_known,
    read_mast,
    read_site,
    records_in_force,
    stretches,
    within,
)
from cloud.lake.query import add_lake, named_lakes
from cloud.lake.reader import LakeReader, Missing
from cloud.lake.tables import LakeError, Lakes, LazyLakes
from cloud.values import installed_version, interval_s
from cloud.whole_files import whole_files

FORMATS: Final[Mapping[str, str]] = {
    "csv": ".csv", "toa5": ".dat", "parquet": ".parquet", "iea43": ".json",
}  # fmt: skip
"""How a file's name ends."""
_WRITERS: Final[Mapping[str, type[CsvFile | Toa5File | ParquetFile]]] = {
    "csv": CsvFile, "toa5": Toa5File, "parquet": ParquetFile,
}  # fmt: skip


def _places(output: Path, formats: Sequence[str], mast: str) -> dict[str, Path]:
    """The path of each format: ``output`` itself, or MAST.csv … in it if it is a directory or for several."""
    if len(formats) == 1 and not output.is_dir():
        return {formats[0]: output}
    if output.exists() and not output.is_dir():
        raise CloudError(f"-o {output} is a file: several formats need a directory")
    return {each: output / f"{mast}{FORMATS[each]}" for each in formats}


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.description = (
        "A mast's statistics as files for other programs, a row for each interval, without what "
        "the cleaning log marks and without values of open intervals or of less than half of the samples."
    )
    arguments.add_argument("--mast", required=True, metavar="M", help="the gateway's name")
    arguments.add_argument(
        "--format", required=True, type=_formats, metavar="F,…", help=f"of {', '.join(FORMATS)}"
    )
    arguments.add_argument(
        "-o", "--output", required=True, type=Path, metavar="PATH", help="file, or directory for MAST.csv …"
    )
    arguments.add_argument(
        "--from", dest="begin", metavar="TIME", help="included; without a zone UTC, or the site's with "
        "--local-time (default: all)"
    )  # fmt: skip
    arguments.add_argument("--to", dest="end", metavar="TIME", help="not included")
    arguments.add_argument(
        "--interval",
        type=_interval,
        metavar="D",
        help="the intervals' length (default 10m, else the shortest)",
    )
    arguments.add_argument("--readings", action="store_true", help="single readings in place of statistics")
    arguments.add_argument("--local-time", action="store_true", help="times by the site's offset from UTC")
    arguments.add_argument("--all", action="store_true", help="with values that aren't valid")
    arguments.add_argument("--uncleaned", action="store_true", help="with what the cleaning log marks")
    arguments.add_argument("--organisation", metavar="NAME", help="for iea43 (default: the site's owner)")
    arguments.add_argument("--force", action="store_true", help="replace files that are there")
    add_lake(arguments)


def _formats(text: str) -> list[str]:
    given = list(dict.fromkeys(text.split(",")))
    if wrong := [each for each in given if each not in FORMATS]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is none of {', '.join(FORMATS)}")
    return given


def _interval(text: str) -> int:
    try:
        return interval_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(options: argparse.Namespace) -> int:
    """Writes the files and prints their paths. Raises CloudError."""
    reader = LakeReader(named_lakes(options))
    reader.look()
    paths, words = write_export(
        _asked(options, reader), reader, options.output, options.format, organisation=options.organisation,
        force=options.force,
    )  # fmt: skip
    for path in paths:
        sys.stdout.write(f"{path}\n")
    for each in words:
        sys.stderr.write(f"{each}\n")
    return OK


def write_export(
    export: Export, reader: LakeReader, output: Path, formats: Sequence[str],
    *, organisation: str | None = None, force: bool = False,
) -> tuple[list[Path], list[str]]:  # fmt: skip
    """Writes the files; their paths, and what to say about them. Raises CloudError."""
    places = _places(output, formats, export.mast.gateway)
    if export.interval_s is None and "iea43" in places:
        raise CloudError("--readings: iea43 describes the columns of statistics; leave one of them out")
    paths = list(places.values())
    units = places["csv"].with_suffix(".columns.csv") if "csv" in places else None
    paths += [units] if units else []
    words: list[str] = []
    try:
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        with whole_files(paths, force=force) as part:
            parts = {each: part[path] for each, path in places.items()}
            if (description := parts.pop("iea43", None)) is not None:
                words += _describe(description, export, reader, organisation)
            if units:
                write_columns(part[units], export)
            rows = _write_rows(parts, reader.lakes, export) if parts else 0
    except OSError as error:
        raise CloudError(f"-o {output}: {error.strerror or error}") from error
    if parts:
        first, last = (export.moment(1000 * each) for each in (export.begin_ms, export.end_ms))
        words.append(f"{rows} rows, {first} to {last} {export.offset}{_gaps_left_out(export)}")
    return paths, words


def _gaps_left_out(export: Export) -> str:
    """The long gaps that statistics have no rows in, in words; empty without."""
    if export.interval_s is None or len(export.parts) < 2:
        return ""
    first, last = (export.moment(1000 * each) for each in (export.parts[0][1], export.parts[1][0]))
    if len(export.parts) == 2:
        return f"; one gap of more than {LONGEST_GAP:,} intervals has no rows: from {first} to {last}"
    return (
        f"; {len(export.parts) - 1:,} gaps of more than {LONGEST_GAP:,} intervals have no rows, the first "
        f"from {first} to {last}"
    )


def _asked(options: argparse.Namespace, reader: LakeReader) -> Export:
    """What is meant by the options. Raises CloudError, with what there is instead."""
    offset_min = 0
    if options.local_time:
        missing: list[str] = []
        site = read_site(reader, options.mast, FOREVER_MS, missing)
        if site.get("utc_offset_min") is None:
            check_known(reader, options.mast)
            why = next(iter(missing), f"the lake has no utc_offset of {options.mast}'s site")
            raise CloudError(f"--local-time: {why}; leave it out for UTC, or write [site] utc_offset")
        offset_min = int(site["utc_offset_min"])
    span = span_ms(("--from", "--to"), (options.begin, options.end), offset_min)
    found = export_of(reader, options.mast, *span, length_s=options.interval, readings=options.readings)
    return replace(found, offset_min=offset_min, clean=not options.uncleaned, every=options.all)


def export_of(
    reader: LakeReader, gateway: str, begin_ms: int, end_ms: int,
    *, length_s: int | None = None, readings: bool = False,
) -> Export:  # fmt: skip
    """A mast's whole export of a time; of 10 minutes, else the shortest, by default. Raises CloudError."""
    mast = _mast(reader, gateway, begin_ms, end_ms)
    _check_units(reader, gateway, begin_ms, end_ms)
    length_s = length_s or (USUAL_S if USUAL_S in mast.intervals_s else mast.intervals_s[0])
    if length_s not in mast.intervals_s:
        there = ", ".join(f"{each}s" for each in mast.intervals_s)
        raise CloudError(f"no intervals of {length_s}s: the mast's statistics have intervals of {there}")
    first, last = reader.read(
        "statistics",
        "SELECT epoch_ms(min(interval_start)), epoch_ms(max(interval_start)) FROM statistics "  # noqa: S608
        f"WHERE gateway = ? AND interval_s = ? AND {within('interval_start', begin_ms, end_ms)}",
        [mast.gateway, length_s],
    ).rows[0]
    begin_ms, end_ms = max(begin_ms, first), min(end_ms, last + 1000 * length_s)
    shown_s = None if readings else length_s
    parts = _parts(reader, mast, shown_s, begin_ms, end_ms)
    return Export(mast, columns_of(mast, readings=readings), shown_s, begin_ms, end_ms, parts)


def _parts(
    reader: LakeReader, mast: Mast, length_s: int | None, begin_ms: int, end_ms: int
) -> tuple[tuple[int, int], ...]:
    """The time without long gaps; of readings the days that have some."""
    table, start, time = "statistics", "epoch_ms(interval_start)", "interval_start"
    where = f"interval_s = {length_s}"
    if length_s is None:
        table, start, time, where = "readings", "epoch_ms(date::TIMESTAMP)", "time", "true"
    there = f"gateway = ? AND {where} AND {within(time, begin_ms, end_ms)}"
    return stretches(
        lambda sql: reader.read(table, sql, [mast.gateway]),
        f"SELECT {start} AS start FROM {table} WHERE {there}", begin_ms, end_ms,  # noqa: S608 - texts of ours
        1000 * length_s if length_s else DAY_MS, LONGEST_GAP if length_s else 0,
    )  # fmt: skip


def _mast(reader: LakeReader, gateway: str, begin_ms: int, end_ms: int) -> Mast:
    mast = read_mast(reader, gateway, begin_ms, end_ms)
    if not mast.channels:
        check_known(reader, gateway)
        whole = read_mast(reader, gateway)
        if not whole.channels:
            raise CloudError(
                f"the lake has no statistics of {gateway}: `fieldgate jobs run statistics` makes them"
            )
        first, last = (f"{datetime.fromtimestamp(each / 1000, UTC):%Y-%m-%d %H:%M}"
                       for each in (whole.begin_ms, whole.end_ms))  # fmt: skip
        raise CloudError(
            f"no statistics of {gateway} in that time: there are some from {first} to {last} UTC"
        )
    return mast


def _check_units(reader: LakeReader, gateway: str, begin_ms: int, end_ms: int) -> None:
    """Raises CloudError where a channel has several units, which a column can't have."""
    rows = reader.read(
        "statistics",
        "WITH found AS (SELECT channel, unit, epoch_ms(min(interval_start)) AS since FROM statistics "  # noqa: S608
        f"WHERE gateway = ? AND {within('interval_start', begin_ms, end_ms)} AND unit IS NOT NULL "
        "GROUP BY ALL) SELECT * FROM found QUALIFY count(*) OVER (PARTITION BY channel) > 1 "
        "ORDER BY channel, since",
        [gateway],
    ).rows
    units = ", ".join(
        f"in {unit} from {datetime.fromtimestamp(since / 1000, UTC):%Y-%m-%d %H:%M}"
        for channel, unit, since in rows if channel == rows[0][0]
    )  # fmt: skip
    if units:
        raise CloudError(f"{rows[0][0]} is {units} UTC: choose times in which it has one")


def span_ms(
    names: tuple[str, str], times: tuple[str | date | None, str | date | None], offset_min: int = 0
) -> tuple[int, int]:
    """Milliseconds since 1970 from and to, of times by that offset from UTC. Raises CloudError by name."""
    (first, begin), (last, end) = zip(names, times, strict=True)
    span = _moment_ms(first, begin, offset_min, 0), _moment_ms(last, end, offset_min, FOREVER_MS)
    if span[0] >= span[1]:
        raise CloudError(f"{last} {end} isn't after {first} {begin}: it isn't included, write the day after")
    return span


def _moment_ms(option: str, text: str | date | None, offset_min: int, default: int) -> int:
    if text is None:
        return default
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        raise CloudError(f"{option} {str(text)[:40]!r} is no time such as 2026-05-28T12:00") from None
    zone = timezone(timedelta(minutes=offset_min))
    return round((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp() * 1000)


def _describe(path: Path, export: Export, reader: LakeReader, organisation: str | None) -> list[str]:
    """Writes iea43's file; what it lacks."""
    try:
        records = records_in_force(reader, export.mast.gateway, 0, FOREVER_MS)
    except Missing as error:
        raise CloudError(f"iea43: {error}") from error
    author = f"fieldgate {installed_version()}"
    document, lacking = describe(export, records, datetime.now(UTC), author, organisation)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return [f"iea43: {each}" for each in lacking]


def _write_rows(parts: Mapping[str, Path], lakes: Lakes, export: Export) -> int:
    """All rows into each file, which are read once; how many."""
    opened: list[CsvFile | Toa5File | ParquetFile] = []
    rows = 0
    span_ms = export.end_ms - export.begin_ms
    try:
        for each, path in parts.items():
            opened.append(_WRITERS[each](path, export))
        lake = LazyLakes(lakes)
        with lake.connection:
            for batch in batches(lake, export):
                for file in opened:
                    file.write(batch)
                rows += batch.num_rows
                if sys.stderr.isatty() and batch.num_rows:
                    done_ms = batch.column(TIME)[-1].as_py() // 1000 - export.begin_ms
                    sys.stderr.write(f"\r{min(100, 100 * done_ms // span_ms)} %, {rows} rows ")
    except (duckdb.Error, DeltaError) as error:
        raise LakeError(f"the lake can't be read: {str(error).partition(chr(10))[0]}") from error
    finally:
        for file in opened:
            file.close()
    if sys.stderr.isatty():
        sys.stderr.write("\r")
    return rows
