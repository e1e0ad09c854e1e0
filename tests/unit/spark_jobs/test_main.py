"""The jobs' program, as far as it needs no Spark."""

from __future__ import annotations

import subprocess
import sys


def test_a_line_of_the_log_is_printed_once() -> None:
    program = (
        "import logging; logging.basicConfig(level=logging.INFO)\n"
        "from spark_jobs.__main__ import _log_to_stderr\n"
        "_log_to_stderr(); logging.getLogger('fieldgate.jobs').info('event=one')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.count("event=one") == 1
    assert done.stdout == ""


def test_after_a_failure_nothing_aborts_the_process_any_more() -> None:
    program = (
        "import atexit, os, sys\n"
        "from spark_jobs.__main__ import end\n"
        # As a thread of Arrow's does, when Java has died.
        "atexit.register(os.abort)\n"
        "sys.stdout.write('answer')\n"
        "end(1)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "answer")
