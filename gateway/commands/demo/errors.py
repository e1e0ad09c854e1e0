"""What can go wrong with a demo, in words for the person at the terminal."""

from __future__ import annotations

from gateway.commands.arguments import CommandError


class DemoError(CommandError):
    """The demo can't go on; the message gives the reason, and the log to read."""
