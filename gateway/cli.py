"""The command line. Each command's module is imported only when it is called, so that ``--help`` is quick.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from gateway.commands import config, daemon, upkeep
from gateway.commands.dispatch import HANDED_ON, list_for_help
from gateway.commands.outcome import FAILED, INTERRUPTED, say
from gateway.commands.provision import command


class _Version(argparse.Action):
    """Prints the installed version; looking it up costs too much to do it for every call."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option: str | None = None,
    ) -> None:
        from importlib.metadata import version

        say(f"fieldgate {version('fieldgate')}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fieldgate", description="Field gateway for met masts, and the streaming pipeline behind it."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    # In the order of --help.
    daemon.add_run(commands)
    config.add_check(commands)
    daemon.add_read(commands)
    config.add_init(commands)
    config.add_schema(commands)
    upkeep.add_doctor(commands)
    upkeep.add_support_bundle(commands)
    daemon.add_status(commands)
    daemon.add_phone(commands)
    command.add_provision(commands)
    config.add_calibrations(commands)
    upkeep.add_self_report(commands)
    upkeep.add_uplink(commands)
    list_for_help(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. Wrong usage ends with SystemExit(2), as argparse does."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if given and given[0] in HANDED_ON:
            return HANDED_ON[given[0]](given[1:])
        parsed = _parser().parse_args(given)
        code: int = parsed.action(parsed)
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (… | head). Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
