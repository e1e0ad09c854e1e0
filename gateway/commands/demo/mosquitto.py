"""A private Mosquitto on loopback, for the demo and the tests."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cloud.local.process import Child, free_port, last_lines, listening, wait_for
from gateway.commands.demo.errors import DemoError

_CONFIGURATION: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
# With persistence on, a damaged mosquitto.db keeps the broker from ever starting again, and kill -9 loses it
# all the same.
persistence false
# A larger packet disconnects its publisher. Over 1 MiB becomes a dead letter, so let some more than that in.
max_packet_size 8388608
max_inflight_messages 1000
max_queued_messages 100000
max_queued_bytes 67108864
{user}{settings}log_dest stderr
log_timestamp_format %Y-%m-%dT%H:%M:%S
"""

_AS_ROOT: Final = """\
# Started by root it would change its user, and with that lose the signal that ends it with its parent.
user root
"""

_KILL_TIMEOUT_S: Final = 2.0


class MosquittoError(DemoError):
    """The private Mosquitto can't be started; the message says what to do."""


def _program() -> str:
    # Debian keeps it in /usr/sbin, which a plain user's PATH lacks.
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))
    program = shutil.which("mosquitto", path=path)
    if program is None:
        raise MosquittoError("mosquitto is not installed: run `make setup`")
    return program


class LocalMosquitto:
    """One Mosquitto process; it remembers nothing across a restart, the port stays.

    ``settings`` are further lines of its configuration file; the last of a key counts.
    """

    host: Final = "127.0.0.1"

    def __init__(self, directory: Path, *, port: int | None = None, settings: str = "") -> None:
        self.directory = directory.absolute()
        self.port = port or free_port()
        self._settings = settings
        self.log = self.directory / "mosquitto.log"
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """The process id, None before the first start."""
        return None if self._child is None else self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while the process runs or before the first start."""
        return None if self._child is None else self._child.exit_code

    def start(self, timeout_s: float = 10.0) -> None:
        """Start and wait until it listens. Raises MosquittoError, with the end of its log."""
        self.launch()
        wait_for(lambda: self.exit_code is not None or self.answers(), timeout_s, poll_s=0.01)
        if self.exit_code is not None or not self.answers():
            why = (
                f"ended with {self.exit_code}"
                if self.exit_code is not None
                else f"not up after {timeout_s:g} s"
            )
            self.stop()
            raise MosquittoError(f"Mosquitto {why}; the end of {self.log}:\n{last_lines(self.log)}")

    def launch(self) -> None:
        """Start the process without waiting for it to listen."""
        if self._child is not None and self._child.exit_code is None:
            return
        self.stop()
        if self.answers():
            raise MosquittoError(f"something else listens on {self.host}:{self.port} already")
        program = _program()
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "mosquitto.conf"
        configuration.write_text(
            _CONFIGURATION.format(
                port=self.port, user=_AS_ROOT if os.geteuid() == 0 else "", settings=self._settings
            )
        )
        self._child = Child((program, "-c", str(configuration)), self.log, parent_death_signal=signal.SIGKILL)

    def answers(self) -> bool:
        """True when it accepts connections."""
        return listening(self.port)

    def stop(self, timeout_s: float = 5.0) -> None:
        """SIGTERM, and SIGKILL past the timeout; safe to call twice."""
        if self._child is not None:
            self._child.stop(timeout_s)

    def restart(self, timeout_s: float = 10.0) -> None:
        """Stop and start on the same port: sessions and retained messages are gone."""
        self.stop()
        self.start(timeout_s)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone: then nobody listens, and ``start`` starts a new one."""
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
