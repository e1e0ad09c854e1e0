"""State of this process for systemd, as datagrams that never block (sd_notify(3))."""

from __future__ import annotations

import logging
import os
import socket

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
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            # After "@" it is a name in the abstract namespace (unix(7)).
            name = "\0" + address[1:] if address[0] == "@" else address
            sender.sendto(state.encode(errors="replace"), name)
    except OSError as error:
        log.debug("event=systemd.not_notified state=%s error=%s", state, error)
