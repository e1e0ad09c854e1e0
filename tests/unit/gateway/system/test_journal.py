"""The log in the journal: fields, message ids, the catalog, and a journald that is stuck."""

from __future__ import annotations

import ast
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from gateway.system.logs import (
    Journal,
    LogQueue,
    LogThread,
    RateLimit,
    entry,
    fields_of,
    goes_to_journal,
    message_id,
)
from gateway.system.watchdog import has_room
from tests.support.servers import eventually, unique_name

ROOT = Path(__file__).parents[4]
JOURNALD = Path("/lib/systemd/systemd-journald")


def record(template: str, *arguments: object, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("gateway.x", level, "x.py", 7, template, arguments, None, "f")


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            record("event=sensor.silent sensor=%s error=%s", "baro", "no answer at 0x48, state=lost"),
            {"event": "sensor.silent", "sensor": "baro", "error": "no answer at 0x48, state=lost"},
        ),
        (
            record("event=mqtt.unreachable address=%s:%d error=%s", "h", 1883, OSError(111, "refused")),
            {"event": "mqtt.unreachable", "address": "h:1883", "error": "[Errno 111] refused"},
        ),
        (
            record("event=outbox.dropped reason=%s records=%s numbers=%d-%d", "FULL", 3, 1, 9),
            {"event": "outbox.dropped", "reason": "FULL", "records": "3", "numbers": "1-9"},
        ),
        (record("event=mqtt.held reason=memory_full"), {"event": "mqtt.held", "reason": "memory_full"}),
        (record("no fields in %s", "this"), {}),
        (record("%d%% of a=%.1f", 5, 2.5), {"a": "2.5"}),
        (
            record("event=a path=%s count=%d", "odd\0name=1", 2),
            {"event": "a", "path": "odd\0name=1", "count": "2"},
        ),
    ],
)
def test_a_lines_template_marks_where_its_values_end(line: logging.LogRecord, fields: dict[str, str]) -> None:
    assert fields_of(line) == fields


def test_an_entry_has_the_fields_of_its_event() -> None:
    line = record("event=sensor.silent sensor=%s error=%s", "baro", "two\nlines", level=logging.ERROR)
    found = entry(line, line.getMessage())
    assert found["MESSAGE"] == "event=sensor.silent sensor=baro error=two\nlines"
    assert found["MESSAGE_ID"] == message_id("sensor.silent") == "3ce7f61a46dd5f09a64bf4ef0ee9c3b2"
    assert {name: found[name] for name in found if name.startswith("FIELDGATE_")} == {
        "FIELDGATE_EVENT": "sensor.silent",
        "FIELDGATE_SENSOR": "baro",
        "FIELDGATE_ERROR": "two\nlines",
    }
    assert (found["PRIORITY"], found["SYSLOG_IDENTIFIER"], found["CODE_LINE"]) == ("3", "fieldgate", "7")
    # The queue makes a text of the line; its fields stay the same.
    assert entry(LogQueue().prepare(line), line.getMessage()) == found
    plain = entry(record("hello"), "hello")
    assert "MESSAGE_ID" not in plain
    assert (plain["MESSAGE"], plain["PRIORITY"]) == ("hello", "4")


