"""How a logger writes numbers: its decimal sign, marks between thousands, and what stands for no value."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import Final

from cloud.importing.mapping import File
from cloud.wire.bounds import is_within

MISSING: Final = math.nan
"""A figure that the file doesn't have."""
_GROUPS: Final = ",.' \u00a0\u202f"
"""Marks between thousands."""


class Numbers:
    """Reads the cells of files that are written so."""

    def __init__(self, file: File) -> None:
        self._decimal, self._thousands = file.decimal, file.thousands
        self._missing = {text.strip() for text in file.missing}
        self._missing_numbers = set()
        for text in self._missing:
            with suppress(ValueError):
                self._missing_numbers.add(float(text))
        digits = rf"[-+]?[1-9]\d{{0,2}}([{_GROUPS}])\d{{3}}(?:\1\d{{3}})*({re.escape(file.decimal)}\d*)?"
        self._grouped = re.compile(digits)

    def read(self, cell: str) -> float:
        """A cell's number, MISSING where there is none. Raises ValueError, with a hint if there is one."""
        text = cell.strip()
        if text in self._missing:
            return MISSING
        plain = text
        if self._decimal == ",":
            plain = text.replace(",", ".") if "." not in text else "?"
        try:
            value = float(plain)
        except ValueError:
            plain = self._without_groups(text)
            value = float(plain)
        if value in self._missing_numbers:
            return MISSING
        # Python takes more for numbers than loggers write.
        if not is_within(value) or "_" in plain or not plain.isascii():
            raise ValueError
        return value

    def _without_groups(self, text: str) -> str:
        """A number without its thousands' marks, unless they may be decimal signs."""
        found = self._grouped.fullmatch(text)
        mark = "" if found is None else found[1].replace("\u00a0", " ").replace("\u202f", " ")
        if found is None or mark == self._decimal:
            raise ValueError
        if not found[2] and mark != self._thousands:
            raise ValueError(f": write thousands = {mark!r} if that is no decimal sign")
        return text.replace(found[1], "").replace(self._decimal, ".")
