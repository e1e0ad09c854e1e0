"""Shows on this machine that a reading of this run is safe: it decides whether a new version may stay.

The file is in systemd's runtime directory, which is memory: nothing is written to the card.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from gateway.ports import Snapshot

log = logging.getLogger(__name__)


class FirstReading:
    """Writes systemd's id of this start into ``durable``, once; nothing where systemd hasn't started it.

    Owned by the main thread.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        directory, self._start = environment.get("RUNTIME_DIRECTORY"), environment.get("INVOCATION_ID", "")
        self._path = None if directory is None else Path(directory, "durable")

    def tick(self, snapshot: Snapshot) -> None:
        """Write it, where Kafka or the outbox has the first reading by now."""
        if self._path is None or not snapshot.durable:
            return
        try:
            self._path.write_text(f"{self._start}\n")
        except OSError as error:
            log.warning("event=state.not_written path=%s error=%s", self._path, error)
        self._path = None
