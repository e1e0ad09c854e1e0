"""Who may connect to the proxy, and publish where. Owned by its thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from paho.mqtt.client import topic_matches_sub

from gateway.config.bridges.model import MqttProxyConfig
from gateway.config.bridges.mqtt_proxy import StoredPassword, read_access, read_users
from gateway.status.tokens import Guesses

_NOBODY: Final = StoredPassword(b"", b"\0" * 64, 101)
"""Checked for users that there are not, so that their names can't be found out by time."""


class MqttAccess:
    """By the files of a config; without them everyone is admitted, to every topic.

    Raises OSError, ValueError.
    """

    def __init__(self, config: MqttProxyConfig, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._users: Mapping[str, StoredPassword] | None = None
        self._filters: Mapping[str, tuple[str, ...]] = {}
        if config.passwords is not None and config.access is not None:
            self._users, self._filters = read_users(config.passwords), read_access(config.access)
        self._guesses = Guesses(monotonic)

    @property
    def named(self) -> bool:
        """Whether users have names that are proven."""
        return self._users is not None

    def admits(self, user: str | None, password: bytes | None, peer: str) -> bool:
        """Whether a password that came from an address is that of a user; not after too many wrong ones."""
        if self._users is None:
            return True
        if self._guesses.must_wait(peer):
            return False
        right = self._users.get(user or "", _NOBODY).matches(password or b"")
        if not right:
            self._guesses.count(peer)
        return right

    def allows(self, user: str | None, topic: str) -> bool:
        """Whether a user may publish to a topic."""
        if self._users is None:
            return True
        return any(topic_matches_sub(each, topic) for each in self._filters.get(user or "", ()))
