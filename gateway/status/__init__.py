"""The daemon's status over HTTP: a page for people, JSON, server-sent events, Prometheus metrics, health.

``server`` listens, ``handlers`` answer, ``tokens`` decide who may, ``temporary_access`` opens the page to a
phone for an hour, ``page.html`` is that page, ``metrics`` is pure, ``client`` is what commands use.
"""

from gateway.status.server import StatusServer
from gateway.status.service import PhoneControl, StatusPage
from gateway.status.source import Answers

__all__ = ["Answers", "PhoneControl", "StatusPage", "StatusServer"]
