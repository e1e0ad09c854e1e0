"""Keeps an old record of a run, a channel, a site or the gateway itself from overtaking a newer one.

``gateway.runs``, ``gateway.channels``, ``gateway.sites`` and ``gateway.status`` are compacted: of each key
Kafka keeps the record that came last. One that was stored during an outage must not come after one that has
been sent since, nor the last will of an earlier run after this run's status.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from cloud.wire.channel_records import CHANNELS_TOPIC
from cloud.wire.reading_records import RUNS_TOPIC, STATUS_TOPIC
from cloud.wire.site_records import SITES_TOPIC
from gateway.ports import Record

_SENT_AT_START: Final = frozenset({CHANNELS_TOPIC, SITES_TOPIC, STATUS_TOPIC})
_REVISED: Final = _SENT_AT_START | {RUNS_TOPIC}
# A run has one row a minute of its outages at most; a gateway that starts again all the time has many runs.
_REMEMBERED: Final = 1_000
_CLOSED: Final = frozenset({"stopped", "killed"})

_Rank = tuple[bool, int]


class CompactedTopics:
    """The newest record of each run that Kafka has, of each channel, and the gateway's own newest status.

    ``run`` is this run, whose records count more than any other's. Owned by the forwarder's thread.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._newest: OrderedDict[tuple[str, bytes], tuple[_Rank, Record | None]] = OrderedDict()

    def entered(self, record: Record) -> None:
        """A record is on its way. Older ones needn't go any more, of topics that each start fills again."""
        if record.topic in _SENT_AT_START:
            self.delivered(record)

    def delivered(self, record: Record) -> Record | None:
        """Kafka has a record, of whatever topic. A newer one in its place, if there is one.

        Both were under way at once, so the newer one is to be sent again. (A run soon has a next one.)
        """
        if record.topic not in _REVISED:
            return None
        place, rank = (record.topic, record.key), self._rank(record)
        known = self._newest.pop(place, None)
        overtaken = known is not None and known[0] > rank
        newest = known if overtaken and known else (rank, record if record.topic in _SENT_AT_START else None)
        self._newest[place] = newest
        if len(self._newest) > _REMEMBERED:
            self._newest.popitem(last=False)
        return newest[1] if overtaken else None

    def is_stale(self, record: Record) -> bool:
        """Whether a newer record takes its place: one on its way, or for a run one that Kafka has."""
        newest = self._newest.get((record.topic, record.key)) if record.topic in _REVISED else None
        return newest is not None and self._rank(record) < newest[0]

    def _rank(self, record: Record) -> _Rank:
        """A run's closing record is newer than any other of it; one without a revision is the oldest.

        A status of another run is older than any of this one; two of others come in the order they stand in.
        """
        try:
            fields = msgspec.json.decode(record.value)
            revision = fields.get("revision", -1)
            revision = revision if type(revision) is int else -1
            if record.topic == STATUS_TOPIC:
                own = fields.get("run") == self._run
                return own, revision if own else -1
            return fields.get("state") in _CLOSED, revision
        except (ValueError, AttributeError, TypeError, RecursionError):
            return False, -1
