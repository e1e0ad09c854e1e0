"""Events that a command leaves: announced once by each daemon that finds them, gone when they are safe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.ports import Record
from gateway.reporting.event_spool import MAX_BYTES, EventSpool, NotLeft, leave, notices_directory
from tests.support.forwarding import snapshot


class Daemon:
    """The parts of one that notices know."""

    def __init__(self, outbox: Path) -> None:
        self.told: list[dict[str, Any]] = []
        self.now_s, self.safe = 1000.0, True
        self.notices = EventSpool(
            outbox,
            lambda event, **fields: Record("gateway.events", b"m", json.dumps([event, fields]).encode(), ()),
            lambda record: self.told.append(dict([json.loads(record.value)])),
        )

    def tick(self) -> None:
        self.notices.tick(snapshot(self.now_s, outbox_problem=None if self.safe else "full"))


def test_it_is_announced_once_and_goes_when_it_is_safe(tmp_path: Path) -> None:
    outbox = tmp_path / "outbox.db"
    daemon = Daemon(outbox)
    daemon.tick()
    first = leave(outbox, "sensor-swapped", {"sensor": "cup"})
    leave(outbox, "commissioned", {"by": "ü"})
    daemon.tick()
    daemon.tick()
    ((_, fields),) = daemon.told[0].items()
    assert fields.pop("at").endswith("Z")
    assert (len(fields.pop("id")), fields) == (16, {"sensor": "cup"})
    assert [list(each) for each in daemon.told] == [["sensor-swapped"], ["commissioned"]]
    assert first.exists()
    daemon.now_s += 150
    daemon.safe = False
    daemon.tick()
    assert first.exists()
    # One that dies now: the next one tells it again, under the same id.
    other = Daemon(outbox)
    other.tick()
    assert other.told[0]["sensor-swapped"]["id"] == json.loads(first.read_text())["id"]
    daemon.safe = True
    daemon.tick()
    assert list(notices_directory(outbox).iterdir()) == []
    # What somebody else removed is no trouble.
    other.notices.settle()
    assert len(daemon.told) == 2


def test_it_goes_at_a_clean_end(tmp_path: Path) -> None:
    outbox = tmp_path / "outbox.db"
    daemon = Daemon(outbox)
    leave(outbox, "sensor-swapped", {})
    daemon.tick()
    late = leave(outbox, "sensor-swapped", {})
    daemon.notices.settle()
    assert list(notices_directory(outbox).iterdir()) == [late]


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'{"sensor": "cup"}', b'{"event": "x", "run": "y"}', b"[" * 100_000, b" " * (MAX_BYTES + 1)],
)
def test_what_is_no_event_is_set_aside(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = tmp_path / "outbox.db"
    directory = notices_directory(outbox)
    directory.mkdir()
    (directory / "a.json").write_bytes(content)
    # Half written: its name isn't one yet.
    (directory / ".b.json.1.new").write_bytes(b'{"event": "x"}')
    daemon = Daemon(outbox)
    daemon.tick()
    daemon.tick()
    assert daemon.told == []
    assert sorted(each.name for each in directory.iterdir()) == [".b.json.1.new", "a.refused"]
    assert caplog.text.count("event=notice.refused") == 1


def test_one_that_is_too_long_is_not_left(tmp_path: Path) -> None:
    with pytest.raises(NotLeft, match="262,144 are allowed"):
        leave(tmp_path / "outbox.db", "x", {"text": "y" * MAX_BYTES})
    with pytest.raises(NotLeft, match="No such file or directory"):
        leave(tmp_path / "absent" / "outbox.db", "x", {})
