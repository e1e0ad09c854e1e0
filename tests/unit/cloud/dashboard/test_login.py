"""Who may ask for pages: guesses that come at once, and sockets whose session has ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from cloud.config import DashboardUser
from cloud.dashboard import login
from cloud.dashboard.login import COOKIE, LoggedIn, Sessions

HERE = "192.0.2.7"
RIGHT = "".join(("a", " right", " one"))


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The passwords that were worked on."""
    found: list[str] = []

    def is_right(password: str, kept: str) -> bool:
        found.append(password)
        return password == RIGHT

    monkeypatch.setattr(login, "is_right", is_right)
    return found


def sessions() -> Sessions:
    return Sessions({"anna": DashboardUser.model_construct(password="", gateways=["*"])})


def test_guesses_that_come_at_once_are_slowed_as_others_are(tried: list[str]) -> None:
    async def guess() -> list[str | None]:
        guards = sessions()
        many = [guards.begin("anna", f"guess {number}", HERE) for number in range(50)]
        found = await asyncio.gather(*many)
        # From elsewhere one may.
        assert await guards.begin("anna", RIGHT, "192.0.2.8") is not None
        return found

    assert asyncio.run(guess()) == [None] * 50
    assert tried == [*(f"guess {number}" for number in range(5)), RIGHT]


def test_a_login_of_ones_own_doesnt_clear_the_guesses_at_anothers(tried: list[str]) -> None:
    async def guess() -> list[str | None]:
        guards = Sessions(
            {name: DashboardUser.model_construct(password="", gateways=["*"]) for name in ("anna", "ben")}
        )
        found = []
        for number in range(8):
            found.append(await guards.begin("anna", f"guess {number}", HERE))
            found.append(await guards.begin("ben", RIGHT, HERE))
        return found

    asyncio.run(guess())
    assert [each for each in tried if each != RIGHT] == [f"guess {number}" for number in range(5)]


def test_the_addresses_of_one_customer_count_together(tried: list[str]) -> None:
    async def guess() -> None:
        guards = sessions()
        for number in range(50):
            await guards.begin("anna", f"guess {number}", f"2001:db8:0:7::{number:x}")
        assert guards.wait_s("2001:db8:0:7:ffff::1") > 0
        assert guards.wait_s("2001:db8:0:8::1") == 0

    asyncio.run(guess())
    assert len(tried) == 5


def test_a_page_that_stays_open_ends_with_its_session(tried: list[str]) -> None:
    async def opened() -> list[str]:
        guards = sessions()
        token = await guards.begin("anna", RIGHT, HERE)
        came: list[str] = []

        async def page(scope: Scope, receive: Receive, send: Send) -> None:
            while (message := await receive())["type"] != "websocket.disconnect":
                came.append(message["text"])
                guards.end(token if message["text"] == "2" else None)
            came.append(message["type"])

        async def browser() -> Message:
            return {"type": "websocket.receive", "text": str(len(came) + 1)}

        async def send(message: Message) -> None:
            came.append(message["type"])

        cookie = (b"cookie", f"{COOKIE}={token}".encode())
        scope: dict[str, Any] = {"type": "websocket", "path": "/_nicegui_ws/", "headers": [cookie]}
        await LoggedIn(page, guards)(scope, browser, send)
        return came

    assert asyncio.run(opened()) == ["1", "2", "websocket.disconnect"]
