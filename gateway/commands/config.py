"""The commands about the gateway's config file."""

from __future__ import annotations

import argparse
from pathlib import Path

from gateway.commands.arguments import Commands, add_config
from gateway.commands.outcome import OK, say


def add_check(commands: Commands) -> None:
    """``fieldgate check``: each problem of a config."""
    check = commands.add_parser("check", help="validate a config file: each problem with file, line and key")
    add_config(check)
    check.add_argument("--json", action="store_true", help="problems as JSON")
    check.set_defaults(action=_check)


def _check(arguments: argparse.Namespace) -> int:
    from gateway.commands.check import run

    return run(arguments.config, json_output=arguments.json)


def add_init(commands: Commands) -> None:
    """``fieldgate init``: a config to be filled in."""
    init = commands.add_parser("init", help="write a commented config for chosen sensors, to be filled in")
    init.add_argument("--id", metavar="ID", help="this gateway's, such as mast-07")
    init.add_argument(
        "--sensor",
        dest="sensors",
        metavar="NAME=DRIVER[:PIN][,KEY=VALUE…]",
        action="append",
        default=[],
        help="e.g. cup-50m-a=hall-anemometer:17,height_m=50 or baro=bp20 (repeatable)",
    )
    init.add_argument(
        "--board", choices=["raspberry-pi", "simulated"], default="raspberry-pi", help="default: raspberry-pi"
    )
    init.add_argument("--kafka", metavar="HOST:PORT", help="where readings go")
    init.add_argument("--latitude", type=float, metavar="DEG", help="of the mast, decimal; north is positive")
    init.add_argument("--longitude", type=float, metavar="DEG", help="of the mast, decimal; east is positive")
    init.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("gateway.toml"),
        metavar="FILE",
        help="must not be there yet; - is standard output (default: gateway.toml)",
    )
    init.set_defaults(action=_init)


def _init(arguments: argparse.Namespace) -> int:
    from gateway.commands.init import run, terminal

    return run(arguments, terminal())


def add_schema(commands: Commands) -> None:
    """``fieldgate schema``: the config's JSON Schema."""
    schema = commands.add_parser("schema", help="the config's JSON Schema, for editors")
    schema.set_defaults(action=_schema)


def _schema(_arguments: argparse.Namespace) -> int:
    from drivers.registry import driver_names
    from gateway.config.schema import as_text

    say(as_text(driver_names()).rstrip("\n"))
    return OK


def add_calibrations(commands: Commands) -> None:
    """``fieldgate calibrations``: which was in force when."""
    calibrations = commands.add_parser(
        "calibrations", help="which calibration was in force when, on each channel"
    )
    add_config(calibrations)
    calibrations.add_argument("--json", action="store_true", help="the records as JSON")
    calibrations.set_defaults(action=_calibrations)


def _calibrations(arguments: argparse.Namespace) -> int:
    from gateway.commands.calibrations import run

    return run(arguments.config, json_output=arguments.json)
