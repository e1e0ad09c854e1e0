"""Arguments that several commands take."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final, TypeAlias

from gateway.commands.cli_types import pair, positive

CONFIG_PATH: Final = Path("/etc/fieldgate/gateway.toml")

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Where a command is added."""


def add_config(parser: argparse.ArgumentParser) -> None:
    """``--config``: the gateway's file."""
    parser.add_argument(
        "-c", "--config", type=Path, default=CONFIG_PATH, metavar="FILE", help=f"default: {CONFIG_PATH}"
    )


def add_properties(parser: argparse._ActionsContainer) -> None:
    """``--property``: what else the connection to Kafka needs, as a list of pairs."""
    parser.add_argument(
        "--property",
        dest="properties",
        metavar="KEY=VALUE",
        type=pair,
        action="append",
        default=[],
        help="a librdkafka property, e.g. security.protocol=SSL (repeatable)",
    )


def add_timeout(parser: argparse._ActionsContainer) -> None:
    """``--timeout``: how long Kafka may take to answer, in seconds."""
    parser.add_argument(
        "--timeout", type=positive, default=10.0, metavar="S", help="seconds to wait for Kafka (default: 10)"
    )
