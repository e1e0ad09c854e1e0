"""The command line, waiting, names and places for tests that run against real servers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def eventually(
    probe: Callable[[], T],
    deadline_s: float = 90.0,
    *,
    until: Callable[[T], bool] = bool,
    poll_s: float = 0.05,
) -> T:
    """Poll until ``until(probe())`` holds and return that value; fail with the last value past the deadline.

    What fails with an AssertionError, isn't there yet (LookupError) or doesn't answer yet (OSError) counts as
    "not yet"; the last failure is raised at the deadline. That is meant for a machine with other things to do
    as well: what comes in a second costs a second, and only what never comes costs the whole of it.
    """
    end = time.monotonic() + deadline_s
    while True:
        failure: Exception | None = None
        try:
            value = probe()
            if until(value):
                return value
        except (AssertionError, LookupError, OSError) as error:
            failure = error
        if time.monotonic() >= end:
            if failure is not None:
                raise AssertionError(f"still failing after {deadline_s:g} s: {failure!r}") from failure
            raise AssertionError(f"not reached within {deadline_s:g} s; last value: {value!r}")
        time.sleep(poll_s)


def fieldgate(
    *arguments: str | Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command line as a program, without a terminal; whatever its exit code is."""
    return subprocess.run(
        [sys.executable, "-m", "gateway.cli", *map(str, arguments)],
        capture_output=True, text=True, timeout=200, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip


def unique_name(stem: str) -> str:
    """A topic, group or client name no other test uses."""
    return f"{stem}-{uuid.uuid4().hex[:12]}"


def shared_data(name: str) -> Path | None:
    """A file of real mast data: in $FIELDGATE_SHARED, or in shared/ beside the project; None without one."""
    root = os.environ.get("FIELDGATE_SHARED")
    places = [Path(root)] if root else [Path(__file__).resolve().parents[3] / "shared"]
    for place in places:
        for path in (place / "data" / name, place / name):
            if path.is_file():
                return path
    return None
