"""What is live goes on whatever ends a reader of Kafka, and says since when nothing has come."""

from __future__ import annotations

import logging
import re
from datetime import datetime

import pytest

from cloud.dashboard import live
from cloud.dashboard.live import LiveReadings
from cloud.errors import CloudError
from cloud.kafka.topic_scan import Tail
from cloud.wire.reading_records import Reading
from tests.support.servers import eventually


class Scripted(Tail):
    """Reads what it is given: nothing, or an error, as long as that is the last one."""

    def __init__(self, script: list[Exception | None]) -> None:
        self.script = script
        self.closed = 0
        self.refused = self.unknown = 0

    def read(self, timeout_s: float) -> list[tuple[Reading, int]]:
        if (error := self.script[-1]) is not None:
            raise error
        return []

    @property
    def is_lost(self) -> bool:
        return False

    def close(self) -> None:
        self.closed += 1


def test_no_error_ends_it_and_each_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="cloud.dashboard.live")
    monkeypatch.setattr(live, "_PAUSES_S", (0.001, 0.002))
    tail = Scripted([RuntimeError("a secret of somebody's")])
    reading = LiveReadings(lambda: tail)
    began = datetime.now().astimezone()
    reading.start()
    try:
        said = eventually(lambda: reading.problem, 20)
        found = re.fullmatch(r"since (\S+ \S+) UTC: RuntimeError; the log has more", said or "")
        assert found is not None, said
        since = datetime.fromisoformat(f"{found[1]}+00:00")
        assert 0 <= (datetime.now().astimezone() - since).total_seconds() < 30
        assert abs((since - began).total_seconds()) < 30
        eventually(lambda: tail.closed > 5, 20)
        assert reading.problem == said
        tail.script.append(CloudError("no answer"))
        eventually(lambda: reading.problem, 20, until=lambda text: text == f"since {found[1]} UTC: no answer")
        tail.script.append(None)
        eventually(lambda: reading.problem is None, 20)
    finally:
        reading.stop()
    assert not reading.is_alive()
    events = [each.getMessage().partition(" error=")[0] for each in caplog.records]
    assert events == ["event=live.stands_still", "event=live.reads_again"]
    # The place in the code, which no message has.
    assert caplog.records[0].exc_info is not None
