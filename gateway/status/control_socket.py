"""Carries requests of a command on this machine to the running daemon.

The Unix socket is abstract: it has no file, so it needs no directory and leaves nothing behind; its name
comes from the outbox, of which there is one for each daemon. Both sides get the other's identity from the
kernel: the daemon answers root and its own user, the command accepts only the process that uses the outbox.

Request and response are one line of JSON each.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from buffer.reader import user_of
from cloud.wire.fields import load_object

log = logging.getLogger(__name__)

RELOAD: Final = "reload"
_LONGEST_LINE: Final = 1 << 16
_TIMEOUT_S: Final = 5.0
_UCRED: Final = struct.Struct("3i")

Respond = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Carries out a request. It may raise ValueError and OSError, whose text is the response."""


class ControlError(Exception):
    """The daemon can't be reached, or refuses; the message has the reason."""


class ControlSocket:
    """Responds on a thread of its own, to one request after the other.

    ``uids`` may send them, beside root.
    """

    def __init__(self, outbox: Path, respond: Respond, uids: frozenset[int] | None = None) -> None:
        self._outbox = outbox
        self._respond = respond
        self._uids = {0, os.geteuid()} if uids is None else {0, *uids}
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, name="control", daemon=True)

    def start(self) -> None:
        """Begins to answer. Raises OSError."""
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
        """Ends; a request whose answer never comes doesn't delay it."""
        listening, self._socket = self._socket, None
        if listening is not None:
            # Wakes accept(); close() alone doesn't.
            listening.shutdown(socket.SHUT_RDWR)
            # Not for a request whose answer will never come.
            self._thread.join(_TIMEOUT_S)
            listening.close()

    def _serve(self) -> None:
        listening = self._socket
        while listening is not None:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client:
                client.settimeout(_TIMEOUT_S)
                try:
                    client.sendall(msgspec.json.encode(self._response(client)) + b"\n")
                except OSError as error:
                    log.debug("event=control.broken_off error=%s", error)

    def _response(self, client: socket.socket) -> Mapping[str, Any]:
        _, uid, _ = _other_side(client)
        if uid not in self._uids:
            log.warning("event=control.refused uid=%d", uid)
            return {"error": "only root and the daemon's own user may request that: try sudo"}
        try:
            return self._respond(load_object(_line(client)))
        except (ValueError, OSError) as error:
            return {"error": str(error)}


def send_request(
    outbox: Path, request: Mapping[str, Any], timeout_s: float = 2 * _TIMEOUT_S
) -> dict[str, Any]:
    """Returns the response of the daemon that uses an outbox. Raises ControlError."""
    daemon = user_of(outbox)
    if daemon is None:
        raise ControlError(f"no daemon runs on {outbox}: start it (sudo systemctl start fieldgate)")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(_name(outbox))
            pid, _, _ = _other_side(connection)
            if pid != daemon:
                raise ControlError(f"process {pid} responds in the place of the daemon, process {daemon}")
            # A refusal may come before the request is read: the reason can be received nevertheless.
            with contextlib.suppress(BrokenPipeError):
                connection.sendall(msgspec.json.encode(request) + b"\n")
            response = load_object(_line(connection))
        except (OSError, ValueError) as error:
            raise ControlError(f"the daemon (process {daemon}) can't be reached: {error}") from error
    if "error" in response:
        raise ControlError(str(response["error"]))
    return response


def _name(outbox: Path) -> str:
    return f"\0fieldgate-{sha256(os.fsencode(outbox.resolve())).hexdigest()[:24]}"


def _other_side(connected: socket.socket) -> tuple[int, int, int]:
    """Returns process, user and group at the other end (unix(7), SO_PEERCRED)."""
    pid, uid, gid = _UCRED.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid, gid


def _line(connected: socket.socket) -> bytes:
    """Reads one line. Raises OSError, and ValueError for a line without an end."""
    with connected.makefile("rb") as stream:
        line = stream.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise ValueError("the line has no end")
    return line
