"""The fields of a log line, by its template: ``event=sensor.silent sensor=%s error=%s``.

The template says where a value begins and ends, so that a value may hold blanks and equals signs. Pure.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

_KEY: Final = re.compile(r"(?:^| )([A-Za-z_][A-Za-z0-9_]*)=")
_CONVERSION: Final = re.compile(r"%[#0\- +]*\d*(?:\.\d+)?([a-zA-Z%])")


def fields_of(record: logging.LogRecord) -> dict[str, str]:
    """By name, in the line's order; empty where the line's template has no ``key=``."""
    if (found := record.__dict__.get("fields")) is not None:
        # A line from the queue: its text is complete, its template gone.
        return dict(found)
    template, arguments = record.msg, record.args
    if not isinstance(template, str) or not isinstance(arguments, tuple | None):
        return {}
    return _filled(template, arguments or ())


def _filled(template: str, arguments: tuple[Any, ...]) -> dict[str, str]:
    keys = list(_KEY.finditer(template))
    values: dict[str, str] = {}
    used = _conversions(template[: keys[0].start()]) if keys else 0
    for place, key in enumerate(keys):
        end = keys[place + 1].start() if place + 1 < len(keys) else len(template)
        value = template[key.end() : end]
        count = _conversions(value)
        values[key[1]] = value % arguments[used : used + count] if arguments else value
        used += count
    return values


def _conversions(template: str) -> int:
    return sum(found[1] != "%" for found in _CONVERSION.finditer(template))
