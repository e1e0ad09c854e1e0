"""A gateway's access to Kafka on its way from a phone to ``fieldgate phone --access``.

The daemon can't write its config's directory and needn't: the command runs as root, waits, validates and
writes. What a phone posts is here until the command takes it, once, and never on disk. Any thread may call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

_WANTED_S: Final = 5.0
"""After the command's last request; it has one each second."""
_ANSWER_S: Final = 20.0
MOST_BYTES: Final = 48 << 10
"""As JSON: it has to pass the control socket."""
NOBODY: Final = "nothing is taken now: on the gateway, run `sudo fieldgate phone --access`"


class AccessUpload:
    """One file at a time."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._wanted_s = float("-inf")
        self._posted: str | None = None
        self._problem: str | None = None
        self._taken = False
        self._answered = threading.Event()
        self._one = threading.Lock()

    @property
    def wanted(self) -> bool:
        """Whether the command waits for a file."""
        return self._monotonic() < self._wanted_s + _WANTED_S

    def put(self, text: str) -> None:
        """Hand a file to the command; returns once it is written. Raises ValueError with the reason."""
        if not self.wanted or not self._one.acquire(blocking=False):
            raise ValueError(NOBODY)
        try:
            if len(msgspec.json.encode(text)) > MOST_BYTES:
                raise ValueError("this is no access file: it is too long")
            self._answered.clear()
            self._taken = False
            self._posted = text
            if not self._answered.wait(_ANSWER_S):
                raise ValueError("no answer from `fieldgate phone --access`: look there")
            if self._problem is not None:
                raise ValueError(self._problem)
        finally:
            self._posted = None
            self._one.release()

    def take(self) -> str | None:
        """What was posted, for the command, which is known to wait from now on."""
        self._wanted_s = self._monotonic()
        posted, self._posted = self._posted, None
        self._taken = self._taken or posted is not None
        return posted

    def answer(self, problem: str | None) -> None:
        """The command has written it, or has not, for a reason."""
        if problem is None:
            self._wanted_s = float("-inf")
        # Else it is about a file that nobody waits for any more.
        if self._taken:
            self._problem = problem
            self._answered.set()
