"""Access by token: compared in constant time, and for a limited time.

Guessing is rate-limited by address: after five wrong tokens within a minute no further one of the page's is
compared until the oldest is a minute old. Against many addresses the token's length alone protects; so it
does a device's everywhere: behind an address there may be others with a wrong one.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Mapping
from enum import Enum
from hashlib import sha256
from typing import Final

MOST_WRONG: Final = 5
WINDOW_S: Final = 60.0
# Caps the number of remembered addresses; the oldest go first.
_MOST_PEERS: Final = 1_000

# No characters that look alike, as it may be typed: 31 of them, 79 bits in sixteen.
_LETTERS: Final = "abcdefghjkmnpqrstuvwxyz23456789"


def new_token() -> str:
    """Sixteen random letters and digits: 79 bits."""
    return "".join(secrets.choice(_LETTERS) for _ in range(16))


class Access(Enum):
    """Distinguishes an admitted request and the reasons of a refusal."""

    ADMITTED = "admitted"
    CLOSED = "closed"
    """The time is over, or there is no token."""
    MISSING = "missing"
    EARLIER = "earlier"
    """The token of an earlier access."""
    WRONG = "wrong"
    WAIT = "wait"
    """Too many wrong tokens from this address."""


class Gate:
    """Checks tokens; called by any thread.

    ``token``: None admits nothing. ``until_s`` is when access ends, by ``monotonic``; None is never.
    ``earlier`` tokens are refused but not counted as guesses: they come from pages that were left open.
    """

    def __init__(
        self,
        token: str | None,
        until_s: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        earlier: Collection[str] = (),
    ) -> None:
        # Digests have one length: comparing them reveals nothing about the token's.
        self._digest = None if token is None else _digest(token)
        self._earlier = [_digest(each) for each in earlier]
        self._until_s = until_s
        self._monotonic = monotonic
        self._guesses = Guesses(monotonic)
        self._lock = threading.Lock()

    @property
    def left_s(self) -> float | None:
        """Returns the seconds until access ends, 0 after that; None without an end."""
        return None if self._until_s is None else max(self._until_s - self._monotonic(), 0.0)

    @property
    def is_open(self) -> bool:
        """Returns True while the right token is admitted."""
        return self._digest is not None and self.left_s != 0.0

    def admit(self, offered: str | None, peer: str) -> Access:
        """Checks a token that came from an address."""
        if self._digest is None or not self.is_open:
            return Access.CLOSED
        with self._lock:
            if self._guesses.must_wait(peer):
                return Access.WAIT
            if offered is None:
                return Access.MISSING
            digest = _digest(offered)
            if hmac.compare_digest(digest, self._digest):
                return Access.ADMITTED
            if any(hmac.compare_digest(digest, each) for each in self._earlier):
                return Access.EARLIER
            self._guesses.count(peer)
            return Access.WRONG


class Guesses:
    """Remembers wrong secrets by their sender, an address for instance. Not thread-safe."""

    def __init__(self, monotonic: Callable[[], float], most: int = MOST_WRONG) -> None:
        self._monotonic = monotonic
        self._most = most
        # When, and what: a hash.
        self._wrong: OrderedDict[Hashable, deque[tuple[float, int | None]]] = OrderedDict()

    def must_wait(self, peer: Hashable) -> bool:
        """Returns True while no further secret of this sender is compared."""
        times = self._wrong.get(peer, deque())
        return len(times) == self._most and times[0][0] > self._monotonic() - WINDOW_S

    def is_known(self, peer: Hashable, what: int) -> bool:
        """Returns True if the sender offered this wrong secret within the window: it is no further guess."""
        begin_s = self._monotonic() - WINDOW_S
        return any(each == what and at_s > begin_s for at_s, each in self._wrong.get(peer, ()))

    def count(self, peer: Hashable, what: int | None = None) -> None:
        """Counts a wrong secret."""
        self._wrong.setdefault(peer, deque(maxlen=self._most)).append((self._monotonic(), what))
        self._wrong.move_to_end(peer)
        while len(self._wrong) > _MOST_PEERS:
            self._wrong.popitem(last=False)


class DeviceTokens:
    """Maps tokens, by the SHA-256 of each, to devices. Any thread may call it.

    A right token always has access. After five wrong ones their sender has to wait; the same one counts once.
    """

    def __init__(self, devices: Mapping[bytes, str], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._devices = devices
        self._guesses = Guesses(monotonic)
        self._lock = threading.Lock()

    def admit(self, offered: str | None, peer: str) -> str | Access:
        """Returns the device of a token that came from an address, or why it has no access."""
        digest = b"" if offered is None else _digest(offered)
        # How long looking up a digest takes reveals nothing about a token.
        if (device := self._devices.get(digest)) is not None:
            return device
        with self._lock:
            if self._guesses.is_known(peer, hash(digest)):
                return Access.WRONG
            if self._guesses.must_wait(peer):
                return Access.WAIT
            if not digest:
                return Access.MISSING
            self._guesses.count(peer, hash(digest))
            return Access.WRONG


def _digest(token: str) -> bytes:
    return sha256(token.encode(errors="surrogateescape")).digest()
