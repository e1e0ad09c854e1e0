"""Mappings of known loggers' files, as data beside this module, and column names that stand for several.

A column may have ``*`` for any text, and of a channel ``{height}`` for a number and ``{word}`` for any other
word: there is a channel for each such column of the file. A column that is named exactly so comes first.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from cloud.toml_lines import KeyPath

FOLDER: Final = Path(__file__).with_name("preset_files")
_PLACE: Final = re.compile(r"\\\*|\\\{(\w+)\\\}")
_HEIGHT: Final = r"\d+(?:\.\d+)?"
_WORD: Final = r"[^_,()\[\] ]*"


def described() -> dict[str, str]:
    """What each preset is for, by its name."""
    return {
        path.stem: path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        for path in sorted(FOLDER.glob("*.toml"))
    }


def preset(name: str) -> dict[str, Any]:
    """A preset's mapping, as TOML has it. Raises OSError where there is none of that name."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def column_of(wanted: str, names: Collection[str]) -> str:
    """The column that is meant; ``wanted`` itself where none or several may be."""
    found = [] if wanted in names else [name for name in names if _pattern(wanted).fullmatch(name)]
    return found[0] if len(found) == 1 else wanted


def fitted(
    tables: Iterable[tuple[KeyPath, dict[str, Any]]], figures: Collection[str], names: Collection[str]
) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """The ``[[channel]]`` tables of a preset that a file with these columns has, by its own names."""
    for at, table in tables:
        main = str(table.get("avg", table.get("sum")))
        matches = [found for name in names if (found := _pattern(main).fullmatch(name))]
        for found in [None] if main in names else matches:
            words = {} if found is None else found.groupdict()
            made = dict(table)
            for key in ("sensor", *figures):
                for word, text in words.items():
                    given = re.sub(r"[^\w-]", "-", text, flags=re.ASCII) if key == "sensor" else text
                    made |= {key: made[key].replace(f"{{{word}}}", given)} if key in made else {}
            if "height" in words:
                made["height_m"] = float(words["height"])
            columns = {key: column_of(made[key], names) for key in figures if key in made}
            there = {key: name for key, name in columns.items() if name in names}
            if "*" not in main or len(matches) == 1 or words:
                yield at, {key: value for key, value in made.items() if key not in figures} | there


def _pattern(column: str) -> re.Pattern[str]:
    def place(found: re.Match[str]) -> str:
        word = found[1]
        return f"(?P<{word}>{_HEIGHT if word == 'height' else _WORD})" if word else ".*"

    return re.compile(_PLACE.sub(place, re.escape(column)))
