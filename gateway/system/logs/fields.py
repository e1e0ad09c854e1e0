"""The fields of a log line, by its template: ``event=sensor.silent sensor=%s error=%s``.

The template marks where a value begins and ends, so that a value may hold blanks and equals signs. Pure.
"""

from __future__ import annotations

import logging
import re
import secrets
from typing import Final

_KEY: Final = re.compile(r"(?:^| )([A-Za-z_][A-Za-z0-9_]*)=")
# Stands before each key while the arguments are filled in; no argument can have it.
_MARK: Final = f"\0{secrets.token_hex(8)}\0"


def fields_of(record: logging.LogRecord) -> dict[str, str]:
    """By name, in the line's order; empty where the line's template has no ``key=``."""
    if (found := record.__dict__.get("fields")) is not None:
        # A line from the queue: its text is complete, its template gone.
        return dict(found)
    if not isinstance(record.msg, str) or not isinstance(record.args, tuple | None):
        return {}
    template = _KEY.sub(rf"{_MARK}\1=", record.msg)
    _, *parts = (template % record.args if record.args else template).split(_MARK)
    return {key: value for key, _, value in (part.partition("=") for part in parts)}
