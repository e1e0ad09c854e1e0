"""A person at a terminal: reads until words come, and types."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

COLUMNS: Final = 40


class Person:
    """At a terminal of 40 columns."""

    def __init__(self, terminal: int, process: subprocess.Popen[bytes], wait_s: float) -> None:
        self._terminal, self.process, self._wait_s = terminal, process, wait_s
        self.seen, self._read = "", 0

    def until(self, words: str) -> str:
        """What came until these words, however they are broken into lines; searched behind the last."""
        pattern = re.compile(r"\s+".join(map(re.escape, words.split())))
        end_s = time.monotonic() + self._wait_s
        while True:
            found = pattern.search(self.seen, self._read)
            if found:
                shown, self._read = self.seen[self._read : found.end()], found.end()
                return shown
            left_s = end_s - time.monotonic()
            assert left_s > 0, f"no {words!r} in {self.seen[self._read :]!r}"
            ready, _, _ = select.select([self._terminal], [], [], left_s)
            if ready:
                try:
                    came = os.read(self._terminal, 4096)
                except OSError:
                    came = b""
                assert came, f"it ended without {words!r}: {self.seen[self._read :]!r}"
                self.seen += came.decode(errors="replace").replace("\r\n", "\n")

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode() + b"\n")

    def hang_up(self) -> None:
        """The connection is gone."""
        os.close(self._terminal)
        self._terminal = -1
        self.process.wait(self._wait_s)

    def close(self) -> None:
        if self._terminal >= 0:
            os.close(self._terminal)


@contextmanager
def at_a_terminal(
    command: Sequence[str | Path], wait_s: float = 90.0, environment: Mapping[str, str] | None = None
) -> Iterator[Person]:
    """A command on a terminal of its own."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["setsid", "--ctty", "--wait", *command],
        stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "COLUMNS": str(COLUMNS), **(environment or {})},
    ) as process:  # fmt: skip
        os.close(theirs)
        person = Person(ours, process, wait_s)
        try:
            yield person
        finally:
            person.close()
            if process.poll() is None:
                process.kill()
