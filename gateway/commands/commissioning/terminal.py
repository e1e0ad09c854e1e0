"""The installer's terminal, 40 columns wide if need be."""

from __future__ import annotations

import select
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Final, TextIO

_WIDEST: Final = 76


class Terminal:
    """Shows text on ``out`` and takes answers from standard input."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, text: str) -> None:
        """Print text, no line longer than the terminal is wide, so that a phone shows whole words."""
        width = min(shutil.get_terminal_size().columns, _WIDEST)
        for line in text.split("\n"):
            indent = line[: len(line) - len(line.lstrip())]
            wrapped = textwrap.fill(line.strip(), width, initial_indent=indent, subsequent_indent=indent)
            self._out.write(f"{wrapped}\n")
        self._out.flush()

    def prompt(self, question: str, allowed: Sequence[str] | None = None) -> str:
        """An answer, stripped; one of ``allowed`` where that is given. Raises EOFError."""
        while True:
            self.show(question)
            self._out.write("> ")
            self._out.flush()
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            answer = line.strip()
            if allowed is None or answer.lower() in allowed:
                return answer if allowed is None else answer.lower()
            self.show(f"Please one of: {', '.join(each or 'Enter' for each in allowed)}")

    def interrupted(self) -> bool:
        """Whether Enter was pressed while something else was going on; the line is taken."""
        ready, _, _ = select.select([sys.stdin], [], [], 0)
        return bool(ready) and bool(sys.stdin.readline())