def test_the_journal_is_used_where_standard_error_is_the_journals(tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("w") as stream:
        found = os.fstat(stream.fileno())
        right = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert goes_to_journal(right, stream.fileno())
        # Started from a shell within a unit, say, with its own standard error.
        assert not goes_to_journal({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + 1}"}, stream.fileno())
        assert not goes_to_journal({}, stream.fileno())


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


class Journald:
    """A journald of the test's own, which reads when a test calls ``read``, and the library's call to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))

    def sendv(self, *fields: bytes) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)
            sending.sendto(fields[0].removeprefix(b"MESSAGE="), str(self.path))

    def read(self) -> list[str]:
        self.socket.setblocking(False)
        found = []
        while True:
            try:
                found.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return found


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Journald]:
    """It reads nothing, and its queue is full."""
    journald = Journald(tmp_path / "socket")
    while has_room(str(journald.path)):
        journald.sendv(b"MESSAGE=before")
    yield journald
    journald.socket.close()


@contextmanager
def logged_to(journal: Journal) -> Iterator[tuple[LogQueue, LogThread]]:
    queued = LogQueue()
    thread = LogThread(queued, RateLimit(journal.write))
    thread.start()
    try:
        yield queued, thread
    finally:
        thread.stop()


def test_no_thread_waits_for_a_stuck_journald_and_what_overflows_is_counted(
    stuck: Journald, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.system.logs.MOST_LINES", 100)
    with logged_to(Journal(Lines(), stuck.sendv, str(stuck.path))) as (queued, _):
        for number in range(150):
            queued.handle(record(f"event=e{number}"))
        found: list[str] = []

        def last() -> str:
            found.extend(stuck.read())
            return found[-1]

        eventually(last, 60, until=lambda line: line.startswith("event=log.unsent"))
    entries = [each for each in found if each != "before"]
    dropped = 150 - len(entries[:-1])
    assert entries[-1] == f"event=log.unsent lines={dropped}"
    assert dropped in (49, 50)
    assert entries[:99] == [f"event=e{number}" for number in range(99)]


def test_the_end_writes_what_is_queued_and_gives_up_a_stuck_journald(
    stuck: Journald, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.system.logs._FLUSH_S", 0.1)
    with logged_to(Journal(Lines(), stuck.sendv, str(stuck.path))) as (queued, thread):
        queued.handle(record("event=a"))
        begun_s = time.monotonic()
        thread.stop()
        assert time.monotonic() - begun_s < 5
        found: list[str] = []

        def written() -> bool:
            # The line may come while what was there before is still being read.
            found.extend(stuck.read())
            return "event=a" in found

        eventually(written)
    lines = Lines()
    queued = LogQueue()
    thread = LogThread(queued, RateLimit(lines.handle))
    for number in range(100):
        queued.handle(record(f"event=e{number}"))
    thread.start()
    thread.stop()
    assert lines.messages == [f"event=e{number}" for number in range(100)]


def test_standard_error_takes_the_lines_where_there_is_no_journald_or_no_library(tmp_path: Path) -> None:
    lines = Lines()
    Journal(lines, lambda *_: None, str(tmp_path / "none")).write(record("journald is away"))
    Journal(lines, None).write(record("no python3-systemd"))
    assert lines.messages == ["journald is away", "no python3-systemd"]


def test_what_is_not_on_its_way_holds_text_only() -> None:
    try:
        raise ValueError("boom")
    except ValueError as error:
        raised = (ValueError, error, error.__traceback__)
    line = logging.LogRecord("x", logging.ERROR, "x.py", 1, "event=a error=%s", (raised[1],), raised)
    kept = LogQueue().prepare(line)
    assert (kept.msg, kept.args, kept.exc_info) == ("event=a error=boom", None, None)
    assert "ValueError: boom" in logging.Formatter().format(kept)
    assert line.exc_info == raised


def test_arguments_that_do_not_fit_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    queued = LogQueue()
    queued.handle(record("event=a number=%d", "no number"))
    queued.handle(record("event=b number=%d", 1))
    assert [queued.lines.get_nowait().msg] == ["event=b number=1"]
    assert "Logging error" in capsys.readouterr().err


def _sources() -> list[str]:
    return [
        file.read_text(encoding="utf-8")
        for package in ("gateway", "buffer", "cloud", "drivers")
        for file in (ROOT / package).rglob("*.py")
        if "demo" not in file.parts
    ]


def _events_in_the_code() -> dict[str, set[str]]:
    """The keys of each event's line."""
    found: dict[str, set[str]] = {}
    for source in _sources():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for event in re.findall(r"^event=(\S+)", node.value):
                    keys = re.findall(r"(?:^| )(\w+)=", node.value)
                    found.setdefault(event, set()).update(key.upper() for key in keys)
    return found


CATALOG: Final = ROOT / "systemd" / "fieldgate.catalog"
_MESSAGE: Final = re.compile(
    r"^# event=(\S+)\n-- (\w{32})\nSubject: (.+)\nDefined-By: fieldgate\n\n((?:.+\n)+)", re.MULTILINE
)


def test_the_catalog_explains_events_of_the_code_by_their_ids_and_fields() -> None:
    text = CATALOG.read_text(encoding="utf-8")
    messages, events = _MESSAGE.findall(text), _events_in_the_code()
    assert len(messages) == text.count("\n-- ") == len({event for event, *_ in messages})
    for event, number, _, explanation in messages:
        assert number == message_id(event), event
        assert set(re.findall(r"@FIELDGATE_(\w+)@", explanation)) <= events[event], event
    assert max(map(len, text.splitlines())) <= 80


@pytest.fixture
def journald() -> Iterator[str]:
    """A systemd-journald of the test's own: its namespace."""
    if os.geteuid() != 0 or not JOURNALD.exists():
        pytest.skip("needs root and systemd-journald")
    pytest.importorskip("systemd.journal")
    name = unique_name("fg")[-20:]
    sockets = Path(f"/run/systemd/journal.{name}")
    sockets.mkdir(parents=True)
    process = subprocess.Popen([JOURNALD, name], stderr=subprocess.DEVNULL)
    try:
        try:
            eventually(lambda: (sockets / "socket").exists() or process.poll() is not None, 20)
        finally:
            usable = process.poll() is None
        if not usable:
            pytest.skip("systemd-journald does not run here")
        yield name
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        for root in (Path("/run/log/journal"), Path("/var/log/journal"), Path("/run/systemd")):
            for left in root.glob(f"*.{name}"):
                shutil.rmtree(left)


def beside(journal: Path, program: str) -> str:
    """What a Python program prints that has a directory in the place of /run/systemd/journal."""
    script = 'mkdir -p /run/systemd/journal && mount --bind "$0" /run/systemd/journal && exec "$1" -c "$2"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, str(journal), sys.executable, program],
        capture_output=True, text=True, timeout=30, cwd=ROOT, check=False,
    )  # fmt: skip
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no mount namespace here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return done.stdout


_TWO_LINES: Final = """
import logging
from gateway.system.logs import Journal
journal = Journal(logging.NullHandler())
for values in (("baro", "no\\nanswer"), ("dht", "checksum"), ("cup", 10_000_000 * "x")):
    line = "event=sensor.silent sensor=%s error=%s"
    journal.write(logging.LogRecord("gateway.x", logging.WARNING, "x.py", 7, line, values, None, "f"))
"""


def test_a_real_journal_finds_a_line_by_its_fields(journald: str) -> None:
    beside(Path(f"/run/systemd/journal.{journald}"), _TWO_LINES)

    def journalctl(*arguments: str) -> str:
        command = ["journalctl", f"--namespace={journald}", "--no-pager", "-q", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    found = eventually(lambda: journalctl("-o", "json", "FIELDGATE_SENSOR=baro"), 20)
    entry = json.loads(found)
    assert (entry["MESSAGE_ID"], entry["PRIORITY"]) == (message_id("sensor.silent"), "4")
    assert entry["FIELDGATE_ERROR"] == "no\nanswer"
    assert entry["SYSLOG_IDENTIFIER"] == "fieldgate"
    by_id = journalctl("-o", "cat", f"MESSAGE_ID={message_id('sensor.silent')}").splitlines()
    assert "event=sensor.silent sensor=dht error=checksum" in by_id


_STUCK: Final = """
import logging, socket, threading, time
from gateway.system.logs import LogQueue, LogThread
from gateway.system.logs import SOCKET, Journal
from gateway.system.logs import RateLimit
journald = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
journald.bind(SOCKET)
queued = LogQueue()
LogThread(queued, RateLimit(Journal(logging.NullHandler()).write)).start()
for number in range(1000):
    line = logging.LogRecord("gateway.x", logging.CRITICAL, "x.py", 7, "event=e", (), None, "f")
    queued.handle(line)
longest_s, begun_s = 0.0, time.monotonic()
before_s = begun_s
while before_s < begun_s + 1.0:
    threading.Event().wait(0.01)
    longest_s, before_s = max(longest_s, time.monotonic() - before_s), time.monotonic()
assert queued.lines.qsize() > 100
print(longest_s)
"""


def test_the_librarys_call_stops_no_thread_when_journald_is_stuck(tmp_path: Path) -> None:
    """It would: it waits with the interpreter lock held."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    pytest.importorskip("systemd.journal")
    assert float(beside(tmp_path, _STUCK)) < 1.0


def test_systemd_reads_the_catalog(tmp_path: Path) -> None:
    if shutil.which("journalctl") is None:
        pytest.skip("needs journalctl")
    installed = tmp_path / "usr/lib/systemd/catalog"
    installed.mkdir(parents=True)
    (tmp_path / "var/lib/systemd/catalog").mkdir(parents=True)
    shutil.copy(CATALOG, installed)
    subprocess.run(["journalctl", f"--root={tmp_path}", "--update-catalog"], check=True, timeout=60)
    dumped = subprocess.run(
        ["journalctl", f"--root={tmp_path}", "--dump-catalog"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    for _, number, subject, explanation in _MESSAGE.findall(CATALOG.read_text(encoding="utf-8")):
        assert f"-- {number}\nSubject: {subject}\n" in dumped
        assert explanation in dumped
