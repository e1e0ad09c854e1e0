"""``fieldgate run``: the daemon on the mast."""

from __future__ import annotations

import argparse

from gateway.commands.arguments import add_config, add_overrides, positive
from gateway.daemon.run import run as run_daemon


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The config, overrides, and how long to sample."""
    add_config(parser)
    add_overrides(parser)
    parser.add_argument(
        "--seconds", type=positive, metavar="N", help="stop sampling after N seconds; go on forwarding"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the daemon until it is stopped; its exit code."""
    return run_daemon(arguments.config, dict(arguments.overrides), arguments.seconds)
