"""Commands called as a user calls them, in this process: a program of its own takes a second of CPU to start.

Those over a lake return the exit code.
"""

from __future__ import annotations

import io
import subprocess
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from gateway.cli import main


def called(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Any command, with its exit code and what it wrote."""
    words, out, errors = list(map(str, arguments)), io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            code = main(words)
        except SystemExit as usage:
            code = int(usage.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), errors.getvalue())


def query(words: Sequence[str]) -> int:
    return main(["query", *words])


def import_files(words: Sequence[str]) -> int:
    return main(["import", *words])


def cleaning(words: Sequence[str]) -> int:
    return main(["cleaning", *words])


def export(words: Sequence[str]) -> int:
    return main(["export", *words])


def report(words: Sequence[str]) -> int:
    return main(["report", *words])


def dashboard(words: Sequence[str]) -> int:
    return main(["dashboard", *words])


def notify(words: Sequence[str]) -> int:
    return main(["notify", *words])


def health(words: list[str]) -> int:
    return main(["health", *words])
