"""A mapping as a file's first lines suggest it, for people to correct: ``???`` marks what it doesn't say."""

from __future__ import annotations

import csv
import itertools
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from cloud.importing import times
from cloud.importing.lines import CAMPBELL, FileError, opened, split
from cloud.importing.mapping import FIGURES_OF, SHORT_S, File, into, known
from cloud.wire.quantities import QUANTITIES

_KNOWN: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_FORMS: Final = [*map(" ".join, itertools.product(_KNOWN["dates"], _KNOWN["clocks"])), *_KNOWN["stamps"]]
_FIGURES: Final = {word: figure for figure, words in _KNOWN["figures"].items() for word in words}
_PLAIN: Final = {"gateway": "x", "format": "csv", "interval": "1s", "stamps": "start", "utc_offset": "+00:00"}
_MOST_LINES: Final = 3000
_SAMPLE: Final = 200
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_ZONE: Final = re.compile(r"(?:UTC|GMT) ?([+-])(\d{1,2})(?::?(\d\d))?")
_HEIGHT: Final = re.compile(r"(\d+(?:\.\d+)?) ?m(?![a-z/])")
_UNIT: Final = re.compile(r"\[([^]]*)\]|\(([^)]*)\)|, ([^,(]+?) *(?=\(|$)|_([^_\s]*)$")


class _Table(NamedTuple):
    """Rows with a time: by which delimiter, the first one's line, the time's cells and possible forms."""

    delimiter: str
    first: int
    places: list[int]
    forms: list[str | None]
    rows: list[list[str]]
    moments: list[datetime]


def guessed(path: Path) -> str:
    """The mapping's text. Raises FileError where there is no table with times."""
    lines, encoding = _lines(path)
    tables = [table for delimiter in "\t;, " if (table := _table(lines, delimiter)) is not None]
    if not tables:
        raise FileError(f"{path}: has no lines with a time in a known form; --preset may know the file")
    table = max(tables, key=lambda each: len(each.rows[0]))
    kind = lines[0].split(",")[0].strip('"')
    names, units, is_named = _header(lines, table, kind)
    by_clock = [each.replace(tzinfo=UTC) for each in table.moments]
    steps = Counter(b - a for a, b in itertools.pairwise(by_clock) if b > a) or Counter([timedelta()])
    step_s = steps.most_common(1)[0][0].total_seconds()
    every = f"{step_s:g}s" if step_s % 60 else f"{step_s / 60 or 10:g}m"
    cells = {cell for row in table.rows for cell in row}
    has_comma = table.delimiter != "," and any(re.fullmatch(r"-?\d+,\d+", cell) for cell in cells)
    zone = _ZONE.search(" ".join(lines[: table.first]))
    own = table.moments[0].strftime("%z")
    offset = f"{own[:3]}:{own[3:5]}" if own else zone and f"{zone[1]}{zone[2]:0>2}:{zone[3] or '00'}"
    is_end = "end of" in names[table.places[0]].lower()
    is_off = step_s > SHORT_S and any(each.timestamp() % step_s for each in by_clock)
    stamps = "end" if is_end or kind in CAMPBELL else "within" if is_off else "start"
    form, *others = table.forms
    is_open = others and "%p" not in str(form)
    keys: list[tuple[str, Any, str | None]] = [
        ("gateway", re.sub("[^a-z0-9-]+", "-", path.stem.lower()).strip("-")[:63] or "mast", ""),
        ("format", "toa5" if kind in CAMPBELL else "csv", None),
        ("delimiter", table.delimiter if table.delimiter != "," else None, None),
        ("decimal", "," if has_comma else None, None),
        ("encoding", encoding if encoding != "utf-8" else None, None),
        ("skip_lines", None if is_named else table.first, None),
        ("names", None if is_named else names, "" if not is_named else None),
        ("time", [names[at] for at in table.places], None),
        ("# time_format" if is_open else "time_format", form, f" or {_quoted(others)}" if others else None),
        ("interval" if step_s else "# interval", every, None if step_s else " from row to row"),
        ("scan", "1s" if step_s > SHORT_S else None, " how often the logger sampled"),
        ("stamps", stamps, None if is_end else " start, within or end"),
        ("utc_offset", offset or "+00:00", None if offset else ""),
        ("missing", ["", *(mark for mark in _KNOWN["missing"] if mark in cells)], None),
    ]  # fmt: skip
    made = [f"# As {path.name} suggests it. Look at each line, and at those with ??? first.", "[file]"]
    for key, value, doubt in keys:
        if value is not None:
            made.append(f"{key} = {_quoted(value)}" + (f"  # ???{doubt}" if doubt is not None else ""))
    return "\n".join([*made, *_channels(table, names, units, is_short=0 < step_s <= SHORT_S)]) + "\n"


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(path: Path) -> tuple[list[str], str]:
    with opened(path, File.model_validate(_PLAIN)) as (lines, _):
        found = [line for _, line, _ in itertools.islice(iter(lines.next, None), _MOST_LINES)]
    with suppress(UnicodeDecodeError):
        return [line.decode().removeprefix("\ufeff") for line in found], "utf-8"
    return [line.decode("latin-1") for line in found], "latin-1"


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in split(line, delimiter)]
    except csv.Error:
        return []


