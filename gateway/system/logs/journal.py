"""Log lines as journal entries with fields, by systemd-python. Owned by the log's thread, which may wait."""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from gateway.system.logs.fields import fields_of
from gateway.system.systemd import has_room

try:
    from systemd.journal import sendv as _sendv
except ImportError:
    _sendv = None

SOCKET: Final = "/run/systemd/journal/socket"
_NAMESPACE: Final = uuid.UUID("5f1d6a3e-4c0b-4a6e-9d0f-0c6c8a1e7b52")
_PRIORITIES: Final = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6}
_DEBUG: Final = 7
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Z0-9_]")
_LONGEST_NAME: Final = 64
_WAIT_S: Final = 1.0


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


def entry(record: logging.LogRecord, message: str) -> dict[str, str]:
    """The fields of one record as the journal keeps them; ``message`` is the whole text for people."""
    fields = fields_of(record)
    event = fields.get("event")
    return {
        "MESSAGE": message,
        "PRIORITY": str(_PRIORITIES.get(record.levelno, _DEBUG)),
        "SYSLOG_IDENTIFIER": "fieldgate",
        "LOGGER": record.name,
        "THREAD_NAME": record.threadName or "",
        "CODE_FILE": record.pathname,
        "CODE_LINE": str(record.lineno),
        "CODE_FUNC": record.funcName or "",
        **({"MESSAGE_ID": message_id(event)} if event else {}),
        **{_name(key): value for key, value in fields.items()},
    }


class Journal:
    """Writes entries; to ``otherwise`` where journald is away or systemd-python isn't installed.

    Not a logging.Handler: its lock would be held while journald is stuck, and logging.shutdown waits for it.
    """

    def __init__(
        self, otherwise: logging.Handler, sendv: Callable[..., object] | None = _sendv, address: str = SOCKET
    ) -> None:
        self._otherwise = otherwise
        self._sendv = sendv
        self._address = address

    def write(self, record: logging.LogRecord) -> None:
        """Write one entry; waits while journald is stuck."""
        if self._sendv is None:
            self._otherwise.handle(record)
            return
        fields = entry(record, logging.Formatter().format(record)).items()
        try:
            # The library would wait with the interpreter lock held, and every thread with it.
            while not has_room(self._address, _WAIT_S):
                pass
            self._sendv(*(f"{name}={value}".encode(errors="backslashreplace") for name, value in fields))
        except OSError:
            self._otherwise.handle(record)


def _name(key: str) -> str:
    return f"FIELDGATE_{_NOT_IN_A_NAME.sub('_', key.upper())}"[:_LONGEST_NAME]
