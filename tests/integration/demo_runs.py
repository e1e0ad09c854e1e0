"""Runs ``fieldgate demo`` as a user does, and reads what it writes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psutil

from cloud.lake.tables import open_lake
from cloud.local.process import Child
from tests.support.servers import eventually

UP_S = 180.0
"""Until all components are up, on two busy cores."""


@dataclass(frozen=True)
class RunningDemo:
    """A demo under way in ``workdir``."""

    process: subprocess.Popen[str]
    workdir: Path

    def described(self) -> dict[str, Any]:
        """demo.json, once it is there."""
        file = self.workdir / "demo.json"

        def read() -> dict[str, Any] | None:
            assert self.process.poll() is None, f"the demo ended early:\n{self.errors()}"
            return json.loads(file.read_text()) if file.exists() else None

        found = eventually(read, UP_S, until=lambda content: content is not None)
        assert found is not None
        return found

    def described_last(self) -> dict[str, Any]:
        """demo.json as the demo left it."""
        return dict(json.loads((self.workdir / "demo.json").read_text()))

    def component(self, name: str) -> psutil.Process:
        """The process of a component that is up now."""
        return psutil.Process(self.described()[name]["pid"])

    @contextlib.contextmanager
    def outage(self, seconds: float, **signals: signal.Signals) -> Iterator[None]:
        """End components by these signals, and start them as they were after so many seconds."""
        ended = {name: self.component(name) for name in signals}
        commands = {name: (process.cmdline(), process.environ()) for name, process in ended.items()}
        families = [
            each for process in ended.values() for each in (process, *process.children(recursive=True))
        ]
        for name, number in signals.items():
            ended[name].send_signal(number)
        for left in psutil.wait_procs(families, 60)[1]:
            left.kill()
        threading.Event().wait(seconds)
        started: list[Child] = []
        try:
            for name, (command, environment) in commands.items():
                log = self.workdir / f"{name}.again.log"
                started.append(Child(command, log, environment=environment))
            yield
        finally:
            for child in reversed(started):
                child.stop(45.0)

    def errors(self) -> str:
        """What it wrote to stderr so far."""
        return (self.workdir.parent / "demo.err").read_text()

    def warnings(self) -> str:
        """What its components logged at WARNING and above."""
        found = [
            f"{log.name}: {line}"
            for log in sorted(self.workdir.glob("*.log"))
            for line in log.read_text(errors="replace").splitlines()
            if re.search(r"\b(WARNING|ERROR|CRITICAL)\b", line)
        ]
        return "\n".join(found[-60:])

    def result(self, deadline_s: float) -> dict[str, Any]:
        """The JSON object it ends with; fails where it doesn't end well."""
        out, _ = self.process.communicate(timeout=deadline_s)
        ended = f"exit {self.process.returncode}: {out}\n{self.warnings()}\n{self.errors()}"
        assert self.process.returncode == 0, ended
        return dict(json.loads(out))

    def lake(self) -> duckdb.DuckDBPyConnection:
        """The tables."""
        return open_lake(self.workdir / "lake")


@contextlib.contextmanager
def running_demo(directory: Path, *arguments: str, as_json: bool = True) -> Iterator[RunningDemo]:
    """``fieldgate demo --json`` with these arguments; stopped at the end, and nothing of it is left.

    The tables have seven minutes to catch up, on a machine with other things to do. Without JSON it is as
    for people, and has pages: NiceGUI takes itself for a test of its own where it finds pytest's variable.
    """
    workdir = directory / "demo"
    env = {name: value for name, value in os.environ.items() if as_json or not name.startswith("PYTEST_")}
    with (directory / "demo.err").open("w") as errors:
        process = subprocess.Popen(
            (
                *(sys.executable, "-m", "gateway.cli", "demo", "--workdir", str(workdir)),
                *("--drain-timeout", "420", *(["--json"] if as_json else []), *arguments),
            ),
            env=env,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    demo = RunningDemo(process, workdir)
    try:
        yield demo
        assert left_over(workdir) == [], "something was left running"
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()


def left_over(workdir: Path) -> list[str]:
    """Command lines of living processes that name this directory."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        command = " ".join(process.info["cmdline"] or ())
        if str(workdir) in command and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(command)
    return found
