"""``fieldgate schema``: the config's JSON Schema, for editors."""

from __future__ import annotations

import argparse

from cloud.command_line import OK
from drivers.registry import driver_names
from gateway.config.schema import as_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none."""


def run(_arguments: argparse.Namespace) -> int:
    """Print it, installed plug-ins included."""
    print(as_text(driver_names()).rstrip("\n"))
    return OK
