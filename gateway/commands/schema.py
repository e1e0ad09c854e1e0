"""``fieldgate schema``: the config's JSON Schema for editors; ``--keys``: keys as ``init`` writes them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from cloud.command_line import OK, USAGE, fail
from cloud.toml_models import keys_of, tables_of
from drivers.boards.registry import BOARDS
from drivers.registry import driver_names, driver_type
from gateway.config.model import ARRAYS, SECTIONS, SensorCommon
from gateway.config.quality import QualityRules
from gateway.config.schema import as_text
from gateway.config.template import key_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is printed."""
    parser.add_argument("--keys", nargs="*", metavar="TABLE", help="all keys, or a table's: kafka, modbus …")


def run(arguments: argparse.Namespace) -> int:
    """Print it, installed plug-ins included; 2 where no table has one of the names."""
    if arguments.keys is None:
        print(as_text(driver_names()).rstrip("\n"))
        return OK
    chosen = [each for each in tables() if not arguments.keys or each[0] in arguments.keys]
    if unknown := set(arguments.keys) - {name for name, _, _ in chosen}:
        return fail(f"no table of the config is called {', '.join(sorted(unknown))}", USAGE)
    print("\n\n".join("\n".join((heading, *_lines(kind))) for _, heading, kind in chosen))
    return OK


def tables() -> list[tuple[str, str, type[Any]]]:
    """Each table's name, heading and model. Raises DriverError where a driver is broken."""
    return [
        *((name, f"[{name}]", kind) for name, kind in SECTIONS.items()),
        *((name, f'[board]\nkind = "{name}"', kind) for name, kind in BOARDS.items()),
        ("sensor", "[[sensor]]", SensorCommon),
        *((name, f'[[sensor]]\ndriver = "{name}"', driver_type(name).options) for name in driver_names()),
        ("quality", "[quality.QUANTITY]", QualityRules),
        *((name, f"[[{name}]]", kind) for name, kind in ARRAYS.items()),
    ]


def _lines(kind: type[Any]) -> Iterator[str]:
    """A model's keys; those of tables within it are indented."""
    for key in keys_of(kind):
        yield from key_lines([key], {})
        for inner in dict.fromkeys(tables_of(key.hint)):
            # What a file has as text, such as an accuracy, has keys without a meaning.
            if keys_of(inner)[0].meaning.text:
                yield from (f"    {line}" for line in _lines(inner))
