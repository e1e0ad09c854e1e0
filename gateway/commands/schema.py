"""``fieldgate schema``: the config's JSON Schema for editors; with ``--keys`` a line for each key."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final, Literal, get_origin

from cloud.command_line import OK, USAGE, fail
from cloud.toml_models import Key, keys_of, parts_of, tables_of
from drivers.boards.registry import BOARDS
from drivers.interface import Quantity
from drivers.registry import driver_names, driver_type
from gateway.config.model import ARRAYS, SECTIONS, SensorCommon
from gateway.config.quality import QualityRules
from gateway.config.schema import as_text
from gateway.config.template import comment, default_text
from gateway.config.values import Accuracy

_TYPES: Final[Mapping[Any, str]] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    Path: "path",
    date: "date",
    tuple: "list",
    Literal: "choice",
    Quantity: "text",
    Accuracy: "number or text",
}
"""Words for the types of keys; any other is a table."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is printed."""
    meaning = "print each key's type, default and meaning; of tables named so, as kafka or modbus"
    parser.add_argument("--keys", nargs="*", metavar="TABLE", help=meaning)


def run(arguments: argparse.Namespace) -> int:
    """Print it, installed plug-ins included; 2 where no table has one of the names."""
    if arguments.keys is None:
        print(as_text(driver_names()).rstrip("\n"))
        return OK
    wanted = set(arguments.keys)
    texts = [keys_text(heading, kind) for name, heading, kind in tables() if not wanted or name in wanted]
    if unknown := wanted - {name for name, _, _ in tables()}:
        return fail(f"no table of the config is called {', '.join(sorted(unknown))}", USAGE)
    print("\n\n".join(texts))
    return OK


def tables() -> Iterator[tuple[str, str, type[Any]]]:
    """Each table's name, its heading as in a file, and its model; those within follow. Raises DriverError."""
    for name, kind in SECTIONS.items():
        yield from _with_inner(name, f"[{name}]", kind)
    for name, kind in BOARDS.items():
        yield from _with_inner(name, f'[board] kind = "{name}"', kind)
    yield from _with_inner("sensor", "[[sensor]]", SensorCommon)
    for name in driver_names():
        yield from _with_inner(name, f'[[sensor]] driver = "{name}"', driver_type(name).options)
    yield from _with_inner("quality", "[quality.QUANTITY]", QualityRules)
    for name, kind in ARRAYS.items():
        yield from _with_inner(name, f"[[{name}]]", kind)


def _with_inner(name: str, heading: str, kind: type[Any]) -> Iterator[tuple[str, str, type[Any]]]:
    yield name, heading, kind
    for key in keys_of(kind):
        for inner in dict.fromkeys(each for each in tables_of(key.hint) if each not in _TYPES):
            yield from _with_inner(name, f"{heading}, {key.name}", inner)


def keys_text(heading: str, kind: type[Any]) -> str:
    """A table's heading and its keys, a line each: name, type, default, meaning with unit and bounds."""
    rows = [(key.name, _type(key), _default(key), comment(key)) for key in keys_of(kind)]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    lines = ("  ".join((*(map(str.ljust, row, widths)), row[3])) for row in rows)
    return "\n  ".join((heading, *lines))


def _type(key: Key) -> str:
    kinds = [get_origin(part) or part for part in parts_of(key.hint)]
    return next((word for kind in kinds for known, word in _TYPES.items() if kind is known), "table")


def _default(key: Key) -> str:
    if key.required:
        return "required"
    return "none" if key.default in (None, (), {}) else default_text(key)
