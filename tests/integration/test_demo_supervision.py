"""Supervision of real processes: order, readiness, restarts, failures, the end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cloud.command_line import CommandError
from cloud.errors import CloudError
from cloud.local.process import Child
from gateway.commands.demo.layout import Part, Program, Stack, State
from tests.support.servers import eventually

SERVES = "import signal, time; print('ready', flush=True); time.sleep(600)"
CRASHES = "import sys; print('bad wiring', flush=True); sys.exit(3)"
SAYS_ITS_END = """
import signal, sys, time
def end(*_):
    with open(sys.argv[1], 'a') as ends:
        ends.write(sys.argv[2] + '\\n')
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print('ready', flush=True)
time.sleep(600)
"""

MakePart = Callable[..., Part]


def program(directory: Path, name: str, code: str, *arguments: str) -> Program:
    command = (sys.executable, "-c", code, *arguments)
    log = directory / f"{name}.log"
    return Program(lambda: command, log, lambda logged: "ready" in logged, start_timeout_s=20.0)


@pytest.fixture
def part(tmp_path: Path) -> Iterator[MakePart]:
    """Makes parts; what they started is ended with the test."""
    made: list[Part] = []

    def make(name: str, code: str = SERVES, *arguments: str, needs: tuple[str, ...] = ()) -> Part:
        made.append(Part(name, program(tmp_path, name, code, *arguments), needs))
        return made[-1]

    yield make
    for one in made:
        one.component.kill()
        one.component.stop(5.0)


def ticked(stack: Stack) -> Stack:
    stack.tick()
    return stack


def all_up(stack: Stack) -> None:
    eventually(lambda: ticked(stack).all_up)


def kill(part: Part) -> int:
    pid = part.component.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: part.component.exit_code is not None)
    return pid


def test_a_part_waits_for_its_needs(part: MakePart) -> None:
    prepared: list[State] = []
    broker, client = part("broker"), part("client", needs=("broker",))
    broker.prepare = lambda: prepared.append(client.state)
    stack = Stack([client, broker], ["client", "broker"], 1.0)
    assert stack.tick()
    assert (broker.state, client.state, client.component.pid) == (State.STARTING, State.WAITING, None)
    all_up(stack)
    # Prepared once, before what needs it starts.
    assert prepared == [State.WAITING]
    assert not stack.tick()
    kill(broker)
    eventually(lambda: ticked(stack).all_up and broker.restarts == 1)
    assert prepared == [State.WAITING]


def test_what_dies_stays_down_for_the_time_given(part: MakePart) -> None:
    one, other = part("one"), part("other")
    now_s = [time.monotonic()]
    stack = Stack([one, other], ["one", "other"], 20.0, lambda: now_s[0])
    all_up(stack)
    other_pid = other.component.pid
    first_pid = kill(one)
    assert stack.tick()
    assert one.state is State.DOWN
    now_s[0] += 19.9
    assert not stack.tick()
    now_s[0] += 0.2
    assert stack.tick()
    assert (one.state, one.restarts) == (State.STARTING, 1)
    all_up(stack)
    assert one.component.pid != first_pid
    assert (other.component.pid, other.restarts) == (other_pid, 0)


def test_one_that_never_comes_up_fails_with_its_log(part: MakePart, tmp_path: Path) -> None:
    stack = Stack([part("gateway", CRASHES)], ["gateway"], 1.0)
    with pytest.raises(CommandError) as failed:
        eventually(lambda: ticked(stack).all_up)
    assert str(failed.value) == (
        f"gateway ended with 3 while starting; the end of {tmp_path / 'gateway.log'}:\nbad wiring"
    )


def test_one_that_hangs_while_starting_fails(part: MakePart) -> None:
    one = part("one", "import time; print('still loading', flush=True); time.sleep(600)")
    now_s = [time.monotonic()]
    stack = Stack([one], ["one"], 1.0, lambda: now_s[0])
    stack.tick()
    now_s[0] += 20.1
    with pytest.raises(CommandError, match=r"(?s)^one was not up after 20 s; .*"):
        stack.tick()
    assert one.component.exit_code == -signal.SIGTERM


def test_one_that_cant_be_launched_fails(tmp_path: Path) -> None:
    class NoJars(Program):
        def _spawn(self) -> Child:
            raise CloudError("no jars")

    part = Part("kafka", NoJars(lambda: (), tmp_path / "kafka.log", lambda _: False))
    with pytest.raises(CommandError, match=r"^kafka can't be started: no jars; the end of .*kafka\.log:\n$"):
        Stack([part], ["kafka"], 1.0).tick()


def test_they_stop_in_order_and_stay_stopped(part: MakePart, tmp_path: Path) -> None:
    ends = tmp_path / "ends"
    names = ("broker", "gateway", "jobs")
    parts = [part(name, SAYS_ITS_END, str(ends), name) for name in names]
    stack = Stack(parts, ["gateway", "jobs", "broker"], 0.0)
    all_up(stack)
    stack.stop("gateway")
    assert ends.read_text() == "gateway\n"
    assert not stack.tick()
    stack.stop()
    stack.stop()
    assert ends.read_text() == "gateway\njobs\nbroker\n"
    assert {one.state for one in parts} == {State.STOPPED}
    assert [one.component.exit_code for one in parts] == [0, 0, 0]


def test_a_stopped_programs_own_children_are_ended_too(part: MakePart, tmp_path: Path) -> None:
    child = tmp_path / "child"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen((sys.executable, '-c', 'import time; time.sleep(600)'))\n"
        f"open({str(child)!r}, 'w').write(str(child.pid))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    jobs = part("jobs", code)
    jobs.component.stop_timeout_s = 0.5
    stack = Stack([jobs], ["jobs"], 1.0)
    all_up(stack)
    orphan = psutil.Process(int(child.read_text()))
    stack.stop()
    eventually(lambda: not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE)
