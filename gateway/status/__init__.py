"""What the daemon says of itself over HTTP: a page for people, JSON, events, Prometheus' metrics, health.

``server`` answers, ``page.html`` is what a phone shows, ``metrics`` and ``words`` are pure, ``vitals`` asks
the machine.
"""

from gateway.status.server import Answers, StatusPage, StatusServer

__all__ = ["Answers", "StatusPage", "StatusServer"]
