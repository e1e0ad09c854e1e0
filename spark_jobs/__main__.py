"""``python -m spark_jobs run NAME…`` and the other commands.

Exit status: 0 after SIGTERM or when done, 1 after a failure, 2 on misuse.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from cloud.errors import CloudError
from spark_jobs.platform.errors import JobError, SettingsError
from spark_jobs.platform.registry import COMMANDS, STREAMING, load
from spark_jobs.platform.settings import parse_command, parse_run


def _log_to_stderr() -> None:
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logger = logging.getLogger("fieldgate")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # A library that gives the root logger a handler would print each line once more.
    logger.propagate = False


def _keep_stdout() -> None:
    """Standard output is for answers: what Java's libraries print there (VACUUM does) joins the log."""
    sys.stdout.flush()
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout = os.fdopen(answers, "w", encoding="utf-8")


def _usage() -> str:
    lines = ["usage: fieldgate jobs COMMAND …", "", f"  run NAME…  {', '.join(STREAMING)} or all"]
    lines += [f"  {name:<10} {load(place).DESCRIPTION}" for name, place in COMMANDS.items()]
    return "\n".join(lines)


def _dispatch(name: str, argv: Sequence[str]) -> None:
    if name == "run":
        settings = parse_run(argv)
        _log_to_stderr()
        # Only now: PySpark takes a second to load, a usage error need not wait for it.
        from spark_jobs.jobs.run import run

        run(settings)
        return
    options, settings = parse_command(name, argv)
    _log_to_stderr()
    _keep_stdout()
    load(COMMANDS[name]).main(options, settings)


def main() -> int:
    """Entry point; the exit status."""
    name, argv = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("--help", [])
    if name in ("-h", "--help"):
        print(_usage())
        return 0
    if name != "run" and name not in COMMANDS:
        print(f"error: no command {name!r}; there are {', '.join(['run', *COMMANDS])}", file=sys.stderr)
        return 2
    try:
        _dispatch(name, argv)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (JobError, CloudError) as error:
        logging.getLogger("fieldgate.jobs").error("event=jobs.failed %s", error)
        return 1
    return 0


def end(status: int) -> NoReturn:
    """Ends the process; after a failure without finalizing the interpreter.

    A thread of Arrow's that still reads from a Java that has died would abort the process (SIGABRT instead of
    status 1) when the interpreter is finalized beneath it.
    """
    if status == 1:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    end(main())
