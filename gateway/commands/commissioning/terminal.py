"""The installer's side: a terminal, 40 columns wide if need be, or a file of answers."""

from __future__ import annotations

import select
import shutil
import sys
import textwrap
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from gateway.commands.arguments import USAGE, CommandError

_WIDEST: Final = 76


class NoAnswer(CommandError):
    """There is no terminal, or a file of answers has none to a question."""

    code = USAGE


class Dialogue(ABC):
    """Shows text and takes answers. Text goes to ``out``."""

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

    @abstractmethod
    def ask(self, question: str, name: str, allowed: Sequence[str] | None = None) -> str:
        """An answer, stripped; one of ``allowed`` where that is given. Raises EOFError, NoAnswer."""

    def interrupted(self) -> bool:
        """Whether Enter was pressed while something else was going on."""
        return False


class Terminal(Dialogue):
    """A person at a terminal."""

    def ask(self, question: str, name: str, allowed: Sequence[str] | None = None) -> str:
        """Again until the answer is one that is allowed."""
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
        """Whether a line waits; it is taken."""
        ready, _, _ = select.select([sys.stdin], [], [], 0)
        return bool(ready) and bool(sys.stdin.readline())


class AnswersFile(Dialogue):
    """Answers of a TOML file, by the questions' names: ``"cup.serial" = "y"``; ``"*.serial"`` for all.

    A list answers one time after the other, its last for ever after.
    """

    def __init__(self, path: Path, out: TextIO) -> None:
        """Raises NoAnswer where the file isn't one."""
        super().__init__(out)
        self._path = path
        try:
            answers: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise NoAnswer(f"{path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise NoAnswer(f"{path}: {error}") from error
        self._answers: dict[str, list[str]] = {
            name: each if isinstance(each, list) else [each] for name, each in answers.items()
        }
        for name, listed in self._answers.items():
            if not listed or not all(isinstance(each, str) for each in listed):
                raise NoAnswer(f"{path}: {name}: must be a string, or a list of them")
        self._turns: dict[str, int] = {}

    def ask(self, question: str, name: str, allowed: Sequence[str] | None = None) -> str:
        """The file's answer. Raises NoAnswer."""
        self.show(question)
        rest = name.rpartition(".")[2]
        key = name if name in self._answers else f"*.{rest}"
        if key not in self._answers:
            raise NoAnswer(f'{self._path}: no answer to "{name}" (nor "*.{rest}"): {question}')
        answers = self._answers[key]
        turn = self._turns[name] = self._turns.get(name, -1) + 1
        answer = answers[min(turn, len(answers) - 1)].strip()
        if allowed is not None and answer.lower() not in allowed:
            raise NoAnswer(f'{self._path}: "{key}" = {answer!r} is none of {", ".join(map(repr, allowed))}')
        self.show(f"> {answer}")
        return answer if allowed is None else answer.lower()
