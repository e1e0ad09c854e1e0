"""What a Kafka listener has against us, found anew while an outage lasts: one fault may follow another.

librdkafka has the same words for an expired certificate and for a foreign one. The thread that owns it calls
``suspect`` and ``clear``; a thread of its own asks, for it waits for the listener.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Final

from cloud.kafka.listener_probe import Fault, listener_fault

log = logging.getLogger(__name__)

_AGAIN_S: Final = 15.0
"""Between questions for one reason: two handshakes, some 8 kB, beside librdkafka's own each 10 s."""


class ListenerWatch:
    """``fault`` is what stands; None where nothing is known."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self._asked_s = float("-inf")
        self._asking: object = None

    def suspect(self, config: Mapping[str, str], *, is_new: bool) -> None:
        """Ask, at once for a new reason, else after a pause and where a listener was the reason before."""
        now_s = time.monotonic()
        if not is_new and now_s < self._asked_s + _AGAIN_S:
            return
        self._asked_s, self._asking = now_s, (asking := object())
        threading.Thread(target=self._ask, args=(config, asking), name="kafka-probe", daemon=True).start()

    def clear(self) -> None:
        """What was found, or will be by a question that was begun, stands no longer."""
        self.fault = self._asking = None

    def _ask(self, config: Mapping[str, str], asking: object) -> None:
        fault = listener_fault(config["bootstrap.servers"], config)
        if asking is not self._asking:
            return
        if fault is not None and fault != self.fault:
            log.warning("event=kafka.listener_refuses reason=%s", fault.text)
        self.fault = fault
