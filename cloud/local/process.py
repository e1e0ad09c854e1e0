"""Child processes that never outlive the program that started them.

The kernel signals a child when the *thread* that started it ends (prctl(2), PR_SET_PDEATHSIG), so start them
from a thread that lives as long as they should: usually the main one. setpriv(1) arms the signal and
becomes the program, so ``pid`` is the program's own and no Python code runs between fork and exec.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, Self

_LOWEST_PORT, _HIGHEST_PORT = 20_000, 32_000
"""Below Linux' ephemeral range (from 32768): a client that retries a closed ephemeral port on loopback can
connect to itself and so keep the server from ever coming back."""


def free_port() -> int:
    """A TCP port without a listener at 127.0.0.1; random, so that two programs hardly pick the same."""
    for _ in range(200):
        port = random.randint(_LOWEST_PORT, _HIGHEST_PORT)  # noqa: S311
        with socket.socket() as probe:
            # Servers do so too: a port whose last connections linger in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free TCP port from {_LOWEST_PORT} to {_HIGHEST_PORT} on 127.0.0.1")


def listening(port: int) -> bool:
    """True when something accepts connections on this port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(condition: Callable[[], bool], timeout_s: float, poll_s: float = 0.05) -> bool:
    """Poll until the condition holds (True) or the time is over (False)."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll_s)
    return True


class Child:
    """One program in a session of its own, its output appended to ``log``; dies with the starting thread.

    The session keeps Ctrl-C at the terminal from reaching it: whoever started it decides the order in which
    things stop. It also identifies what the program started itself.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        parent_death_signal: signal.Signals = signal.SIGKILL,
    ) -> None:
        self.command = tuple(command)
        self.log = log
        launcher = ("setpriv", "--pdeathsig", parent_death_signal.name, "--")
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                (*launcher, *command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if environment is None else {**os.environ, **environment},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The program's process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; the negative signal number when a signal ended it."""
        return self._process.poll()

    def stop(self, timeout_s: float) -> int:
        """SIGTERM to the program, SIGKILL past the timeout; then whatever it started is ended too.

        Returns the program's exit code.
        """
        deadline = time.monotonic() + timeout_s
        self._process.terminate()
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        # A JVM ends a moment after the program that owned it.
        if not wait_for(lambda: not self._left_over(), max(deadline - time.monotonic(), 1.0)):
            self.kill()
        return code

    def kill(self) -> None:
        """SIGKILL to the program and to everything it started."""
        for pid in (*self._left_over(), *(() if self._process.poll() is not None else (self.pid,))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _left_over(self) -> list[int]:
        """Living processes of the program's session, itself excepted."""
        return [pid for pid in _session(self.pid) if pid != self.pid]


def _session(leader: int) -> Iterator[int]:
    """Processes of a session, zombies excepted."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name, in brackets, may hold anything; state, parent, group and session follow it.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == leader and fields[0] not in "ZX":
            yield int(entry.name)


def last_lines(log: Path, count: int = 12) -> str:
    """The end of a log file, for an error message; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 64 * 1024))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(line[:400] for line in lines[-count:])


_ARCHIVE: Final = "classes.jsa"
SILENT: Final = "-Xlog:cds=off,cds+dynamic=off,class+load=off"


def shared_classes(jars: Path) -> list[str]:
    """Options of a JVM that uses the archive of classes beside a folder's jars; none without one.

    The archive has Java's classes as they are in memory once loaded: a JVM that finds them there starts in
    half the time. It is made once, during the first ``make run`` (JEP 350, "Dynamic CDS Archives"). The JVM
    itself checks that it was made by the same Java with the same jars, and loads classes as ever where not.
    """
    archive = jars / _ARCHIVE
    return ["-Xshare:auto", f"-XX:SharedArchiveFile={archive}", SILENT] if archive.exists() else []


_KILL_TIMEOUT_S: Final = 2.0


class LocalProgram(ABC):
    """One process, its output in ``log``. ``launch`` may be called again after ``stop`` or a crash.

    Launch it from a thread that lives as long as the process should (see ``cloud.local.process``).
    """

    start_timeout_s: float
    stop_timeout_s: float

    def __init__(self, log: Path) -> None:
        self.log = log
        self._child: Child | None = None

    @abstractmethod
    def _spawn(self) -> Child:
        """Start the process; the log's directory need not be there yet."""

    @abstractmethod
    def answers(self) -> bool:
        """True when it is up."""

    @property
    def pid(self) -> int | None:
        """The process id, None before the first start."""
        return None if self._child is None else self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while the process runs or before the first start."""
        return None if self._child is None else self._child.exit_code

    @property
    def _runs(self) -> bool:
        return self._child is not None and self._child.exit_code is None

    def launch(self) -> None:
        """Start the process without waiting for it to answer; what an earlier one left is ended first."""
        if not self._runs:
            self.stop()
            self._child = self._spawn()

    def stop(self, timeout_s: float | None = None) -> None:
        """SIGTERM, and SIGKILL past the timeout; safe to call twice."""
        if self._child is not None:
            self._child.stop(timeout_s or self.stop_timeout_s)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone: then ``launch`` starts a new one."""
        if self._child is not None:
            self._child.kill()
            # Polled, not waited for: a second Ctrl-C calls this from a signal handler.
            wait_for(lambda: self.exit_code is not None, _KILL_TIMEOUT_S, poll_s=0.005)


class LocalServer(LocalProgram):
    """A server on 127.0.0.1; the port stays when it is started again."""

    host: Final = "127.0.0.1"
    name: ClassVar[str]
    error: ClassVar[type[Exception]]
    """Raised where it can't be started."""
    poll_s: ClassVar[float] = 0.05

    def __init__(self, directory: Path, port: int | None, log: str) -> None:
        self.directory = directory.absolute()
        super().__init__(self.directory / log)
        self.port = port or free_port()

    def start(self, timeout_s: float | None = None) -> None:
        """Start and wait until it answers. Raises ``error``, with the end of its log."""
        timeout_s = timeout_s or self.start_timeout_s
        self.launch()
        done = wait_for(lambda: self.exit_code is not None or self.answers(), timeout_s, poll_s=self.poll_s)
        code = self.exit_code
        if not done or code is not None:
            why = f"not up after {timeout_s:g} s" if code is None else f"ended with {code}"
            self.stop()
            raise self.error(f"{self.name} {why}; the end of {self.log}:\n{last_lines(self.log)}")

    def launch(self) -> None:
        """Start the process without waiting for it to answer. Raises ``error`` where its port is taken."""
        if not self._runs and listening(self.port):
            raise self.error(f"something else listens on {self.host}:{self.port} already")
        super().launch()

    def answers(self) -> bool:
        """True when it accepts connections."""
        return listening(self.port)

    def restart(self) -> None:
        """Stop and start on the same port."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
