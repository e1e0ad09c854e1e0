"""The page where it is configured, and a phone's temporary one beside it. Owned by the main thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from ipaddress import ip_address
from typing import Any, Final

from gateway.config import StatusConfig
from gateway.ports import Snapshot
from gateway.status.bounded_server import Listener
from gateway.status.server import StatusServer, StatusSource
from gateway.status.temporary_access import LONGEST_MINUTES, TemporaryAccess
from gateway.status.tokens import Gate

OPEN: Final = "phone-open"
CLOSE: Final = "phone-close"


class StatusPage:
    """The server at the address that is configured, if any."""

    def __init__(self, source: StatusSource) -> None:
        self._source = source
        self._listener = Listener(self._open, StatusConfig(""))
        self.phone = TemporaryAccess(source)

    @property
    def port(self) -> int:
        """What is configured; 0 is any."""
        return self._listener.address.port

    def listen(self, address: StatusConfig) -> None:
        """Answer here from now on, and nowhere else. Raises OSError; then everything stays as it is."""
        self._listener.listen(address)

    def tick(self, _snapshot: Snapshot) -> None:
        """Close the phone's page where its time is over."""
        self.phone.check()

    def stop(self) -> None:
        """End and give the ports back."""
        self.phone.close()
        self._listener.stop()

    def _open(self, address: StatusConfig) -> StatusServer | None:
        if not address.enabled:
            return None
        return StatusServer(address.host, address.port, self._source, Gate(address.token))


def phone_control(page: StatusPage, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Carry out a request of ``fieldgate phone``. Raises ValueError and OSError, with a text for the user."""
    if request.get("do") == CLOSE:
        return {"was_open": page.phone.close()}
    if request.get("do") != OPEN:
        raise ValueError(f"requests are {OPEN} and {CLOSE}")
    address = str(ip_address(str(request.get("address"))))
    minutes: Any = request.get("minutes")
    if type(minutes) not in (int, float) or not 0 < minutes <= LONGEST_MINUTES:
        raise ValueError(f"minutes must be above 0 and at most {LONGEST_MINUTES}")
    return asdict(page.phone.open(address, page.port, minutes))
