"""What the daemon's log tells the journal: fields and message ids; no event is without its explanation."""

from __future__ import annotations

import ast
import json
import logging
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.system.logs import catalog
from gateway.system.logs.fields import fields_of
from gateway.system.logs.journal import Journal, entry, goes_to_journal, message_id
from tests.support.servers import eventually, unique_name

ROOT = Path(__file__).parents[4]
JOURNALD = Path("/lib/systemd/systemd-journald")


def record(template: str, *arguments: object, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("gateway.x", level, "x.py", 7, template, arguments, None, "f")


def decoded(datagram: bytes) -> dict[str, str]:
    """An entry as journald reads it."""
    found = {}
    while datagram:
        line, _, rest = datagram.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (size,) = struct.unpack_from("<Q", rest)
            value, rest = rest[8 : 8 + size], rest[9 + size :]
        found[name.decode()] = value.decode()
        datagram = rest
    return found


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
    ],
)
def test_a_lines_template_says_where_its_values_end(line: logging.LogRecord, fields: dict[str, str]) -> None:
    assert fields_of(line) == fields


def test_an_entry_has_the_fields_of_its_event() -> None:
    line = record("event=sensor.silent sensor=%s error=%s", "baro", "two\nlines", level=logging.ERROR)
    told = decoded(entry(line, line.getMessage()))
    assert told["MESSAGE"] == "event=sensor.silent sensor=baro error=two\nlines"
    assert told["MESSAGE_ID"] == message_id("sensor.silent") == "3ce7f61a46dd5f09a64bf4ef0ee9c3b2"
    assert {name: told[name] for name in told if name.startswith("FIELDGATE_")} == {
        "FIELDGATE_EVENT": "sensor.silent",
        "FIELDGATE_SENSOR": "baro",
        "FIELDGATE_ERROR": "two\nlines",
    }
    assert (told["PRIORITY"], told["SYSLOG_IDENTIFIER"], told["CODE_LINE"]) == ("3", "fieldgate", "7")
    plain = decoded(entry(record("hello"), "hello"))
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


def test_what_journald_does_not_take_is_not_lost_and_nobody_waits_for_it(tmp_path: Path) -> None:
    path, otherwise = tmp_path / "socket", Lines()
    journal = Journal(str(path), otherwise)
    journal.handle(record("journald is away"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journald:
        journald.bind(str(path))
        journal.handle(record("event=mqtt.resumed"))
        assert decoded(journald.recv(1 << 16))["FIELDGATE_EVENT"] == "mqtt.resumed"
        journal.handle(record("x" * 10_000_000))
        assert [message[:20] for message in otherwise.messages] == ["journald is away", "x" * 20]
        # It reads no more: its queue is full some time.
        for _ in range(5_000):
            journal.handle(record("again"))
        unsent = journal.unsent
        assert unsent > 0
        assert len(otherwise.messages) == 2
        # When it reads again the next line says how many are missing.
        for _ in range(5_000 - unsent):
            assert decoded(journald.recv(1 << 16))["MESSAGE"] == "again"
        journal.handle(record("here again"))
        told = [decoded(journald.recv(1 << 16)) for _ in range(2)]
        assert [each["MESSAGE"] for each in told] == ["here again", f"event=log.unsent lines={unsent}"]
        assert told[1]["MESSAGE_ID"] == message_id("log.unsent")
        assert journal.unsent == 0
    journal.close()


def _events_in_the_code() -> set[str]:
    found = set()
    for package in ("gateway", "buffer", "cloud", "drivers"):
        for file in (ROOT / package).rglob("*.py"):
            if "demo" in file.parts or file.name == "catalog.py":
                continue
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found |= set(re.findall(r"^event=(\S+)", node.value))
    return found


def test_every_event_of_the_code_is_explained_and_no_other() -> None:
    assert _events_in_the_code() == set(catalog.EVENTS), (
        "gateway/system/logs/catalog.py must have each event, and then: "
        "python -m gateway.system.logs.catalog > systemd/fieldgate.catalog"
    )


def test_the_catalog_that_is_installed_is_the_codes() -> None:
    installed = (ROOT / "systemd" / "fieldgate.catalog").read_text(encoding="utf-8")
    assert installed == catalog.as_text(), "python -m gateway.system.logs.catalog > systemd/fieldgate.catalog"
    assert max(map(len, installed.splitlines())) <= 80


def test_a_field_that_an_explanation_names_is_one_of_the_event() -> None:
    keys: dict[str, set[str]] = {}
    for package in ("gateway", "buffer", "cloud", "drivers"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    for event in re.findall(r"^event=(\S+)", node.value):
                        names = re.findall(r"(?:^| )(\w+)=", node.value)
                        keys.setdefault(event, set()).update(name.upper() for name in names)
    for event, (_, text) in catalog.EVENTS.items():
        assert set(re.findall(r"@FIELDGATE_(\w+)@", text)) <= keys[event], event


@pytest.fixture
def journald() -> Iterator[str]:
    """A systemd-journald of the test's own: its namespace."""
    if os.geteuid() != 0 or not JOURNALD.exists():
        pytest.skip("needs root and systemd-journald")
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


def test_a_real_journal_finds_a_line_by_its_fields_and_explains_it(journald: str, tmp_path: Path) -> None:
    otherwise = Lines()
    journal = Journal(f"/run/systemd/journal.{journald}/socket", otherwise)
    journal.handle(record("event=sensor.silent sensor=%s error=%s", "baro", "no\nanswer"))
    journal.handle(record("event=sensor.silent sensor=%s error=%s", "dht", "checksum"))
    journal.close()
    assert otherwise.messages == []

    def asked(*arguments: str) -> str:
        command = ["journalctl", f"--namespace={journald}", "--no-pager", "-q", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    found = eventually(lambda: asked("-o", "json", "FIELDGATE_SENSOR=baro"), 20)
    told = json.loads(found)
    assert (told["MESSAGE_ID"], told["PRIORITY"]) == (message_id("sensor.silent"), "4")
    assert told["FIELDGATE_ERROR"] == "no\nanswer"
    assert told["SYSLOG_IDENTIFIER"] == "fieldgate"
    by_id = asked("-o", "cat", f"MESSAGE_ID={message_id('sensor.silent')}").splitlines()
    assert by_id[-1] == "event=sensor.silent sensor=dht error=checksum"


def test_systemd_reads_the_catalog(tmp_path: Path) -> None:
    if shutil.which("journalctl") is None:
        pytest.skip("needs journalctl")
    installed = tmp_path / "usr/lib/systemd/catalog"
    installed.mkdir(parents=True)
    (tmp_path / "var/lib/systemd/catalog").mkdir(parents=True)
    shutil.copy(ROOT / "systemd" / "fieldgate.catalog", installed)
    subprocess.run(["journalctl", f"--root={tmp_path}", "--update-catalog"], check=True, timeout=60)
    dumped = subprocess.run(
        ["journalctl", f"--root={tmp_path}", "--dump-catalog"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    for event, (subject, text) in catalog.EVENTS.items():
        assert f"-- {message_id(event)}\nSubject: {subject}\n" in dumped
        assert catalog.wrapped(text) in dumped
