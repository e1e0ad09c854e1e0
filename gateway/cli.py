"""The command line: where each command stands. Its module is imported only when it is called.

A command's module has ``add_arguments(parser)`` and ``run(arguments)``, which returns the exit code or raises
an error whose message is for the user. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from runpy import run_module
from types import ModuleType
from typing import Any, Final, NamedTuple

from cloud.command_line import FAILED, INTERRUPTED, OK, CommandError, fail

_NEEDS: Final = {
    "spark": ("pyspark",), "analyst": ("duckdb", "deltalake", "pyarrow"),
    "dashboard": ("nicegui", "duckdb", "deltalake"),
    "report": ("duckdb", "deltalake", "matplotlib", "weasyprint"), "notify": ("apprise",),
}  # fmt: skip
"""The packages that an extra brings, without which its commands don't run."""


class Command(NamedTuple):
    """A command's module, relative to gateway.commands; empty for the jobs, a program of their own.

    ``extras`` are those of the installation that it needs.
    """

    module: str
    help: str
    extras: tuple[str, ...] = ()

    @property
    def needs(self) -> list[str]:
        """The packages of its extras."""
        return [package for extra in self.extras for package in _NEEDS[extra]]

    @property
    def remedy(self) -> str:
        """The message where a package is missing."""
        extras = ",".join(self.extras)
        return f"this command needs the extra {extras}: pip install 'fieldgate[{extras}]'"


COMMANDS: Final = {
    "run": Command(".run", "the daemon on the mast"),
    "check": Command(".check", "validate a config file: each problem with file, line and key"),
    "read": Command(".read", "one reading of each sensor: raw, value, quality and its reasons"),
    "init": Command(".init", "write a commented config for chosen sensors, to be filled in"),
    "schema": Command(".schema", "the config's JSON Schema, for editors; --keys: all keys"),
    "doctor": Command(".doctor.command", "whether this machine is ready for a config"),
    "support-bundle": Command(".support.command", "logs, config and findings in one file, without secrets"),
    "status": Command(".status", "what the daemon does; with --lake what became of all readings"),
    "phone": Command(".phone", "open the status page to a phone for an hour: a QR code with its address"),
    "provision": Command(".provision.command", "create what Kafka and Mosquitto need, where it is missing"),
    "command": Command(
        "cloud.operate.command", "have a gateway switch, read, reload …: send, and list the results"
    ),
    "calibrations": Command(".calibrations", "which calibration was in force when, on each channel"),
    "outbox": Command(".outbox.command", "stats, export, import, drain of what waits on this machine"),
    "commission": Command(
        ".commissioning.command", "each sensor with the installer; commission swap: another instrument"
    ),
    "commission swap": Command(".commissioning.swap", "another instrument in a sensor's place"),
    "service report": Command(".self_report", "how the mast is, as an event and a line; each day by a timer"),
    "service uplink": Command(".uplink", "reset the modem or reboot when Kafka has been away for long"),
    "service relays": Command(".actuators", "each relay in its safe state, without the daemon"),
    "jobs": Command("", "run the Spark jobs: jobs run ingest statistics …", ("spark",)),
    "query": Command("cloud.lake.query", "SQL over the tables of a lake", ("analyst",)),
    "import": Command(
        "cloud.importing.command", "other loggers' CSV and TOA5 into a lake, by a mapping", ("analyst",)
    ),
    "watch": Command("cloud.operate.watch", "readings as they arrive in Kafka, or SQL on the last minutes"),
    "dashboard": Command(
        "cloud.dashboard.command", "pages over the tables of a lake: fleet, masts, alerts", ("dashboard",)
    ),
    "token": Command("cloud.operate.tokens", "programs' access to the dashboard's API: add, list, revoke"),
    "report": Command("cloud.dashboard.report.command", "a day, week or month as HTML or PDF", ("report",)),
    "export": Command("cloud.exports.command", "a mast as CSV, TOA5, Parquet, IEA 43's model", ("analyst",)),
    "health": Command("cloud.lake.health", "what wears on masts, and when it is at its limit", ("analyst",)),
    "alerts": Command("cloud.lake.acknowledgements", "open alerts: list, acknowledge", ("analyst",)),
    "cleaning": Command("cloud.lake.cleaning", "mark periods for analysts to leave out", ("analyst",)),
    "documents": Command("cloud.lake.documents", "keep reports and certificates with masts", ("analyst",)),
    "notify": Command("cloud.notify", "send alerts to people: mail, chat, webhooks", ("notify",)),
    "deliver": Command("cloud.deliver.command", "send reports and data by mail, SFTP, …", ("report",)),
    "simulate": Command(".simulate", "the past days of a fleet that never was, into Kafka"),
    "demo": Command(".demo.command", "everything on this machine, with a live view", ("spark", "analyst")),
}
"""The commands in the order of ``--help``; those of two words are listed below the first."""
GROUPS: Final = {"service": "what systemd's units run: report, uplink, relays"}
"""First words that are no commands by themselves."""

