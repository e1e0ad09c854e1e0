"""``fieldgate check``: whether a config is right, and what it means."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gateway.commands.arguments import FAILED, OK, add_config, add_json
from gateway.config import Config, check
from gateway.forwarding import capacity


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The config."""
    add_config(parser)
    add_json(parser, "problems as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print each problem as ``file:line: key: …``, or all as one JSON object; 1 on errors, else 0."""
    path: Path = arguments.config
    config, problems = check(path)
    errors = sum(problem.severity == "error" for problem in problems)
    if arguments.json:
        answer = {
            "file": str(path),
            "ok": not errors,
            "errors": errors,
            "warnings": len(problems) - errors,
            "problems": [asdict(problem) for problem in problems],
            "summary": _facts(config) if config is not None else None,
        }
        print(json.dumps(answer))
        return FAILED if errors else OK
    for problem in problems:
        marker = " [warning]" if problem.severity == "warning" else ""
        print(f"{problem}{marker}")
    if config is None or errors:
        print(f"{_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}")
        return FAILED
    print(summary(config))
    return OK


def summary(config: Config) -> str:
    """What a config means, on one line."""
    facts = _facts(config)
    return (
        f"good: gateway {facts['gateway']} on board {facts['board']}: {_count(facts['sensors'], 'sensor')}, "
        f"{_count(facts['channels'], 'channel')}, {facts['readings_per_s']:g} readings/s"
        f" to {config.kafka.bootstrap_servers}"
    )


def _facts(config: Config) -> dict[str, Any]:
    return {
        "gateway": config.gateway.id,
        "board": config.board.kind,
        "sensors": len(config.sensors),
        "channels": capacity.channels(config),
        "readings_per_s": round(capacity.readings_per_s(config), 3),
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
