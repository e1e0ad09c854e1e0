"""A phone's time on its way: what is taken, what is refused, and by whom it can be given at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from gateway.clock.given_time import SLOWEST_MS, ManualTime
from gateway.status.server import StatusSource
from gateway.status.tokens import Gate
from tests.support import status_page
from tests.support.status import HEALTHY
from tests.support.status_page import Client

TOKEN = "k7mq2fxa9tpehw3d"  # noqa: S105
BOOTED_MS = 1_795_246_000_000


class Taker(threading.Thread):
    """The main loop: takes offers until it is stopped, and answers as set."""

    def __init__(self, offers: ManualTime, refusal: str | None = None) -> None:
        super().__init__(daemon=True)
        self.offers = offers
        self.refusal = refusal
        self.taken: list[tuple[int, int]] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.01):
            for offer in self.offers.take():
                self.taken.append((offer.offset_ms, offer.uncertain_ms))
                if self.refusal is None:
                    offer.accepted.set_result(None)
                else:
                    offer.accepted.set_exception(ValueError(self.refusal))


@contextmanager
def taking(offers: ManualTime, refusal: str | None = None) -> Iterator[Taker]:
    taker = Taker(offers, refusal)
    taker.start()
    try:
        yield taker
    finally:
        taker.over.set()
        taker.join(10)


def test_the_pair_is_what_counts_not_when_it_arrives() -> None:
    now_ns = 7_000_400_000
    offers = ManualTime(lambda: now_ns)
    with taking(offers) as taker:
        offers.give(BOOTED_MS + 7_000, 7_000)
        now_ns = (7_000 + SLOWEST_MS) * 1_000_000
        offers.give(BOOTED_MS + 7_000, 7_000)
        assert taker.taken == [(BOOTED_MS, 0), (BOOTED_MS, SLOWEST_MS)]
        for asked_boot_ms in (7_000 - 1, 7_000 + SLOWEST_MS + 1):
            with pytest.raises(ValueError, match="too slow"):
                offers.give(BOOTED_MS + 7_000, asked_boot_ms)
        assert len(taker.taken) == 2


def test_a_refusal_has_its_reason() -> None:
    offers = ManualTime(lambda: 0)
    with taking(offers, "the clock is set already"), pytest.raises(ValueError, match="set already"):
        offers.give(BOOTED_MS, 0)


def served(offers: ManualTime | None, *, free_for_locals: bool = False) -> AbstractContextManager[Client]:
    source = StatusSource(lambda: HEALTHY, clock=offers)
    return status_page.served(source, Gate(TOKEN), free_for_locals=free_for_locals)


def post(connection: Client, body: object, **headers: str) -> tuple[int, str]:
    mine = {"Cookie": f"fieldgate-{connection.port}={TOKEN}", "Origin": f"http://127.0.0.1:{connection.port}"}
    return connection.post("/api/clock", body, **{**mine, **headers})


def test_over_its_page_a_phone_gives_its_time() -> None:
    offers = ManualTime(lambda: 7_000_000_000)
    with served(offers) as connection, taking(offers) as taker:
        cookie = {"Cookie": f"fieldgate-{connection.port}={TOKEN}"}
        assert json.loads(connection.ask("GET", "/api/clock", **cookie).text) == {"boot_ms": 7_000}
        assert post(connection, {"time_ms": BOOTED_MS + 7_000, "asked_boot_ms": 7_000}) == (200, "taken")
        assert taker.taken == [(BOOTED_MS, 0)]


def test_no_other_client_gives_one() -> None:
    offers = ManualTime(lambda: 7_000_000_000)
    body = {"time_ms": BOOTED_MS + 7_000, "asked_boot_ms": 7_000}
    with taking(offers) as taker:
        with served(offers) as connection:
            assert post(connection, body, Cookie="")[0] == 401
            assert post(connection, body, Origin="http://example.org")[0] == 403
            # What a form of another site's page could send.
            assert post(connection, body, Content_Type="text/plain")[0] == 409
            wrong: object
            for wrong in (
                [],
                {},
                {"time_ms": True, "asked_boot_ms": 7_000},
                {"time_ms": 1.5, "asked_boot_ms": 7_000},
                {"time_ms": "1", "asked_boot_ms": 7_000},
                {**body, "more": "x" * 1_000},
            ):
                assert post(connection, wrong)[0] == 409
            headers = {"Cookie": f"fieldgate-{connection.port}={TOKEN}", "Content_Type": "application/json"}
            assert connection.ask("POST", "/api/clock", b"[" * 1_000, **headers).status == 409
        # The page at status.listen takes none from any client; nor does a board with a time of its own.
        with served(offers, free_for_locals=True) as connection:
            assert post(connection, body)[0] == 405
        with served(None) as connection:
            assert post(connection, body)[0] == 405
        assert taker.taken == []
