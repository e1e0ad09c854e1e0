"""What a command on this machine may ask of the running daemon beyond looking.

A Unix socket of the abstract kind: no file, so no directory to provide and nothing left behind; its name
comes from the outbox, of which there is one for each daemon. The kernel tells both sides who the other is:
the daemon answers root and its own user, the command believes only the process that uses the outbox.

One line of JSON each way.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from buffer.reader import user_of

log = logging.getLogger(__name__)

_LONGEST_LINE: Final = 4096
_TIMEOUT_S: Final = 5.0
_UCRED: Final = struct.Struct("3i")

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""May raise ValueError and OSError: the asker is told."""


class ControlError(Exception):
    """The daemon can't be asked, or says no; the message says why."""


class ControlSocket:
    """Answers on a thread of its own, one asker after the other.

    ``uids`` may ask, beside root.
    """

    def __init__(self, outbox: Path, answer: Answer, uids: frozenset[int] | None = None) -> None:
        self._outbox = outbox
        self._answer = answer
        self._uids = {0, os.geteuid()} if uids is None else {0, *uids}
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, name="control", daemon=True)

    def start(self) -> None:
        """Begin to answer. Raises OSError."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(_name(self._outbox))
            listening.listen(4)
        except OSError:
            listening.close()
            raise
        self._socket = listening
        self._thread.start()

    def stop(self) -> None:
        """End."""
        listening, self._socket = self._socket, None
        if listening is not None:
            # Wakes accept(); close() alone doesn't.
            listening.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            listening.close()

    def _serve(self) -> None:
        listening = self._socket
        while listening is not None:
            try:
                asking, _ = listening.accept()
            except OSError:
                return
            with asking:
                asking.settimeout(_TIMEOUT_S)
                try:
                    asking.sendall(json.dumps(self._judged(asking)).encode() + b"\n")
                except OSError as error:
                    log.debug("event=control.broken_off error=%s", error)

    def _judged(self, asking: socket.socket) -> Mapping[str, Any]:
        _, uid, _ = _other_side(asking)
        if uid not in self._uids:
            log.warning("event=control.refused uid=%d", uid)
            return {"error": "only root and the daemon's own user may ask that: try sudo"}
        try:
            request = json.loads(_line(asking))
            if not isinstance(request, dict):
                return {"error": "a request is a JSON object"}
            return self._answer(request)
        except (ValueError, OSError) as error:
            return {"error": str(error)}


def ask(outbox: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """What the daemon that uses an outbox answers. Raises ControlError."""
    daemon = user_of(outbox)
    if daemon is None:
        raise ControlError(f"no daemon runs on {outbox}: start it (sudo systemctl start fieldgate)")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(2 * _TIMEOUT_S)
        try:
            asking.connect(_name(outbox))
            pid, _, _ = _other_side(asking)
            if pid != daemon:
                raise ControlError(f"process {pid} answers in the place of the daemon, process {daemon}")
            # Who is refused before being heard finds the door shut, and the reason behind it.
            with contextlib.suppress(BrokenPipeError):
                asking.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(_line(asking))
        except (OSError, ValueError) as error:
            raise ControlError(f"the daemon (process {daemon}) can't be asked: {error}") from error
    if not isinstance(answer, dict) or "error" in answer:
        raise ControlError(str(answer["error"] if isinstance(answer, dict) else answer))
    return answer


def _name(outbox: Path) -> str:
    return f"\0fieldgate-{sha256(os.fsencode(outbox.resolve())).hexdigest()[:24]}"


def _other_side(connected: socket.socket) -> tuple[int, int, int]:
    """Process, user and group at the other end (unix(7), SO_PEERCRED)."""
    pid, uid, gid = _UCRED.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid, gid


def _line(connected: socket.socket) -> bytes:
    """One line. Raises OSError, and ValueError where it has no end."""
    received = b""
    while not received.endswith(b"\n"):
        part = connected.recv(_LONGEST_LINE)
        received += part
        if not part or len(received) > _LONGEST_LINE:
            raise ValueError("the line has no end")
    return received
