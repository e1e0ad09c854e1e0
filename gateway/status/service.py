"""The page where it is configured, and a phone's temporary one beside it. Owned by the main thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from ipaddress import ip_address
from typing import Any, Final

from gateway.config import StatusConfig
from gateway.ports import Snapshot
from gateway.status.server import StatusServer, StatusSource
from gateway.status.temporary_access import LONGEST_MINUTES, TemporaryAccess
from gateway.status.tokens import Gate

OPEN: Final = "phone-open"
CLOSE: Final = "phone-close"


class StatusPage:
    """The server at the address that is configured, if any."""

    def __init__(self, source: StatusSource) -> None:
        self._source = source
        self._server: StatusServer | None = None
        self._address = StatusConfig("")
        self.phone = TemporaryAccess(source)

    @property
    def port(self) -> int:
        """What is configured; 0 is any."""
        return self._address.port

    def listen(self, address: StatusConfig) -> None:
        """Answer here from now on, and nowhere else. Raises OSError; then everything stays as it is."""
        before = self._address
        if before.port == address.port:
            # The same port on another address may be in the way of itself.
            self._stop()
        try:
            server = self._open(address)
        except OSError:
            if self._server is None:
                self._server = self._open(before)
            raise
        self._stop()
        self._server, self._address = server, address

    def tick(self, _snapshot: Snapshot) -> None:
        """Close the phone's page where its time is over."""
        self.phone.check()

    def stop(self) -> None:
        """End and give the ports back."""
        self.phone.close()
        self._stop()

    def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _open(self, address: StatusConfig) -> StatusServer | None:
        if not address.enabled:
            return None
        server = StatusServer(address.host, address.port, self._source, Gate(address.token))
        server.start()
        return server


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
