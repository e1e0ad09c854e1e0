"""Whose pages show what: each user's masts, read by one reader for all who may see the same."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from cloud.command_line import operator
from cloud.config import DashboardUser
from cloud.dashboard.acknowledging import Acknowledge
from cloud.dashboard.fleet import FleetReader
from cloud.dashboard.live import LiveReader, LiveReadings
from cloud.dashboard.marks import MarkBook
from cloud.lake.acknowledgements import acknowledge
from cloud.lake.reader import ALL, LakeReader
from cloud.lake.tables import Lakes


class Audience:
    """Readers by user; ``None`` is anybody, where there are no users."""

    def __init__(
        self, lakes: Lakes, users: Mapping[str, DashboardUser], live: LiveReadings | None = None
    ) -> None:
        self.lakes = lakes
        self.users = users
        self.live_readings = live
        self._masts: dict[str | None, tuple[str, ...]] = {
            name: tuple(sorted(set(user.gateways))) for name, user in users.items()
        }
        if not users:
            self._masts[None] = ALL
        self._readers = {masts: LakeReader(lakes, masts) for masts in self._masts.values()}
        self._fleets = {
            masts: FleetReader(reader, LiveReader(live, masts)) for masts, reader in self._readers.items()
        }

    def reader(self, user: str | None) -> LakeReader:
        """The lake as the user may see it."""
        return self._readers[self._masts[user]]

    def live(self, user: str | None) -> LiveReader:
        """What is live of the user's masts."""
        return LiveReader(self.live_readings, self._masts[user])

    def fleet(self, user: str | None) -> FleetReader:
        """The fleet as the user may see it."""
        return self._fleets[self._masts[user]]

    def marks(self, user: str | None) -> MarkBook:
        """The cleaning log as the user may see it, and add to it; without users it is who runs the pages."""
        if user is None:
            return MarkBook(self.reader(user), operator())
        return MarkBook(self.reader(user), user if self.users[user].marks else None)

    def acknowledging(self, user: str | None) -> Acknowledge | None:
        """What acknowledges alerts as the user, of its masts alone; None for one who may not."""
        if user is not None and not self.users[user].acknowledge:
            return None
        return partial(acknowledge, self.reader(user), user or operator())

    def look(self) -> bool:
        """Looks at the tables' versions; whether one has changed. Raises LakeError where there is no lake."""
        first, *others = self._readers.values()
        before = first.seen
        seen = first.look()
        for each in others:
            each.seen = seen
        return seen != before
