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
