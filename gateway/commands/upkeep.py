"""The commands that keep a mast going: whether the machine is well, and what is done where it isn't."""

from __future__ import annotations

import argparse
from pathlib import Path

from gateway.commands.arguments import Commands, add_config, add_timeout
from gateway.commands.cli_types import count


def add_doctor(commands: Commands) -> None:
    """``fieldgate doctor``: whether this machine is ready."""
    doctor = commands.add_parser("doctor", help="whether this machine is ready for a config")
    add_config(doctor)
    doctor.add_argument("--json", action="store_true", help="findings as JSON")
    add_timeout(doctor)
    doctor.set_defaults(action=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    from gateway.commands.doctor import run

    return run(arguments.config, json_output=arguments.json, timeout_s=arguments.timeout)


def add_support_bundle(commands: Commands) -> None:
    """``fieldgate support-bundle``: one file for whoever helps."""
    bundle = commands.add_parser(
        "support-bundle", help="one file to send to whoever helps: logs, config, findings, without secrets"
    )
    bundle.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="must not be there yet (default: named by time)"
    )
    add_config(bundle)
    bundle.add_argument(
        "--lines", type=count, default=5000, metavar="N", help="of each journal (default: 5000)"
    )
    bundle.add_argument("--position", action="store_true", help="with the mast's coordinates")
    add_timeout(bundle)
    bundle.set_defaults(action=_support_bundle)


def _support_bundle(arguments: argparse.Namespace) -> int:
    from gateway.commands.support.command import run
    from gateway.commands.support.parts import Request

    request = Request(arguments.config, arguments.timeout, arguments.lines, arguments.position)
    return run(request, arguments.file)


def add_self_report(commands: Commands) -> None:
    """``fieldgate self-report``: how the mast is, each day."""
    report = commands.add_parser(
        "self-report", help="how the mast is, as an event and a line; each day by a timer"
    )
    add_config(report)
    report.set_defaults(action=_self_report)


def _self_report(arguments: argparse.Namespace) -> int:
    from gateway.commands.self_report import run

    return run(arguments.config)


def add_uplink(commands: Commands) -> None:
    """``fieldgate uplink``: the modem's guard."""
    uplink = commands.add_parser(
        "uplink",
        help="reset the modem or reboot when Kafka has been away for long, as [uplink] says; by a timer",
    )
    add_config(uplink)
    uplink.add_argument(
        "--state",
        type=Path,
        default=Path("/var/lib/fieldgate-uplink/state.json"),
        metavar="FILE",
        help="what was done when (default: /var/lib/fieldgate-uplink/state.json)",
    )
    uplink.add_argument("--dry-run", action="store_true", help="only say what would be done")
    uplink.set_defaults(action=_uplink)


def _uplink(arguments: argparse.Namespace) -> int:
    from gateway.commands.uplink.command import run

    return run(arguments.config, arguments.state, dry_run=arguments.dry_run)
