"""Pages that no browser connects to are given up, so that they don't fill the memory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from nicegui import Client

from cloud.dashboard import server
from cloud.dashboard.server import MOST_UNOPENED, Unopened


class _Page(SimpleNamespace):
    """As NiceGUI's client: connected or not, and gone once it is deleted."""

    def delete(self) -> None:
        del Client.instances[self.id]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What has been built by ``_add``, with nobody else's pages."""
    monkeypatch.setattr(Client, "instances", {})
    return []


def _add(unopened: Unopened, built: list[Any], monkeypatch: pytest.MonkeyPatch, *, opened: bool) -> None:
    page: Any = _Page(id=str(len(built)), has_socket_connection=opened)
    Client.instances[page.id] = page
    built.append(page)
    monkeypatch.setattr(server, "context", SimpleNamespace(client=page))

    async def build() -> None:
        return None

    asyncio.run(unopened.add(build()))


def test_the_oldest_go_and_those_that_are_open_stay(
    built: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    unopened = Unopened()
    for _ in range(3):
        _add(unopened, built, monkeypatch, opened=True)
        for _ in range(MOST_UNOPENED):
            _add(unopened, built, monkeypatch, opened=False)

    left = [page for page in built if page.id in Client.instances]
    assert [page for page in left if page.has_socket_connection] == built[:: MOST_UNOPENED + 1]
    assert [page for page in left if not page.has_socket_connection] == built[-MOST_UNOPENED:]


def test_one_that_nobody_opens_goes_in_time(built: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    unopened = Unopened()
    _add(unopened, built, monkeypatch, opened=False)
    unopened.prune()
    assert Client.instances

    monkeypatch.setattr(server, "CONNECT_WITHIN_S", 0.0)
    unopened.prune()
    assert not Client.instances
