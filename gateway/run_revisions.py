"""Keeps an old record of a run or a channel from overtaking a newer one.

``gateway.runs`` and ``gateway.channels`` are compacted: of each key Kafka keeps the record that came last.
One that was stored during an outage must not come after one that has been sent since.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Final

from cloud.channel_records import CHANNELS_TOPIC
from cloud.schema import RUNS_TOPIC
from gateway.ports import Record

_REVISED: Final = frozenset({RUNS_TOPIC, CHANNELS_TOPIC})
# A run has one row a minute of its outages at most; a gateway that starts again all the time has many runs.
_REMEMBERED: Final = 1_000
_LAST_WORDS: Final = frozenset({"stopped", "killed"})

_Rank = tuple[bool, int]


class RunRevisions:
    """The newest record of each run that Kafka has, and of each channel. Owned by the forwarder's thread."""

    def __init__(self) -> None:
        self._newest: OrderedDict[tuple[str, bytes], tuple[_Rank, Record | None]] = OrderedDict()

    def entered(self, record: Record) -> None:
        """A record is on its way. A channel's older ones needn't go any more: a start tells it all again."""
        if record.topic == CHANNELS_TOPIC:
            self.delivered(record)

    def delivered(self, record: Record) -> Record | None:
        """Kafka has a record, of whatever topic. A newer one of its channel, if there is one.

        Both were under way at once, so the newer one is to be sent again. (A run soon has a next one.)
        """
        if record.topic not in _REVISED:
            return None
        place, rank = (record.topic, record.key), _rank(record)
        known = self._newest.pop(place, None)
        overtaken = known is not None and known[0] > rank
        newest = known if overtaken and known else (rank, record if record.topic == CHANNELS_TOPIC else None)
        self._newest[place] = newest
        if len(self._newest) > _REMEMBERED:
            self._newest.popitem(last=False)
        return newest[1] if overtaken else None

    def is_stale(self, record: Record) -> bool:
        """Whether there is a newer record of the same channel, or Kafka has one of the same run."""
        newest = self._newest.get((record.topic, record.key)) if record.topic in _REVISED else None
        return newest is not None and _rank(record) < newest[0]


def _rank(record: Record) -> _Rank:
    """A run's last words are newer than anything else of it; a record without a revision is the oldest."""
    try:
        fields = json.loads(record.value)
        revision = fields.get("revision", -1)
        return fields.get("state") in _LAST_WORDS, revision if type(revision) is int else -1
    except (ValueError, AttributeError, TypeError, RecursionError):
        return False, -1
