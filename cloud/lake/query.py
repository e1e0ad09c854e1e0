"""``fieldgate query``: SQL over the lake's tables, as a table, JSON, CSV or Parquet. Needs ``analyst``."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import duckdb
from deltalake.exceptions import DeltaError

from cloud.command_line import OK, fail
from cloud.config import CloudConfig, StoreConfig, load
from cloud.errors import CloudError
from cloud.lake.answers import rows_of, write_all, write_csv, write_json, write_table
from cloud.lake.tables import LakeError, Lakes, LazyLakes, described, gone, tables_of
from cloud.values import CLOUD_CONFIG


def one_line(error: Exception) -> str:
    """DuckDB's error, without its picture of the place in the statement."""
    lines = [line.strip() for line in str(error).splitlines()]
    return gone(error) or " ".join(line for line in lines if line and not line.startswith(("LINE ", "^")))


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.description = "SQL (DuckDB's) over the tables of a lake; times are in UTC."
    arguments.add_argument(
        "sql",
        metavar="SQL",
        nargs="?",
        help='e.g. "SELECT * FROM statistics ORDER BY interval_start", .tables or ".schema TABLE"; '
        "without one a prompt, or what is piped in",
    )
    lake = "root of the tables (default ./lake), or a name of [lakes]; repeated: views over several"
    arguments.add_argument("--lake", action="append", default=[], metavar="[NAME=]URI", help=lake)
    arguments.add_argument("--cloud", type=Path, metavar="FILE", help="the cloud's config: where lakes are")
    as_of = "tables as they were then (RFC 3339; UTC without a zone), or one table's version"
    arguments.add_argument("--as-of", type=_moment, metavar="TIME|VERSION", help=as_of)
    form = arguments.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="a JSON list of objects")
    form.add_argument("--csv", action="store_true", help="CSV with a header")
    form.add_argument("--parquet", type=Path, metavar="FILE", help="into a Parquet file")
    form.add_argument("--all", action="store_true", help="every column, however wide the terminal is")


def lakes_of(given: Sequence[str], config: CloudConfig) -> Lakes:
    """The lakes that are ``given``, else that of ``[lake]``, else all of ``[lakes]``. Raises LakeError."""
    if not given and config.lake.path is None and config.lakes:
        given = tuple(config.lakes)
    found: dict[str, tuple[str, StoreConfig]] = {}
    for text in given or (config.lake.path or "./lake",):
        named = re.fullmatch(r"([\w-]+)=(.+)", text)
        name, uri = named.groups() if named else (text, text)
        if name in found:
            raise LakeError(f"two lakes are {name}: give each a name of its own, --lake NAME=URI")
        known = config.lakes.get(text)
        found[name] = (uri, config.lake.storage) if known is None else (known.path, known.storage)
    return found


def config_for(lakes: Sequence[str], path: Path | None) -> CloudConfig:
    """The config of that file, else this machine's if no lake is named by its place. Raises CloudError."""
    # Whoever names a lake by its place, as the demo does, doesn't mean this machine's.
    if path is None and not any("/" in lake for lake in lakes) and CLOUD_CONFIG.exists():
        path = CLOUD_CONFIG
    return CloudConfig() if path is None else load(path)


def add_lake(parser: argparse.ArgumentParser) -> None:
    """Options of a command on one lake, or on those of a config, for ``named_lakes``."""
    where = "root of the tables (default ./lake), or a name of [lakes]"
    parser.add_argument("--lake", metavar="URI", help=where)
    parser.add_argument("--cloud", type=Path, metavar="FILE", help="the cloud's config: where the lake is")


def named_lakes(options: argparse.Namespace) -> Lakes:
    """The lakes that a command's options name. Raises CloudError."""
    named = [options.lake] if options.lake else []
    return lakes_of(named, config_for(named, options.cloud))


def _moment(text: str) -> datetime | int:
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a time, such as 2026-05-28T12:00:00Z, nor a version, such as 12"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def run(options: argparse.Namespace) -> int:
    """Runs queries and prints their answers. Raises CloudError."""
    config = config_for(options.lake, options.cloud)
    opened = LazyLakes(lakes_of(options.lake, config), options.as_of)
    with opened.connection:
        if options.sql is None and sys.stdin.isatty():
            return _prompt(opened, options)
        _answer(opened, options.sql or sys.stdin.read(), options)
    return OK


def _answer(lakes: LazyLakes, text: str, options: argparse.Namespace) -> None:
    """Prints the answer. Raises CloudError."""
    forms = ((options.json, write_json), (options.csv, write_csv), (options.all, write_all))
    write = next((form for chosen, form in forms if chosen), write_table)
    command, *rest = text.strip().rstrip(";").split() or [""]
    try:
        if command == ".tables":
            write(("table", "filled_by"), tables_of(lakes), sys.stdout)
        elif command == ".schema" and len(rest) == 1:
            write(("column", "type", "unit", "meaning"), described(lakes, rest[0]), sys.stdout)
        elif command.startswith("."):
            raise LakeError(f"no command {' '.join([command, *rest])}: .tables, .schema TABLE, or SQL")
        else:
            answer = lakes.sql(text)
            if answer is not None and options.parquet is not None:
                answer.write_parquet(str(options.parquet))
            elif answer is not None:
                write(answer.columns, rows_of(answer), sys.stdout)
    except (DeltaError, duckdb.Error) as error:
        raise LakeError(one_line(error)) from error


def _prompt(lakes: LazyLakes, options: argparse.Namespace) -> int:
    """Asks for statements until the end of the input; arrow keys find those of earlier sessions."""
    # Loaded here: a query of a program has no line to edit.
    import readline

    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
    history = state / "fieldgate/query_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(1000)
    print("SQL ends with a semicolon. .tables, .schema TABLE; Ctrl-D ends.")
    text = ""
    while True:
        try:
            line = input("     ...> " if text else "fieldgate> ")
        except EOFError:
            print()
            break
        except KeyboardInterrupt:
            print()
            text = ""
            continue
        text = f"{text}\n{line}".strip()
        if text in (".quit", ".exit"):
            break
        if text.startswith(".") or text.endswith(";"):
            with contextlib.suppress(KeyboardInterrupt):
                try:
                    _answer(lakes, text, options)
                except CloudError as error:
                    fail(error)
            text = ""
    with contextlib.suppress(OSError):
        history.parent.mkdir(parents=True, exist_ok=True)
        readline.write_history_file(history)
    return OK
