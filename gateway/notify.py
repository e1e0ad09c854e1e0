"""Tells systemd how the daemon is; says nothing where systemd or its library is absent."""

from __future__ import annotations

try:
    from systemd import daemon
except ImportError:
    daemon = None


def notify(state: str) -> None:
    """Send a state (sd_notify(3)), e.g. ``READY=1``; ignored when not started by systemd."""
    if daemon is not None:
        daemon.notify(state)
