"""A DHT's data line on real pins: durations from a process that times it (``dht_process.py``).

The process is started once, with the sensor. One that hangs or dies is ended and started again; the reading
under way is a ReadError. After a failure the pipes are new, so requests and answers always match.
"""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from drivers.interface import BoardError, ReadError

_log = logging.getLogger(__name__)

START_S: Final = 30.0
"""A small Pi takes several seconds to start Python and load the library."""
ANSWER_S: Final = 3.0
"""A request takes 0.4 s."""
_RESTART_AFTER_S: Final = 10.0
"""From one start to the next, so that a process that dies each time doesn't load the machine."""
_END_S: Final = 1.0
_LONGEST_ANSWER: Final = 4096
_REMEDY: Final = "the DHT11 needs a Raspberry Pi's header and fieldgate's extra 'pi'"


def environment(source: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """The process's environment: it imports this package from where this program did.

    An installed one is found anyway, and its directory must not stand before the standard library's.
    """
    if source.name in ("site-packages", "dist-packages"):
        return dict(inherited)
    paths = filter(None, (str(source), inherited.get("PYTHONPATH")))
    return {**inherited, "PYTHONPATH": os.pathsep.join(paths)}


class DhtLine:
    """One line's process, owned by the sensor's thread. Times are in seconds."""

    def __init__(
        self, pin: int, answer_s: float = ANSWER_S, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._pin = pin
        self._answer_s = answer_s
        self._monotonic = monotonic
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = float("-inf")
        self._received = b""

    @property
    def pid(self) -> int | None:
        """The process now; None where there is none."""
        return None if self._process is None else self._process.pid

    def open(self) -> None:
        """Start the process. Raises BoardError where it can't reach the pin."""
        self.close()
        self._started_s = self._monotonic()
        self._received = b""
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "drivers.hardware.dht_process", f"D{self._pin}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env=environment(Path(__file__).resolve().parents[2], os.environ),
                start_new_session=True,  # Ctrl-C is the gateway's
            )
        except OSError as error:
            raise BoardError(f"the process that times the DHT11's line can't be started: {error}") from error
        try:
            word, rest = self._answer(START_S)
        except ReadError as error:
            raise BoardError(f"{error}: {_REMEDY}") from error
        if word != "ready":
            self.close()
            raise BoardError(f"pin {self._pin} can't be opened ({rest}): {_REMEDY}")

    def edges(self) -> array[int]:
        """Request a conversion; the line's durations in µs, starting low. Raises ReadError, BoardError."""
        if self._process is None:
            wait_s = self._started_s + _RESTART_AFTER_S - self._monotonic()
            if wait_s > 0:
                raise ReadError(f"the process that times pin {self._pin} is started again in {wait_s:.0f} s")
            self.open()
            _log.warning("event=dht.restarted pin=%d pid=%s", self._pin, self.pid)
        self._request()
        word, rest = self._answer(self._answer_s)
        if word == "edges":
            try:
                return array("H", map(int, rest.split()))
            except (ValueError, OverflowError) as error:
                raise self._failed(f"answers {rest[:40]!r}") from error
        if word == "error":
            raise ReadError(f"pin {self._pin} can't be read: {rest}")
        raise self._failed(f"answers {word[:40]!r}")

    def close(self) -> None:
        """End the process; safe to call twice."""
        process, self._process = self._process, None
        if process is None or process.stdin is None or process.stdout is None:
            return
        process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _request(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.write(b"\n")
            except OSError as error:
                raise self._failed("has died") from error

    def _answer(self, timeout_s: float) -> tuple[str, str]:
        """The next line's first word, and the rest. Raises ReadError, with the process ended."""
        process = self._process
        if process is None or process.stdout is None:
            raise ReadError(f"pin {self._pin} isn't opened")
        deadline_s = time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        while b"\n" not in self._received:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not poll.poll(left_s * 1000):
                raise self._failed(f"hasn't answered for {timeout_s:g} s")
            received = os.read(process.stdout.fileno(), _LONGEST_ANSWER)
            if not received:
                raise self._failed("has died")
            self._received += received
            if len(self._received) > _LONGEST_ANSWER:
                raise self._failed("answers too much")
        line, _, self._received = self._received.partition(b"\n")
        word, _, rest = line.decode(errors="replace").partition(" ")
        return word, rest

    def _failed(self, what: str) -> ReadError:
        """End a process that has failed."""
        if self._process is not None:
            self._process.kill()
        self.close()
        return ReadError(f"the process that times pin {self._pin} {what}; it is started again")
