"""``fieldgate doctor``: whether this machine is ready for a config; findings for people, or as JSON."""

from __future__ import annotations

import argparse
import json
import os
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from typing import Final

from rich.console import Console
from rich.text import Text

from cloud.command_line import FAILED, OK, add_config, add_json, add_timeout, without_logs
from gateway.commands.doctor.examine import examine
from gateway.commands.doctor.findings import Finding

_COLOURS: Final = {"ok": "green", "warning": "yellow", "error": "red"}
_NARROW: Final = 80
_NARROW_INDENT: Final = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The config, and how long to wait for Kafka."""
    add_config(parser)
    add_json(parser, "findings as JSON")
    add_timeout(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print each finding: 0, or 1 where one is an error."""
    # What goes wrong stands in the findings.
    without_logs("gateway", "drivers")
    found = examine(arguments.config, arguments.timeout)
    if arguments.json:
        findings = list(found)
        failed = any(finding.state == "error" for finding in findings)
        print(json.dumps({"ok": not failed, "findings": [asdict(each) for each in findings]}, indent=2))
        return FAILED if failed else OK
    console = Console(soft_wrap=True, highlight=False)
    # Into a file lines stay whole.
    width = console.width if console.is_terminal or "COLUMNS" in os.environ else None
    return print_findings(found, console, width)


def print_findings(findings: Iterable[Finding], console: Console, width: int | None) -> int:
    """Print them as they come, wrapped at a width; 1 where one is an error."""
    failed = False
    for finding in findings:
        failed = failed or finding.state == "error"
        for line in _lines(finding, width):
            console.print(line)
    return FAILED if failed else OK


def _lines(finding: Finding, width: int | None) -> Iterable[Text]:
    state = Text(f"{finding.state:<8}", style=_COLOURS[finding.state])
    if width is not None and width < _NARROW:
        indent = _NARROW_INDENT
        yield state + Text(finding.subject)
        found = _wrapped(finding.found, width, indent)
    else:
        indent = 18
        first, *found = _wrapped(finding.found, width, indent)
        # The longest subjects are identity, registry and downlink.
        yield state + Text(f"{finding.subject:<10}{first.strip()}")
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
