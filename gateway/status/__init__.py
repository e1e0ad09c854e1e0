"""What the daemon says of itself over HTTP: a page for people, JSON, events, Prometheus' metrics, health.

``server`` listens, ``request`` answers, ``access`` judges tokens, ``phone`` opens a door for an hour,
``page.html`` is what a phone shows, ``metrics`` and ``words`` are pure, ``vitals`` asks the machine.
"""

from gateway.status.server import StatusServer
from gateway.status.service import PhoneControl, StatusPage
from gateway.status.source import Answers

__all__ = ["Answers", "PhoneControl", "StatusPage", "StatusServer"]
