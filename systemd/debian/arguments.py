"""The command line as data, read from its argparse parsers: what completion and the manual are made of."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway import cli

NOT_PACKAGED: Final = frozenset(
    {"jobs", "query", "import", "dashboard", "report", "export", "cleaning", "notify", "simulate", "demo"}
)
"""Commands that need Spark, Java or the analysts' packages, which a mast has not, or are for a cluster."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option or a positional argument. ``value`` names what it takes; empty for a flag."""

    flags: tuple[str, ...]
    value: str
    help: str
    choices: tuple[str, ...]
    file: bool


@dataclass(frozen=True, slots=True)
class Command:
    """One command, with the words that lead to it, ``fieldgate`` first."""

    words: tuple[str, ...]
    help: str
    usage: str
    options: tuple[Option, ...]
    arguments: tuple[Option, ...]
    commands: tuple[Command, ...]

    def all(self) -> Iterator[Command]:
        """It and all below it."""
        yield self
        for each in self.commands:
            yield from each.all()


def command_line() -> Command:
    """Everything the packaged ``fieldgate`` takes."""
    return _command(("fieldgate",), cli.parser(), "")


def _command(words: tuple[str, ...], parser: argparse.ArgumentParser, help_text: str) -> Command:
    options: list[Option] = []
    arguments: list[Option] = []
    commands: list[Command] = []
    parser.formatter_class = _Wide
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {each.dest: each.help or "" for each in action._choices_actions}
            for name, sub in action.choices.items():
                if len(words) == 1 and name in NOT_PACKAGED:
                    continue
                own = cli.parser_of(name) if len(words) == 1 else sub
                commands.append(_command((*words, name), own, summaries.get(name, "")))
        elif action.help != argparse.SUPPRESS:
            (options if action.option_strings else arguments).append(_option(action))
    usage = parser.format_usage().removeprefix("usage: ").strip()
    about = help_text or parser.description or ""
    return Command(words, about, usage, tuple(options), tuple(arguments), tuple(commands))


class _Wide(argparse.HelpFormatter):
    """Usage on one line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=10_000)


def _option(action: argparse.Action) -> Option:
    choices = tuple(str(each) for each in action.choices or ())
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    takes = action.nargs != 0
    value = (metavar or "|".join(choices) or action.dest.upper()) if takes else ""
    return Option(
        tuple(action.option_strings),
        value,
        (action.help or "").replace("%%", "%"),
        choices,
        takes and (action.type is Path or value == "FILE"),
    )
