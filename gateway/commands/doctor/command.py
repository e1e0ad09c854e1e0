"""Prints what ``doctor`` finds: for people, on a phone too, or as JSON."""

from __future__ import annotations

import json
import logging
import os
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from gateway.commands.doctor.examine import examine
from gateway.commands.doctor.findings import Finding

_COLOURS: Final = {"ok": "green", "warning": "yellow", "error": "red"}
_NARROW: Final = 80
_NARROW_INDENT: Final = 2


def run(path: Path, *, json_output: bool, timeout_s: float) -> int:
    """Print each finding: 0, or 1 where one is an error. ``timeout_s`` is for Kafka's answer."""
    # What goes wrong stands in the findings.
    for package in ("gateway", "drivers"):
        logging.getLogger(package).setLevel(logging.CRITICAL)
    if json_output:
        findings = list(examine(path, timeout_s))
        failed = any(finding.state == "error" for finding in findings)
        answer = {"ok": not failed, "findings": [asdict(finding) for finding in findings]}
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
        return 1 if failed else 0
    console = Console(soft_wrap=True, highlight=False)
    # Into a file lines stay whole.
    width = console.width if console.is_terminal or "COLUMNS" in os.environ else None
    return print_findings(examine(path, timeout_s), console, width)


def print_findings(findings: Iterable[Finding], console: Console, width: int | None) -> int:
    """Print them as they come, wrapped at a width; 1 where one is an error."""
    failed = False
    for finding in findings:
        failed = failed or finding.state == "error"
        for line in _lines(finding, width):
            console.print(line)
    return 1 if failed else 0


def _lines(finding: Finding, width: int | None) -> Iterable[Text]:
    state = Text(f"{finding.state:<8}", style=_COLOURS[finding.state])
    if width is not None and width < _NARROW:
        indent = _NARROW_INDENT
        yield state + Text(finding.subject)
        found = _wrapped(finding.found, width, indent)
    else:
        indent = 16
        first, *found = _wrapped(finding.found, width, indent)
        yield state + Text(f"{finding.subject:<8}{first.strip()}")
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
