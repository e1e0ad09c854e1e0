"""Tells systemd how the daemon is: one datagram a state (sd_notify(3)), with no library to build or to miss.

A unit of Type=notify whose daemon can't say READY is killed at its start timeout, again and again.
"""

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
    """Send a state, e.g. ``READY=1``; nothing happens when not started by systemd.

    Never blocks and never raises: a daemon that can't be heard goes on sampling until the watchdog acts.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to_systemd:
        to_systemd.setblocking(False)
        try:
            # An address that begins with "@" is in the abstract namespace, as unix(7) has it.
            to_systemd.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
        except OSError as error:
            log.debug("event=systemd.not_told state=%s error=%s", state, error)
