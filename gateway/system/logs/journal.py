"""Log records as journal entries with fields, by journald's own protocol: one datagram an entry.

No library is needed (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/), so that an entry has its fields in every
installation. What can't be sent goes to standard error, which systemd connects to the journal as well. Nobody
ever waits for journald: samplers log, too.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import struct
import uuid
from collections.abc import Mapping
from typing import Final

from gateway.system.logs.fields import fields_of

SOCKET: Final = "/run/systemd/journal/socket"
_NAMESPACE: Final = uuid.UUID("5f1d6a3e-4c0b-4a6e-9d0f-0c6c8a1e7b52")
_PRIORITIES: Final = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
_DEBUG: Final = 7
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Z0-9_]")
_LONGEST_NAME: Final = 64
_UNSENT: Final = "event=log.unsent lines=%d"


def message_id(event: str) -> str:
    """The MESSAGE_ID of an event: 32 hexadecimal digits, made of its name and the same for ever."""
    return uuid.uuid5(_NAMESPACE, event).hex


def goes_to_journal(environ: Mapping[str, str], descriptor: int = 2) -> bool:
    """Whether standard error is the journal's: JOURNAL_STREAM has its device and inode (systemd.exec(5))."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def entry(record: logging.LogRecord, message: str) -> bytes:
    """One record as journald takes it; ``message`` is the whole text for people."""
    fields = fields_of(record)
    event = fields.get("event")
    told = {
        "MESSAGE": message,
        "PRIORITY": str(next((each for level, each in _PRIORITIES if record.levelno >= level), _DEBUG)),
        "SYSLOG_IDENTIFIER": "fieldgate",
        "LOGGER": record.name,
        "THREAD_NAME": record.threadName or "",
        "CODE_FILE": record.pathname,
        "CODE_LINE": str(record.lineno),
        "CODE_FUNC": record.funcName or "",
        **({"MESSAGE_ID": message_id(event)} if event else {}),
        **{_name(key): value for key, value in fields.items()},
    }
    return b"".join(_encoded(name, value) for name, value in told.items())


class Journal(logging.Handler):
    """Sends entries to journald, and to ``otherwise`` what it doesn't take."""

    def __init__(self, path: str, otherwise: logging.Handler) -> None:
        super().__init__()
        self.unsent = 0
        """Entries that journald had no room for since it was last said how many."""
        self._path = path
        self._otherwise = otherwise
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        # A journald that is stuck must not hold up the samplers.
        self._socket.setblocking(False)

    def emit(self, record: logging.LogRecord) -> None:
        """One entry. An entry too large for a datagram, or while journald is away, goes the other way."""
        try:
            self._socket.sendto(entry(record, self.format(record)), self._path)
            if self.unsent:
                self._tell_unsent()
        except BlockingIOError:
            # Standard error's other end is the same journald, and that write would wait for it.
            self.unsent += 1
        except OSError:
            self._otherwise.handle(record)

    def _tell_unsent(self) -> None:
        count = (self.unsent,)
        line = logging.LogRecord(__name__, logging.WARNING, __file__, 0, _UNSENT, count, None)
        self._socket.sendto(entry(line, line.getMessage()), self._path)
        self.unsent = 0

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()
        super().close()


def _name(key: str) -> str:
    return f"FIELDGATE_{_NOT_IN_A_NAME.sub('_', key.upper())}"[:_LONGEST_NAME]


def _encoded(name: str, value: str) -> bytes:
    content = value.encode(errors="backslashreplace")
    if b"\n" in content:
        return name.encode() + b"\n" + struct.pack("<Q", len(content)) + content + b"\n"
    return name.encode() + b"=" + content + b"\n"
