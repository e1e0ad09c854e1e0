"""Findings for people: printed as they come, wrapped at the terminal's width."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.text import Text

from cloud.command_line import FAILED, OK
from gateway.status.status import Finding

_COLOURS: Final = {"ok": "green", "warning": "yellow", "error": "red"}
_NARROW: Final = 80
_NARROW_INDENT: Final = 2


def terminal() -> tuple[Console, int | None]:
    """Returns where findings are printed, and the width at which they are wrapped: None into a file."""
    console = Console(soft_wrap=True, highlight=False)
    return console, console.width if console.is_terminal or "COLUMNS" in os.environ else None


def print_findings(findings: Iterable[Finding], console: Console, width: int | None) -> int:
    """Prints them as they come, wrapped at a width; returns 1 where one is an error."""
    failed = False
    for finding in findings:
        failed = failed or finding.severity == "error"
        for line in _lines(finding, width):
            console.print(line)
    return FAILED if failed else OK


def _lines(finding: Finding, width: int | None) -> Iterable[Text]:
    severity = Text(f"{finding.severity:<8}", style=_COLOURS[finding.severity])
    if width is not None and width < _NARROW:
        indent = _NARROW_INDENT
        yield severity + Text(finding.area)
        found = _wrapped(finding.what, width, indent)
    else:
        indent = 18
        first, *found = _wrapped(finding.what, width, indent)
        # The longest areas are identity, registry and downlink.
        yield severity + Text(f"{finding.area:<10}{first.strip()}")
    yield from map(Text, found)
    if finding.remedy is not None:
        yield from (Text(line, style="bold") for line in _wrapped(finding.remedy, width, indent))


def _wrapped(text: str, width: int | None, indent: int) -> list[str]:
    margin = " " * indent
    if width is None:
        return [margin + text]
    return textwrap.wrap(
        text, max(width, 2 * indent), initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False
    ) or [margin]