_EXTRAS: Final = (
    "apprise", "delta", "deltalake", "duckdb", "fastapi", "matplotlib", "nicegui", "numpy", "pandas", "py4j",
    "pyarrow", "pyspark", "starlette",
)  # fmt: skip
"""What the commands' modules import of packages that only extras bring."""


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of a command, but for the jobs."""
    command = COMMANDS[name]
    description = f"{command.help[0].upper()}{command.help[1:]}."
    own = argparse.ArgumentParser(prog=f"fieldgate {name}", description=description)
    add_arguments(name, own)
    return own


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    """Adds a command's arguments to a parser."""
    _module(COMMANDS[name]).add_arguments(parser)


def parser() -> argparse.ArgumentParser:
    """The parser of ``fieldgate`` itself: for ``--help``, ``--version`` and wrong usage."""
    top = argparse.ArgumentParser(
        prog="fieldgate", description="Field gateway for met masts, and the streaming pipeline behind it."
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    below: dict[str, Any] = {}
    for name, command in COMMANDS.items():
        first, _, second = name.partition(" ")
        if not second:
            commands.add_parser(name, help=command.help, add_help=False)
        elif first in GROUPS:
            if first not in below:
                group = commands.add_parser(first, help=GROUPS[first], description=f"Runs {GROUPS[first]}.")
                below[first] = group.add_subparsers(dest="task", metavar="TASK", required=True)
            below[first].add_parser(second, help=command.help, add_help=False)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. Wrong usage ends with SystemExit(2), as argparse does."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if given == ["--version"]:
            # Found only on request: it takes as long as all else here.
            from gateway.system.host import installed_version

            print(f"fieldgate {installed_version() or 'unknown'}")
            return OK
        words = 2 if " ".join(given[:2]) in COMMANDS else 1
        name = " ".join(given[:words])
        if name not in COMMANDS:
            parser().parse_args(given)
            return FAILED
        return _run(name, given[words:])
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (… | head). Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        # The daemon's log needs the traceback of what it doesn't handle.
        if given[0] == "run" or not isinstance(error, _expected()):
            raise
        return fail(error)


def _run(name: str, arguments: list[str]) -> int:
    command = COMMANDS[name]
    if any(find_spec(package) is None for package in command.needs):
        if not {"-h", "--help"} & set(arguments):
            return fail(command.remedy)
        print(f"fieldgate: {command.remedy}", file=sys.stderr)
        _stand_in()
        if name == "jobs":
            sys.argv[1:] = arguments
            run_module("spark_jobs", run_name="__main__", alter_sys=True)
    if name == "jobs":
        return _jobs(arguments)
    code: int = _module(command).run(parser_of(name).parse_args(arguments))
    return code


def _module(command: Command) -> ModuleType:
    return import_module(command.module, "gateway.commands")


def _stand_in() -> None:
    """Have modules that need extras import all the same: a command's help calls nothing of them.

    All of them, even those that are there: these refuse another's stand-in, as pyarrow PySpark's types.
    """
    from unittest.mock import MagicMock

    class StandIns:
        def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
            wanted = name.partition(".")[0] in _EXTRAS
            return ModuleSpec(name, self, is_package=True) if wanted else None  # type: ignore[arg-type] # it is one

        def create_module(self, _: ModuleSpec) -> object:
            return MagicMock()

        def exec_module(self, _: object) -> None:
            pass

    sys.meta_path.insert(0, StandIns())


def _jobs(arguments: Sequence[str]) -> int:
    sys.stdout.flush()
    # In place of this process, so that signals and the exit code are the jobs' own.
    # -P: a folder here that happens to be called spark_jobs is not meant.
    return os.execv(sys.executable, (sys.executable, "-P", "-m", "spark_jobs", *arguments))  # noqa: S606


def _expected() -> tuple[type[Exception], ...]:
    """Errors whose message is all that a user needs; imported only when something was raised."""
    from buffer.errors import OutboxError
    from cloud.errors import CloudError
    from drivers.interface import DriverError
    from gateway.config import ConfigError
    from gateway.reporting.event_spool import NotSpooled
    from gateway.status.client import NoStatus

    return CommandError, ConfigError, NoStatus, NotSpooled, OutboxError, CloudError, DriverError


if __name__ == "__main__":
    sys.exit(main())
