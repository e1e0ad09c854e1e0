"""The daemon's status over HTTP: a page for people, JSON, server-sent events, Prometheus metrics, health.

``server`` listens, ``handlers`` answer, ``tokens`` decide which requests are admitted, ``temporary_access``
opens the page to a phone for an hour, ``page.html`` is that page, ``metrics`` is pure, ``client`` is what
commands use.
"""

from gateway.status.server import StatusServer, StatusSource
from gateway.status.service import StatusPage, phone_control

__all__ = ["StatusPage", "StatusServer", "StatusSource", "phone_control"]
