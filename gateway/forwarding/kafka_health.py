"""Whether Kafka answers, by its delivery reports. Owned by the forwarder's thread."""

from __future__ import annotations

import logging
from typing import Final

from gateway.forwarding.ledger import Entry
from gateway.forwarding.parking import TopicBackoff

log = logging.getLogger(__name__)

# Between two delivery reports further apart than this nobody knows whether Kafka answered; a run record goes
# out each minute, whatever else does.
_REPORTS_APART_S: Final = 150.0
_NEVER: Final = float("-inf")


class KafkaHealth:
    """Kafka is silent when an entry has been at the sink for ``verdict_s`` and no other was confirmed since.

    Where others were, it is the entry's topic, which is parked.
    """

    def __init__(self, parking: TopicBackoff) -> None:
        self._parking = parking
        self._prompt_s = self._told_s = _NEVER
        self._suspect: Entry | None = None
        self.answering = True
        self.reachable_s = 0.0
        """How long Kafka has answered, by its delivery reports."""

    def suspect(self, entry: Entry) -> None:
        """An entry at the sink that is to be judged; the first of several stands for them."""
        if self._suspect is None:
            self._suspect = entry

    def wake_s(self, verdict_s: float) -> float:
        """When ``judge`` can decide (monotonic), infinity with nobody to be judged."""
        return float("inf") if self._suspect is None else self._suspect.sent_s + verdict_s

    def judge(self, now_s: float, verdict_s: float) -> None:
        """Decide about the suspect once Kafka has had its time: it came there late, maybe."""
        entry = self._suspect
        if entry is None or (entry.at_sink and now_s < entry.sent_s + verdict_s):
            return
        self._suspect = None
        if not entry.at_sink or not self.answering:
            return
        if self._prompt_s > entry.sent_s:
            self._parking.park(entry.record.topic, now_s, "no delivery report while others came")
        else:
            self.answering = False
            log.warning("event=kafka.silent action=store")

    @property
    def told_s(self) -> float | None:
        """When Kafka last confirmed anything (monotonic)."""
        return None if self._told_s == _NEVER else self._told_s

    def told(self, topic: str, sent_s: float, now_s: float, verdict_s: float) -> bool:
        """A delivery report has come; True for a prompt one: Kafka answers."""
        if now_s - self._told_s <= _REPORTS_APART_S:
            self.reachable_s += now_s - self._told_s
        self._told_s = now_s
        self._parking.delivered(topic)
        prompt = now_s - sent_s <= verdict_s
        if prompt:
            self._prompt_s = now_s
        return prompt
