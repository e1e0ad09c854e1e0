"""Commands that parse their arguments themselves; they are handed on as they are."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Final

from gateway.commands.arguments import Commands
from gateway.commands.outcome import fail


def list_for_help(commands: Commands) -> None:
    """Name them in ``--help``; their arguments are never parsed here."""
    commands.add_parser("outbox", help="stats, export, import, drain of what waits here", add_help=False)
    commands.add_parser(
        "commission", help="each sensor with the installer, and a signed report", add_help=False
    )
    commands.add_parser("swap", help="another instrument in a sensor's place", add_help=False)
    commands.add_parser("jobs", help="run the Spark jobs: jobs run ingest statistics …", add_help=False)
    commands.add_parser("query", help="SQL over the tables of a lake", add_help=False)
    commands.add_parser("demo", help="everything on this machine, with a live view", add_help=False)


def _jobs(arguments: Sequence[str]) -> int:
    if find_spec("pyspark") is None:
        return fail("the Spark jobs need the extra 'spark': pip install 'fieldgate[spark]'")
    sys.stdout.flush()
    # In place of this process, so that signals and the exit code are the jobs' own.
    # -P: a folder here that happens to be called spark_jobs is not meant.
    return os.execv(sys.executable, (sys.executable, "-P", "-m", "spark_jobs", *arguments))  # noqa: S606


def _query(arguments: Sequence[str]) -> int:
    if find_spec("duckdb") is None or find_spec("deltalake") is None:
        return fail("queries need the extra 'analyst': pip install 'fieldgate[analyst]'")
    from cloud.lake.query import run

    return run(list(arguments))


def _outbox(arguments: Sequence[str]) -> int:
    from gateway.commands.outbox.command import run

    return run(arguments)


def _commission(arguments: Sequence[str]) -> int:
    from gateway.commands.commissioning.command import run

    return run(arguments)


def _swap(arguments: Sequence[str]) -> int:
    from gateway.commands.commissioning.swap_command import run

    return run(arguments)


def _demo(arguments: Sequence[str]) -> int:
    if find_spec("pyspark") is None or find_spec("duckdb") is None:
        return fail("the demo runs the whole pipeline: from a clone, with make run")
    from gateway.commands.demo.command import run

    return run(arguments)


HANDED_ON: Final[dict[str, Callable[[Sequence[str]], int]]] = {
    "outbox": _outbox,
    "commission": _commission,
    "swap": _swap,
    "jobs": _jobs,
    "query": _query,
    "demo": _demo,
}
"""Commands that parse their arguments themselves."""
