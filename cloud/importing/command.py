"""``fieldgate import``: files of other loggers into a lake. Needs the extra ``analyst``; no JVM."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from cloud.errors import CloudError
from cloud.importing.importer import Importer, Outcome, day_of
from cloud.importing.logger_file import Rows
from cloud.importing.mapping import Mapping, load_mapping
from cloud.importing.tables import LakeTables
from cloud.importing.values import converted, figures_of
from cloud.lake.query import add_lake, named_lakes
from cloud.lake.tables import LakeError
from cloud.toml_problems import ConfigError
from cloud.wire.reading_records import GATEWAY_ID


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    arguments = argparse.ArgumentParser(
        prog="fieldgate import",
        description="Other loggers' CSV and TOA5 into a lake, by a mapping: statistics, or single readings.",
    )
    arguments.add_argument("files", type=Path, nargs="+", metavar="FILE", help="CSV or TOA5, also .gz")
    what = "which column is what, and what times mean (docs/examples/import.toml)"
    arguments.add_argument("--mapping", type=Path, required=True, metavar="FILE", help=what)
    add_lake(arguments)
    arguments.add_argument("--mast", type=_mast, metavar="ID", help="gateway, in place of the mapping's")
    arguments.add_argument(
        "--check", action="store_true", help="only read: what each channel would get, and the bad lines"
    )
    arguments.add_argument("--json", action="store_true", help="for programs")
    return arguments


def _mast(text: str) -> str:
    if GATEWAY_ID.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no gateway's id: 1 to 63 of a-z, 0-9 and -")
    return text


def run(argv: Sequence[str]) -> int:
    """Imports the files one by one; exit status 1 on an error, which goes to stderr."""
    options = parser().parse_args(argv)
    outcomes: list[Outcome] = []
    try:
        mapping = load_mapping(options.mapping)
        lakes = named_lakes(options)
        if len(lakes) != 1:
            raise LakeError(f"--lake is missing: one of {', '.join(lakes)}")
        ((uri, store),) = lakes.values()
        gateway = options.mast or mapping.file.gateway
        importer = Importer(mapping, LakeTables(uri, store), gateway, time.time_ns() // 1000)
        for file in options.files:
            rows = importer.read(file)
            if options.check:
                sys.stdout.write(_preview(mapping, rows))
            else:
                outcomes.append(importer.write(rows))
                if not options.json:
                    sys.stdout.write(_words(outcomes[-1], gateway))
                    sys.stdout.flush()
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except CloudError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    finally:
        if options.json and not options.check:
            json.dump([vars(outcome) for outcome in outcomes], sys.stdout)
            sys.stdout.write("\n")
    return 0


def _words(outcome: Outcome, gateway: str) -> str:
    parts = [
        f"{outcome.file}: {outcome.lines} lines, {day_of(outcome.begin_us)} to {day_of(outcome.end_us)} UTC",
        f"{outcome.new} new rows in {outcome.into} of {gateway}",
    ]
    parts += [f"{outcome.missing} intervals that have nothing"] * bool(outcome.missing)
    parts += [f"{outcome.there} imported before"] * bool(outcome.there)
    parts += [f"{outcome.measured} measured, which stay"] * bool(outcome.measured)
    parts += [f"{outcome.other} imported before with other values, which stay"] * bool(outcome.other)
    parts += [f"{outcome.repeated_lines} lines that are there twice"] * bool(outcome.repeated_lines)
    if outcome.bad_lines:
        reasons = ", ".join(f"{reason} {number}" for reason, number in sorted(outcome.bad_lines.items()))
        number = outcome.bad_lines.total()
        parts.append(f"{number} line{'s' * (number > 1)} in quarantine ({reasons})")
    return "; ".join(parts) + "\n"


def _preview(mapping: Mapping, rows: Rows) -> str:
    """What each channel would get, in the lake's unit, and the first bad lines."""
    length_us = round(mapping.file.interval * 1e6)
    first, last = min(rows.times_us), max(rows.times_us) + length_us
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
    if len(rows.bad) > 20:
        lines.append(f"  and {len(rows.bad) - 20} bad lines more")
    return "\n".join(lines) + "\n"
