"""Whether Kafka answers, by its delivery reports. Owned by the forwarder's thread."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from gateway.forwarding.ledger import Entry
from gateway.system.backoff import Backoff

log = logging.getLogger(__name__)

# Between two delivery reports further apart than this nobody knows whether Kafka answered; a run record goes
# out each minute, whatever else does.
_REPORTS_APART_S: Final = 150.0
_NEVER: Final = float("-inf")
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


@dataclass(slots=True)
class _Parked:
    backoff: Backoff
    again_s: float
    probing: bool = False


class TopicBackoff:
    """Topics that take nothing for now, and when each is tried again.

    One is parked where it is missing, forbidden, or silent while others answer. That is the operator's to
    mend, never the record's fault: what is for such a topic waits in the outbox while all else flows. After a
    pause that doubles, one record is let through as a probe; the rest follow once it was delivered.
    """

    def __init__(self) -> None:
        self._parked: dict[str, _Parked] = {}
        self.freed = 0
        """How many topics have taken records again."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics parked now."""
        return tuple(self._parked)

    def again_s(self) -> float:
        """When the next topic may be tried (monotonic), infinity without one."""
        return min((parked.again_s for parked in self._parked.values()), default=float("inf"))

    def may_send(self, topic: str, now_s: float) -> bool:
        """Whether a record may go to a topic; a parked one's first asker after the pause is its probe."""
        parked = self._parked.get(topic)
        if parked is None:
            return True
        if now_s < parked.again_s:
            return False
        parked.again_s = now_s + _LONGEST_PAUSE_S
        parked.probing = True
        return True

    def park(self, topic: str, now_s: float, problem: str) -> None:
        """A topic took nothing; the pause doubles each time its probe fails."""
        known = self._parked.get(topic)
        if known is not None and not known.probing:
            # It was under way already when the first one failed: that says nothing new.
            return
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S) if known is None else known.backoff
        pause_s = backoff.next()
        self._parked[topic] = _Parked(backoff, now_s + pause_s)
        level = logging.WARNING if known is None else logging.DEBUG
        log.log(level, "event=topic.parked topic=%s again_in_s=%g error=%s", topic, pause_s, problem)

    def delivered(self, topic: str) -> None:
        """A topic took a record: it is parked no longer."""
        if self._parked.pop(topic, None) is not None:
            self.freed += 1
            log.warning("event=topic.delivers topic=%s", topic)


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
