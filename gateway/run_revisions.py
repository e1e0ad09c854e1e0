"""Keeps an old run record from overtaking a newer one.

``gateway.runs`` is compacted: of each run Kafka keeps the record that came last. One that was stored during
an outage must not come after one that has been sent since.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Final

from cloud.schema import RUNS_TOPIC
from gateway.ports import Record

# A run has one row a minute of its outages at most; a gateway that starts again all the time has many runs.
_REMEMBERED: Final = 1_000
_LAST_WORDS: Final = frozenset({"stopped", "killed"})

_Rank = tuple[bool, int]


class RunRevisions:
    """The newest record of each run that Kafka has. Owned by the forwarder's thread."""

    def __init__(self) -> None:
        self._newest: OrderedDict[bytes, _Rank] = OrderedDict()

    def delivered(self, record: Record) -> None:
        """Kafka has a record, of a run or not."""
        if record.topic != RUNS_TOPIC:
            return
        self._newest[record.key] = max(_rank(record), self._newest.pop(record.key, (False, -1)))
        if len(self._newest) > _REMEMBERED:
            self._newest.popitem(last=False)

    def is_stale(self, record: Record) -> bool:
        """Whether Kafka has a newer record of the same run."""
        newest = self._newest.get(record.key) if record.topic == RUNS_TOPIC else None
        return newest is not None and _rank(record) < newest


def _rank(record: Record) -> _Rank:
    """A run's last words are newer than anything else of it; a record without a revision is the oldest."""
    try:
        fields = json.loads(record.value)
        revision = fields.get("revision", -1)
        return fields.get("state") in _LAST_WORDS, revision if type(revision) is int else -1
    except (ValueError, AttributeError, TypeError, RecursionError):
        return False, -1
