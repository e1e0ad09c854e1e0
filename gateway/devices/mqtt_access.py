"""Who may connect to the proxy, and publish where. Owned by its thread."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from paho.mqtt.client import topic_matches_sub

from gateway.config.bridges.access_files import StoredPassword, read_access, read_users
from gateway.config.bridges.model import MqttProxyConfig
from gateway.status.tokens import Guesses

_MOST_OF_A_PEER: Final = 50
"""Wrong passwords a minute."""
_MOST_PROVEN: Final = 1_000
_NOBODY: Final = StoredPassword(b"", b"\0" * 64, 101)
"""Checked for users that there are not, so that their names can't be found out by time."""


class MqttAccess:
    """Admits users by the files of a config; without them everyone, to every topic.

    Raises OSError, ValueError.
    """

    def __init__(self, config: MqttProxyConfig, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._users: Mapping[str, StoredPassword] | None = None
        self._filters: Mapping[str, tuple[str, ...]] = {}
        if config.passwords is not None and config.access is not None:
            self._users, self._filters = read_users(config.passwords), read_access(config.access)
        self._by_user = Guesses(monotonic)
        self._by_peer = Guesses(monotonic, _MOST_OF_A_PEER)
        # By what, a hash; oldest first.
        self._proven: OrderedDict[tuple[str, int], int] = OrderedDict()

    @property
    def named(self) -> bool:
        """Whether users have names that are proven."""
        return self._users is not None

    def admits(self, user: str | None, password: bytes | None, peer: str) -> bool:
        """Whether a password that came from an address is that of a user; not after too many wrong ones.

        Five a minute for a name at an address: behind it there may be a whole site, and one wrong device
        keeps no other out. Fifty a minute for an address, whatever the names; who was admitted from there
        before still is. The same password still is after its name's five: others may have guessed.
        """
        if self._users is None:
            return True
        # By hashes: a name may be long, and what is remembered has a bound.
        who, guess = (peer, hash(user)), hash((user, password))
        if self._by_user.is_known(who, guess):
            return False
        if self._by_user.must_wait(who) and self._proven.get(who) != guess:
            return False
        if self._by_peer.must_wait(peer) and who not in self._proven:
            return False
        right = self._users.get(user or "", _NOBODY).matches(password or b"")
        if right:
            self._proven[who] = guess
            self._proven.move_to_end(who)
            if len(self._proven) > _MOST_PROVEN:
                self._proven.popitem(last=False)
        else:
            self._by_user.count(who, guess)
            self._by_peer.count(peer)
        return right

    def allows(self, user: str | None, topic: str) -> bool:
        """Whether a user may publish to a topic."""
        if self._users is None:
            return True
        return any(topic_matches_sub(each, topic) for each in self._filters.get(user or "", ()))
