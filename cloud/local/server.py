"""A server process of one's own on this machine, for the demo and the tests: loopback only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from cloud.local.process import Child, free_port, last_lines, listening, wait_for

_KILL_TIMEOUT_S: Final = 2.0


class LocalServer(ABC):
    """One process. ``start`` may be called again after ``stop`` or a crash: the port stays.

    Start it from a thread that lives as long as the server should (see ``cloud.local.process``).
    """

    host: Final = "127.0.0.1"
    name: ClassVar[str]
    error: ClassVar[type[Exception]]
    """Raised where it can't be started."""
    start_timeout_s: ClassVar[float]
    stop_timeout_s: ClassVar[float]
    poll_s: ClassVar[float] = 0.05

    def __init__(self, directory: Path, port: int | None, log: str) -> None:
        self.directory = directory.absolute()
        self.port = port or free_port()
        self.log = self.directory / log
        self._child: Child | None = None

    @abstractmethod
    def _spawn(self) -> Child:
        """Start the process; the directory need not be there yet."""

    @property
    def pid(self) -> int | None:
        """The process id, None before the first start."""
        return None if self._child is None else self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while the process runs or before the first start."""
        return None if self._child is None else self._child.exit_code

    def start(self, timeout_s: float | None = None) -> None:
        """Start and wait until it answers. Raises ``error``, with the end of its log."""
        timeout_s = timeout_s or self.start_timeout_s
        self.launch()
        wait_for(lambda: self.exit_code is not None or self.answers(), timeout_s, poll_s=self.poll_s)
        if self.exit_code is not None or not self.answers():
            why = (
                f"ended with {self.exit_code}"
                if self.exit_code is not None
                else f"not up after {timeout_s:g} s"
            )
            self.stop()
            raise self.error(f"{self.name} {why}; the end of {self.log}:\n{last_lines(self.log)}")

    def launch(self) -> None:
        """Start the process without waiting for it to answer."""
        if self._child is not None and self._child.exit_code is None:
            return
        self.stop()
        if listening(self.port):
            raise self.error(f"something else listens on {self.host}:{self.port} already")
        self._child = self._spawn()

    def answers(self) -> bool:
        """True when it accepts connections."""
        return listening(self.port)

    def stop(self, timeout_s: float | None = None) -> None:
        """SIGTERM, and SIGKILL past the timeout; safe to call twice."""
        if self._child is not None:
            self._child.stop(timeout_s or self.stop_timeout_s)

    def restart(self) -> None:
        """Stop and start on the same port."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone: then ``start`` starts a new one."""
        if self._child is not None:
            self._child.kill()
            # Polled, not waited for: a second Ctrl-C calls this from a signal handler.
            wait_for(lambda: self.exit_code is not None, _KILL_TIMEOUT_S, poll_s=0.005)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
