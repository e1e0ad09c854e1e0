"""State of this process for systemd, through systemd-python; nothing is sent where that isn't installed.

libsystemd sends with sockets that block, and systemd-python holds the interpreter lock meanwhile: a receiver
that reads no more would stop every thread of this process (measured: docs/decisions/operation.md). Each send
therefore follows a check for room. What remains is the moment between check and send, in which other senders
would have to fill the receiver's queue.
"""

from __future__ import annotations

import logging
import os
import select
import socket
from functools import cache

try:
    from systemd import daemon as _daemon
except ImportError:
    _daemon = None

log = logging.getLogger(__name__)


def watchdog_period_s() -> float | None:
    """How long systemd waits for a ping of this process, seconds; None where it expects none."""
    usec, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not usec.isdigit() or int(usec) == 0 or pid not in ("", str(os.getpid())):
        return None
    return int(usec) / 1e6


def notify(state: str) -> None:
    """Send a state, e.g. ``READY=1`` (sd_notify(3)); does nothing when not started by systemd.

    Never blocks and never raises: without its notifications the daemon samples on until the watchdog acts.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    if _daemon is None:
        _report_missing_library()
        return
    try:
        if not has_room(address):
            raise BlockingIOError("systemd reads no notifications")
        _daemon.notify(state)
    except OSError as error:
        log.debug("event=systemd.not_notified state=%s error=%s", state, error)


def has_room(address: str, wait_s: float = 0.0) -> bool:
    """Whether a datagram socket of this machine takes a message now, or within ``wait_s``.

    ``address``: a path, or a name in the abstract namespace after "@" (unix(7)). Raises OSError where nothing
    receives there.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        probe.connect(address.replace("@", "\0", 1) if address[0] == "@" else address)
        poll = select.poll()
        # A connected socket's queue is the receiver's too.
        poll.register(probe, select.POLLOUT)
        return bool(poll.poll(1000 * wait_s))


@cache
def _report_missing_library() -> None:
    log.error("event=systemd.no_library package=python3-systemd")
