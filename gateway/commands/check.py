"""``fieldgate check``: whether a config is right, and what it means."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from cloud.command_line import FAILED, OK, add_config, add_json
from cloud.toml_problems import Problem
from gateway.config import Config, check
from gateway.forwarding import capacity


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The config."""
    add_config(parser)
    parser.add_argument("--cloud", type=Path, metavar="FILE", help="check the cloud's config instead")
    add_json(parser, "problems as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print each problem as ``file:line: key: …``, or all as one JSON object; 1 on errors, else 0."""
    path: Path = arguments.cloud or arguments.config
    if arguments.cloud is not None:
        facts, good, problems = _check_cloud(path)
    else:
        config, problems = check(path)
        facts, good = (None, "") if config is None else _summary(config)
    errors = sum(problem.severity == "error" for problem in problems)
    if arguments.json:
        answer = {
            "file": str(path),
            "ok": not errors,
            "errors": errors,
            "warnings": len(problems) - errors,
            "problems": [asdict(problem) for problem in problems],
            "summary": facts,
        }
        print(json.dumps(answer))
        return FAILED if errors else OK
    for problem in problems:
        marker = " [warning]" if problem.severity == "warning" else ""
        print(f"{problem}{marker}")
    if facts is None or errors:
        print(f"{_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}")
        return FAILED
    print(good)
    return OK


def _check_cloud(path: Path) -> tuple[dict[str, Any] | None, str, Sequence[Problem]]:
    """What the cloud's config means, on one line too; and its problems."""
    from cloud.config import check

    config, problems = check(path)
    if config is None:
        return None, "", problems
    facts = {
        "bootstrap_servers": config.kafka.servers,
        "security_protocol": config.kafka.login.protocol,
        "lake": config.lake.path or "./lake",
    }
    good = f"good: Kafka at {config.kafka.servers} ({config.kafka.login.protocol}), lake {facts['lake']}"
    if config.streams:
        good += f"; `fieldgate jobs streams --cloud {path}` checks the SQL of [[stream]]"
    return facts, good, problems


def _summary(config: Config) -> tuple[dict[str, Any], str]:
    """What a config means, and that on one line."""
    facts: dict[str, Any] = {
        "gateway": config.gateway.id,
        "proves_itself": config.gateway.identity_key is not None,
        "board": config.board.kind,
        "sensors": len(config.sensors),
        "channels": capacity.channels(config),
        "readings_per_s": round(capacity.readings_per_s(config), 3),
    }
    late = ""
    proves = ", its runs prove themselves" if facts["proves_itself"] else ""
    if config.uplink.mode == "metered":
        facts["batch_s"] = config.uplink.batch_s
        late = (
            f", in batches of {config.uplink.batch_s:g} s: until then readings are on the card and raise"
            " no alert (uplink.batch_s)"
        )
        # Where megabytes cost, what costs some without a reading is printed before.
        for section, size in capacity.reader_bytes(config).items():
            facts[f"{section}_bytes_a_month"] = round(size)
            late += f"; [{section}] costs {decimal(round(size))} a month"
    return facts, (
        f"good: gateway {facts['gateway']} on board {facts['board']}: {_count(facts['sensors'], 'sensor')}, "
        f"{_count(facts['channels'], 'channel')}, {facts['readings_per_s']:g} readings/s"
        f" to {config.kafka.bootstrap_servers}{proves}{late}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
