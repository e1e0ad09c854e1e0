"""Events of commands: announced once by each daemon that finds them, deleted when they are durable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.ports import Record
from gateway.reporting.event_spool import MAX_BYTES, EventSpool, NotSpooled, spool_directory, spool_event
from tests.support.forwarding import snapshot


class Daemon:
    """The parts of one that the spool uses."""

    def __init__(self, outbox: Path) -> None:
        self.announced: list[dict[str, Any]] = []
        self.now_s, self.safe = 1000.0, True
        self.spool = EventSpool(
            outbox,
            lambda event, **fields: Record("gateway.events", b"m", json.dumps([event, fields]).encode(), ()),
            lambda record: self.announced.append(dict([json.loads(record.value)])),
        )

    def tick(self) -> None:
        self.spool.tick(snapshot(self.now_s, outbox_problem=None if self.safe else "full"))


def test_it_is_announced_once_and_goes_when_it_is_safe(tmp_path: Path) -> None:
    outbox = tmp_path / "outbox.db"
    daemon = Daemon(outbox)
    daemon.tick()
    first = spool_event(outbox, "sensor-swapped", {"sensor": "cup"})
    spool_event(outbox, "commissioned", {"by": "ü"})
    daemon.tick()
    daemon.tick()
    ((_, fields),) = daemon.announced[0].items()
    assert fields.pop("at").endswith("Z")
    assert (len(fields.pop("id")), fields) == (16, {"sensor": "cup"})
    assert [list(each) for each in daemon.announced] == [["sensor-swapped"], ["commissioned"]]
    assert first.exists()
    daemon.now_s += 150
    daemon.safe = False
    daemon.tick()
    assert first.exists()
    # One that dies now: the next one announces it again, with the same id.
    other = Daemon(outbox)
    other.tick()
    assert other.announced[0]["sensor-swapped"]["id"] == json.loads(first.read_text())["id"]
    daemon.safe = True
    daemon.tick()
    assert list(spool_directory(outbox).iterdir()) == []
    # What another process removed is no trouble.
    other.spool.settle()
    assert len(daemon.announced) == 2


def test_it_goes_at_a_clean_end(tmp_path: Path) -> None:
    outbox = tmp_path / "outbox.db"
    daemon = Daemon(outbox)
    spool_event(outbox, "sensor-swapped", {})
    daemon.tick()
    late = spool_event(outbox, "sensor-swapped", {})
    daemon.spool.settle()
    assert list(spool_directory(outbox).iterdir()) == [late]


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b'{"sensor": "cup"}', b'{"event": "x", "run": "y"}', b'{"event": "x", "seq": 1}'),
        *(b"[" * 100_000, b" " * (MAX_BYTES + 1)),
    ],
)
def test_what_is_no_event_is_set_aside(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = tmp_path / "outbox.db"
    directory = spool_directory(outbox)
    directory.mkdir()
    (directory / "a.json").write_bytes(content)
    # Half written: its name isn't one yet.
    (directory / ".b.json.1.new").write_bytes(b'{"event": "x"}')
    daemon = Daemon(outbox)
    daemon.tick()
    daemon.tick()
    assert daemon.announced == []
    assert sorted(each.name for each in directory.iterdir()) == [".b.json.1.new", "a.refused"]
    assert caplog.text.count("event=notice.refused") == 1


def test_one_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotSpooled, match="262,144 are allowed"):
        spool_event(tmp_path / "outbox.db", "x", {"text": "y" * MAX_BYTES})
    with pytest.raises(NotSpooled, match="No such file or directory"):
        spool_event(tmp_path / "absent" / "outbox.db", "x", {})
