"""Carries the verdicts on a boot's time to what waits for them. Owned by the main loop."""

from __future__ import annotations

from gateway.clock.hold import ClockHold
from gateway.clock.manual_time import ManualTime
from gateway.clock.sync import ClockSync
from gateway.forwarding.forwarder import Forwarder
from gateway.reporting.run_ledger import RunLedger


class ClockVerdicts:
    """From a phone's gift or the kernel's clock to the forwarder; what then leaves is announced."""

    def __init__(
        self,
        gifts: ManualTime,
        timekeeper: ClockSync,
        holdback: ClockHold,
        forwarder: Forwarder,
        runs: RunLedger,
    ) -> None:
        self._gifts = gifts
        self._timekeeper = timekeeper
        self._holdback = holdback
        self._forwarder = forwarder
        self._runs = runs

    def check(self) -> None:
        """Take what was given, look at the clock, and tell which readings have got their time."""
        for gift in self._gifts.take():
            try:
                given = self._timekeeper.give(gift.offset_ms)
            except ValueError as error:
                gift.answer(str(error))
                continue
            self._forwarder.judged(given)
            self._forwarder.announce(self._runs.clock_given(given, gift.uncertain_ms))
            gift.answer(None)
        verdict = self._timekeeper.check(self._forwarder.reachable_s)
        if verdict is not None:
            self._forwarder.judged(verdict)
        while not self._holdback.news.empty():
            self._forwarder.announce(self._runs.released(self._holdback.news.get()))
