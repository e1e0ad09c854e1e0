"""The demo's components as real processes: readiness, failures, the end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cloud.command_line import CommandError
from cloud.local.server import LocalProgram
from gateway.commands.demo.layout import Components, Program, State
from tests.support.servers import eventually

SERVES = "import signal, time; print('ready', flush=True); time.sleep(600)"
CRASHES = "import sys; print('bad wiring', flush=True); sys.exit(3)"
REPORTS_ITS_END = """
import signal, sys, time
def end(*_):
    with open(sys.argv[1], 'a') as ends:
        ends.write(sys.argv[2] + '\\n')
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print('ready', flush=True)
time.sleep(600)
"""

Start = Callable[..., LocalProgram]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Start]:
    """Makes programs; what they started is ended with the test."""
    made: list[LocalProgram] = []

    def make(name: str, code: str = SERVES, *arguments: str, timeout_s: float = 20.0) -> LocalProgram:
        command, log = (sys.executable, "-c", code, *arguments), tmp_path / f"{name}.log"
        made.append(Program(command, log, lambda logged: "ready" in logged, start_timeout_s=timeout_s))
        return made[-1]

    yield make
    for one in made:
        one.kill()
        one.stop(5.0)


def started(**programs: LocalProgram) -> Components:
    components = Components(programs)
    components.launch(*programs)
    return components


def test_each_components_state(program: Start) -> None:
    one, other = program("one"), program("other")
    components = Components({"one": one, "other": other})
    assert components.states() == {"one": State.WAITING, "other": State.WAITING}
    components.launch("one")
    assert components.states() == {"one": State.STARTING, "other": State.WAITING}
    eventually(lambda: components.are_up("one"))
    assert components.states()["one"] is State.UP
    # What dies stays down, and was up.
    os.kill(one.pid or 0, signal.SIGKILL)
    eventually(lambda: components.states()["one"], until=lambda state: state is State.DOWN)
    assert components.are_up("one")


def test_one_that_never_comes_up_fails_with_its_log(program: Start, tmp_path: Path) -> None:
    components = started(gateway=program("gateway", CRASHES))
    with pytest.raises(CommandError) as failed:
        eventually(lambda: components.are_up("gateway"))
    assert str(failed.value) == (
        f"gateway ended with 3 while starting; the end of {tmp_path / 'gateway.log'}:\nbad wiring"
    )


def test_one_that_hangs_while_starting_fails(program: Start) -> None:
    hangs = "import time; print('still loading', flush=True); time.sleep(600)"
    components = started(one=program("one", hangs, timeout_s=2.0))
    with pytest.raises(CommandError, match=r"(?s)^one was not up after 2 s; .*"):
        eventually(lambda: components.are_up("one"))
    components.stop()
    assert components.programs["one"].exit_code == -signal.SIGTERM


def test_they_stop_in_the_reverse_order_and_stay_stopped(program: Start, tmp_path: Path) -> None:
    ends = tmp_path / "ends"
    names = ("broker", "jobs", "gateway", "pages")
    components = started(**{name: program(name, REPORTS_ITS_END, str(ends), name) for name in names})
    eventually(lambda: components.are_up(*names))
    components.stop("gateway")
    assert ends.read_text() == "gateway\n"
    components.stop()
    components.stop()
    assert ends.read_text() == "gateway\npages\njobs\nbroker\n"
    assert [one.exit_code for one in components.programs.values()] == [0, 0, 0, 0]


def test_a_stopped_programs_own_children_are_ended_too(program: Start, tmp_path: Path) -> None:
    child = tmp_path / "child"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen((sys.executable, '-c', 'import time; time.sleep(600)'))\n"
        f"open({str(child)!r}, 'w').write(str(child.pid))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    components = started(jobs=program("jobs", code))
    components.programs["jobs"].stop_timeout_s = 0.5
    eventually(lambda: components.are_up("jobs"))
    orphan = psutil.Process(int(child.read_text()))
    components.stop()
    eventually(lambda: not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE)