def _table(lines: list[str], delimiter: str) -> _Table | None:
    rows = [(number, _cells(line, delimiter)) for number, line in enumerate(lines)]
    width = next((len(row) for _, row in reversed(rows) if len(row) > 1), 0)
    wide = [each for each in rows if len(each[1]) == width]
    sample = wide[:_SAMPLE] + wide[_SAMPLE:][-_SAMPLE:]
    for at, joined in itertools.product(range(min(width - 1, 6)), (1, 2)):
        places = list(range(at, at + joined))
        likely = [form for form in (None, *_FORMS) if _with_times(wide[-1:], places, form)]
        found = {form: _with_times(sample, places, form) for form in likely}
        most = max(map(len, found.values()), default=0)
        if most and most > len(sample) - 6:
            # Of two forms that fit all rows, the one by which they lie closer together.
            spans = {form: abs(each[-1][2].replace(tzinfo=None) - each[0][2].replace(tzinfo=None))
                     for form, each in found.items() if len(each) == most}  # fmt: skip
            forms = [form for form, span in spans.items() if span == min(spans.values())]
            forms.sort(key=lambda form: "%p" in str(form) and not str(form).startswith("%m"))
            numbers, rows_of, moments = map(list, zip(*found[forms[0]], strict=True))
            return _Table(delimiter, numbers[0], places, forms, rows_of, moments)
    return None


def _with_times(
    rows: list[tuple[int, list[str]]], places: list[int], form: str | None
) -> list[tuple[int, list[str], datetime]]:
    parse, found = times.reader(form), []
    for number, row in rows:
        text = " ".join(row[at] for at in places if at < len(row))
        with suppress(ValueError):
            if form is not None or ":" in text:
                found.append((number, row, parse(text)))
    return found


def _header(lines: list[str], table: _Table, kind: str) -> tuple[list[str], list[str], bool]:
    """Names and units of the columns, and whether the file's own names will do."""
    width = len(table.rows[0])
    before = (_cells(line, table.delimiter) for line in reversed(lines[: table.first]))
    above = [*itertools.takewhile(lambda row: width - 1 <= len(row) <= width, before)][::-1]
    if kind in CAMPBELL:
        above = [_cells(line, ",") for line in lines[1 : 3 if kind == "TOA5" else 2]]
    names, *units = above or [[""] * width]
    unique = [name if name and names.count(name) == 1 else f"{name or 'column'} {at + 1}"
              for at, name in enumerate(names)]  # fmt: skip
    return unique, units[0] if units else [], unique == names


def _channels(table: _Table, names: list[str], units: list[str], *, is_short: bool) -> Iterator[str]:
    """The lines of each channel, and of the columns that are none."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    own: dict[tuple[str, str], str] = {}
    left = []
    allowed = {kind: figures[: 1 if is_short else None] for kind, figures in FIGURES_OF.items()}
    for at, name in enumerate(names):
        if at in table.places:
            continue
        unit, quantity, figure, sensor = _meaning(name, units[at] if at < len(units) else "")
        kind = QUANTITIES[quantity].kind if quantity else None
        figure = "sum" if kind == "accumulated" and figure == "avg" else figure
        channel = found.setdefault((sensor, quantity), {})
        if figure in channel or kind is None or figure not in allowed[kind]:
            left.append(name)
            continue
        own[sensor, quantity] = own.get((sensor, quantity)) or unit or _fitting(quantity, table, at)
        channel[figure] = name
        if height := _HEIGHT.search(name):
            channel["height_m"] = float(height[1])
    for (sensor, quantity), channel in found.items():
        if channel.keys() & {"avg", "sum"}:
            yield f"\n[[channel]]\nsensor = {_quoted(sensor)}\nquantity = {_quoted(quantity)}"
            yield f"unit = {own[sensor, quantity]}"
            yield from (f"{key} = {_quoted(value)}" for key, value in channel.items())
        else:
            left += [value for value in channel.values() if isinstance(value, str)]
    yield f"\n# Not guessed: {', '.join(map(_quoted, left)) or 'nothing'}"


def _fitting(quantity: str, table: _Table, at: int) -> str:
    """The first unit by which a column's values can be."""
    of = QUANTITIES[quantity]
    cells = (row[at].replace(",", ".") for row in table.rows if at < len(row))
    values = [float(cell) for cell in cells if re.fullmatch(r"-?\d+(?:\.\d+)?", cell)]
    for unit in known(of.unit):
        slope, offset = into(of.unit, unit) or (1.0, 0.0)
        if all(of.lower <= slope * value + offset <= of.upper for value in values):
            return f"{_quoted(unit)}  # ???"
    return f"{_quoted(of.unit)}  # ???"


def _meaning(name: str, unit_of_row: str) -> tuple[str, str, str, str]:
    """A column's unit, quantity, figure and sensor; what isn't clear is empty."""
    texts = [unit_of_row, *(next(filter(None, each), "") for each in _UNIT.findall(name))]
    unit = next((_KNOWN["units"][text.lower()] for text in texts if text.lower() in _KNOWN["units"]), "")
    if unit == "" and "[" in name:
        return "", "", "", name
    plain = _UNIT.sub(" ", name) if unit and not unit_of_row else name
    words = [word.lower() for word in _WORD.findall(plain)]
    figure = next((_FIGURES[word] for word in reversed(words) if word in _FIGURES), "avg")
    fitting = [
        quantity
        for quantity, its in _KNOWN["quantities"].items()
        if set(its) & set(words) and (not unit or into(QUANTITIES[quantity].unit, unit) is not None)
    ]
    quantity = next(iter(fitting), _KNOWN["by_unit"].get(unit, ""))
    base = _WORD.sub(lambda found: "" if found[0].lower() in _FIGURES else found[0], plain)
    unit = _quoted(unit) if unit else ""
    return unit, quantity, figure, re.sub(r"[^A-Za-z0-9]+", "-", base).strip("-")[:64] or "sensor"
