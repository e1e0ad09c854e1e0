"""What can go wrong with a demo, in words for the person at the terminal."""

from __future__ import annotations


class DemoError(Exception):
    """The demo can't go on; the message says why, and where to look."""
