"""Who may look: a token, compared in constant time, and a time after which it opens nothing any more.

Whoever guesses is slowed, by address: after five wrong tokens within a minute nothing that comes from there
is even compared until the oldest is a minute old. Against many addresses the token's length stands alone.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from enum import Enum
from hashlib import sha256
from typing import Final

MOST_WRONG: Final = 5
WINDOW_S: Final = 60.0
# A liar has as many addresses as his network gives him; the oldest are forgotten.
_MOST_PEERS: Final = 1_000

# Nothing that looks like something else, for it may have to be typed: 31 letters, 79 bits in sixteen.
_LETTERS: Final = "abcdefghjkmnpqrstuvwxyz23456789"


def new_token() -> str:
    """Sixteen random letters and digits: 79 bits."""
    return "".join(secrets.choice(_LETTERS) for _ in range(16))


class Verdict(Enum):
    """What becomes of a request."""

    ADMITTED = "admitted"
    CLOSED = "closed"
    """The gate's time is over, or it never had a token."""
    MISSING = "missing"
    EARLIER = "earlier"
    """The token of a gate that was here before."""
    WRONG = "wrong"
    WAIT = "wait"
    """Too many wrong tokens came from there."""


class Gate:
    """Any thread may ask.

    ``token``: None lets nobody in. ``until_s`` is when it closes, by ``monotonic``; None is never.
    ``earlier`` tokens open nothing either, but who still has one isn't guessing: a page that was left open.
    """

    def __init__(
        self,
        token: str | None,
        until_s: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        earlier: Collection[str] = (),
    ) -> None:
        # Digests have one length: comparing them tells nothing of the token's own.
        self._digest = None if token is None else _digest(token)
        self._earlier = [_digest(each) for each in earlier]
        self._until_s = until_s
        self._monotonic = monotonic
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def left_s(self) -> float | None:
        """Seconds until it closes, 0 once it has; None where it never does."""
        return None if self._until_s is None else max(self._until_s - self._monotonic(), 0.0)

    @property
    def is_open(self) -> bool:
        """Whether the right token opens it."""
        return self._digest is not None and self.left_s != 0.0

    def admit(self, offered: str | None, peer: str) -> Verdict:
        """Judge a token that came from an address."""
        if self._digest is None or not self.is_open:
            return Verdict.CLOSED
        with self._lock:
            if self._must_wait(peer):
                return Verdict.WAIT
            if offered is None:
                return Verdict.MISSING
            digest = _digest(offered)
            if hmac.compare_digest(digest, self._digest):
                return Verdict.ADMITTED
            if any(hmac.compare_digest(digest, each) for each in self._earlier):
                return Verdict.EARLIER
            self._note(peer)
            return Verdict.WRONG

    def _must_wait(self, peer: str) -> bool:
        times = self._wrong.get(peer)
        if times is None:
            return False
        while times and times[0] <= self._monotonic() - WINDOW_S:
            times.popleft()
        return len(times) >= MOST_WRONG

    def _note(self, peer: str) -> None:
        self._wrong.setdefault(peer, deque()).append(self._monotonic())
        self._wrong.move_to_end(peer)
        while len(self._wrong) > _MOST_PEERS:
            self._wrong.popitem(last=False)


def _digest(token: str) -> bytes:
    return sha256(token.encode(errors="surrogateescape")).digest()
