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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

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
