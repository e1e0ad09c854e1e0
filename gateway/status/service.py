"""The page where it is configured, and the door for a phone beside it. Owned by the main thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from ipaddress import ip_address
from typing import Any, Final

from gateway.config import StatusConfig
from gateway.ports import Snapshot
from gateway.status.server import StatusServer
from gateway.status.source import Answers
from gateway.status.temporary_access import LONGEST_MINUTES, PhoneDoor
from gateway.status.tokens import Gate

OPEN: Final = "phone-open"
CLOSE: Final = "phone-close"


class PhoneControl:
    """What ``fieldgate phone`` asks of the daemon. Raises ValueError and OSError, for the asker to read."""

    def __init__(self, page: StatusPage) -> None:
        self._page = page

    def __call__(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Open or close the door."""
        if request.get("do") == CLOSE:
            return {"was_open": self._page.phone.close()}
        if request.get("do") != OPEN:
            raise ValueError(f"{OPEN} and {CLOSE} can be asked")
        address = str(ip_address(str(request.get("address"))))
        minutes: Any = request.get("minutes")
        if type(minutes) not in (int, float) or not 0 < minutes <= LONGEST_MINUTES:
            raise ValueError(f"minutes must be above 0 and at most {LONGEST_MINUTES}")
        return asdict(self._page.phone.open(address, self._page.port, minutes))


class StatusPage:
    """The server at the address that is configured, if any."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._server: StatusServer | None = None
        self._address = StatusConfig("")
        self.phone = PhoneDoor(answers)

    @property
    def port(self) -> int:
        """What is configured; 0 is any."""
        return self._address.port

    def listen(self, address: StatusConfig) -> None:
        """Answer here from now on, and nowhere else. Raises OSError; then everything stays as it is."""
        before = self._address
        if self._server is not None and before.port == address.port:
            # The same port on another address may be in the way of itself.
            self._stop()
        try:
            server = self._open(address)
        except OSError:
            if self._server is None and before.enabled:
                self._server = self._open(before)
            raise
        self._stop()
        self._server, self._address = server, address

    def tick(self, _snapshot: Snapshot) -> None:
        """Close the door for a phone where its time is over."""
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
        server = StatusServer(address.host, address.port, self._answers, Gate(address.token))
        server.start()
        return server
