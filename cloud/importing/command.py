"""``fieldgate import``: files of other loggers into a lake. Needs the extra ``analyst``; no JVM."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

from cloud.command_line import OK, USAGE, fail
from cloud.importing.guess import guessed
from cloud.importing.importer import Importer, Outcome, day_of
from cloud.importing.lines import header_of
from cloud.importing.logger_file import Rows, read_rows
from cloud.importing.mapping import FOLDER, Mapping, described, load_mapping
from cloud.importing.tables import LakeTables
from cloud.importing.values import converted, figures_of, problem
from cloud.lake.query import add_lake, named_lakes
from cloud.lake.tables import LakeError


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.description = (
        "Other loggers' CSV and TOA5 into a lake, by a mapping: statistics, or single readings."
    )
    arguments.add_argument(
        "files", type=Path, nargs="*", metavar="FILE", help="CSV or TOA5, also .gz and .zip"
    )
    what = "which column is what, and what times mean (docs/examples/import.toml)"
    by = arguments.add_mutually_exclusive_group(required=True)
    by.add_argument("--mapping", type=Path, metavar="FILE", help=what)
    known = "; ".join(f"{name}: {what}" for name, what in described().items())
    by.add_argument("--preset", choices=described(), help=f"in its place a known logger's. {known}")
    by.add_argument("--guess", type=Path, metavar="FILE", help="print a mapping that its first lines suggest")
    for key, (option, meaning) in _OPTIONS.items():
        arguments.add_argument(option, dest=key, help=f"{meaning}, in place of the mapping's")
    add_lake(arguments)
    arguments.add_argument(
        "--check", action="store_true", help="only read: what each channel would get, and the bad lines"
    )
    arguments.add_argument(
        "--replace",
        action="store_true",
        help="what was imported before, of this file or its times, gives way",
    )
    arguments.add_argument("--json", action="store_true", help="for programs")


_OPTIONS: Final = {
    "gateway": ("--mast", "the gateway's id"),
    "interval": ("--interval", "from row to row, such as 10m"),
    "scan": ("--scan", "how often the logger sampled"),
    "stamps": ("--stamps", "start, within or end"),
    "utc_offset": ("--utc-offset", "what the logger's clock is ahead of UTC, such as --utc-offset=-07:00"),
}
"""Options by the keys of ``[file]`` that they take the place of."""


def run(options: argparse.Namespace) -> int:
    """Imports the files one by one. Raises CloudError, ConfigError."""
    if options.guess is not None:
        sys.stdout.write(guessed(options.guess))
        return OK
    if not options.files:
        return fail("FILE is missing", USAGE)
    outcomes: list[Outcome] = []
    try:
        _import(options, outcomes)
    finally:
        # After an error too: what was imported before it stays.
        if options.json and not options.check:
            json.dump([vars(outcome) for outcome in outcomes], sys.stdout)
            sys.stdout.write("\n")
    return OK


def _import(options: argparse.Namespace, outcomes: list[Outcome]) -> None:
    lakes = named_lakes(options)
    if len(lakes) != 1:
        raise LakeError(f"--lake is missing: one of {', '.join(lakes)}")
    ((uri, store),) = lakes.values()
    tables, now_us = LakeTables(uri, store), time.time_ns() // 1000
    given = {name: value for name in _OPTIONS if (value := vars(options)[name]) is not None}
    path = options.mapping or FOLDER / f"{options.preset}.toml"
    for file in options.files:
        mapping = load_mapping(path, partial(header_of, file), given)
        rows = read_rows(file, mapping, problem, now_us)
        if options.check:
            sys.stdout.write(_preview(mapping, rows))
        else:
            outcomes.append(Importer(mapping, tables, rows, now_us, replaces=options.replace).write())
            if not options.json:
                sys.stdout.write(_words(outcomes[-1], mapping.file.gateway))
                sys.stdout.flush()


def _words(outcome: Outcome, gateway: str) -> str:
    parts = [
        f"{outcome.file}: {outcome.lines} lines, {day_of(outcome.begin_us)} to {day_of(outcome.end_us)} UTC",
        f"{outcome.new} new rows in {outcome.into} of {gateway}",
    ]
    counted = {
        "intervals that have nothing": outcome.missing,
        "imported before": outcome.there,
        "measured, which stay": outcome.measured,
        "imported before with other values, which stay (--replace puts these in their place)": outcome.other,
        "in place of those imported before": outcome.replaced,
        "of this file by another mapping taken back": outcome.taken_back,
        "lines that are there twice": outcome.repeated_lines,
        "lines that end before their last columns": outcome.short_lines,
    }
    parts += [f"{number} {what}" for what, number in counted.items() if number]
    parts += ["another site is known from then on, which stays (--replace)"] * outcome.has_other_site
    if outcome.bad_lines:
        reasons = ", ".join(f"{reason} {number}" for reason, number in sorted(outcome.bad_lines.items()))
        number = outcome.bad_lines.total()
        if outcome.in_quarantine < number:
            parts.append(f"{number} bad lines ({reasons}), the first {outcome.in_quarantine} in quarantine")
        else:
            parts.append(f"{number} line{'s' * (number > 1)} in quarantine ({reasons})")
    lines = ["; ".join(parts), *_marks(outcome.often_impossible)]
    return "\n".join(lines) + "\n"


def _marks(impossible: dict[str, int]) -> list[str]:
    return [
        f"  {sentence} in {number} lines: if it stands for no value, add it to missing"
        for sentence, number in impossible.items()
    ]


def _preview(mapping: Mapping, rows: Rows) -> str:
    """What each channel would get, in the lake's unit, and the first bad lines."""
    first, last = min(rows.times_us), max(rows.times_us) + mapping.file.length_us
    lines = [f"{rows.name}: {len(rows.times_us)} rows from {day_of(first)} to {day_of(last)} UTC"]
    for number, channel in enumerate(mapping.channels):
        main = "sum" if channel.is_a == "accumulated" else "avg"
        found = (converted(channel, figures)[main] for figures in figures_of(rows, number))
        values = [value for value in found if not math.isnan(value)]
        figures = "nothing"
        if values:
            figures = f"{len(values)} values, {min(values):.4g} to {max(values):.4g}"
            if channel.is_a != "direction":
                figures += f", mean {sum(values) / len(values):.4g}"
        lines.append(f"  {channel.name} ({channel.of.unit}): {figures}")
    lines += [f"  line {bad.number}: {bad.reason}: {bad.detail}" for bad in rows.bad[:20]]
    if (more := rows.reasons.total() - 20) > 0:
        lines.append(f"  and {more} bad lines more")
    lines += _marks(rows.often_impossible())
    return "\n".join(lines) + "\n"
