"""Programs on this machine for the demo and the tests, and loopback servers among them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Final, Self

from cloud.local.process import Child, free_port, last_lines, listening, wait_for

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
