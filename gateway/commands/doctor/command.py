"""``fieldgate doctor`` examines if this machine is ready for a config; for people, or as JSON."""

from __future__ import annotations

import argparse
import json

import msgspec

from gateway.commands.arguments import FAILED, OK, add_config, add_json, add_timeout, without_logs
from gateway.commands.doctor.examine import examine
from gateway.commands.tables import print_findings, terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the config, and how long to wait for Kafka."""
    add_config(parser)
    add_json(parser, "findings as JSON")
    add_timeout(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints each finding; returns 0, or 1 where one is an error."""
    # What goes wrong stands in the findings.
    without_logs("gateway", "drivers")
    found = examine(arguments.config, arguments.timeout)
    if arguments.json:
        findings = list(found)
        failed = any(finding.severity == "error" for finding in findings)
        print(json.dumps({"ok": not failed, "findings": msgspec.to_builtins(findings)}, indent=2))
        return FAILED if failed else OK
    return print_findings(found, *terminal())
