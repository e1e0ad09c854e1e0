"""Topics that take nothing for now: missing, forbidden, or silent while others answer.

That is the operator's to mend, never the record's fault: what is for such a topic waits in the outbox while
all else flows. After a pause that doubles, one record is let through to see; the rest follow once it was
delivered. Owned by the forwarder's thread.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


@dataclass(slots=True)
class _Parked:
    pause_s: float
    again_s: float
    probing: bool = False


class TopicBackoff:
    """The parked topics and when each is tried again."""

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
        pause_s = _FIRST_PAUSE_S if known is None else min(2 * known.pause_s, _LONGEST_PAUSE_S)
        self._parked[topic] = _Parked(pause_s, now_s + pause_s)
        level = logging.WARNING if known is None else logging.DEBUG
        log.log(level, "event=topic.parked topic=%s again_in_s=%g error=%s", topic, pause_s, problem)

    def delivered(self, topic: str) -> None:
        """A topic took a record: it is parked no longer."""
        if self._parked.pop(topic, None) is not None:
            self.freed += 1
            log.warning("event=topic.delivers topic=%s", topic)
