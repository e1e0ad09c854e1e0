"""The card that sends a command to the mast of the page: confirmed twice, then its result."""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from nicegui import ui

from cloud.config import KafkaConfig
from cloud.dashboard.frame import card, is_open
from cloud.errors import CloudError
from cloud.kafka.command_client import CommandClient, in_words, new_command
from cloud.wire.command_records import ACTIONS, WITH_TARGET, Command
from cloud.wire.fields import InvalidFields

log = logging.getLogger(__name__)

_WAIT_S: Final = 60.0
"""A result that comes later is in the list."""
_EXPIRES_S: Final = 600.0
_LISTED_HOURS: Final = 24
# Waiting for a mast would keep the pages' own threads from reading.
_THREADS: Final = ThreadPoolExecutor(4, "commands")
_T = TypeVar("_T")


class CommandSender:
    """Commands through the cluster of the config; one user's, or anybody's who may open the pages."""

    def __init__(self, kafka: KafkaConfig, user: str | None) -> None:
        self._kafka, self._user = kafka, user

    async def send(self, command: Command) -> str:
        """What became of a command, in words. Raises CloudError."""
        log.warning(
            "event=dashboard.command user=%s gateway=%s id=%s action=%s target=%s",
            self._user or "-", command.gateway, command.id, command.action, command.target or "-",
        )  # fmt: skip
        result = await self._later(command.gateway, lambda client: client.send(command, _WAIT_S))
        return in_words(command, result)

    async def recent(self, gateway: str, now_ms: int) -> list[str]:
        """A mast's commands of the last day with their results, the newest first. Raises CloudError."""
        since = now_ms - _LISTED_HOURS * 3_600_000
        found = await self._later(gateway, lambda client: client.since(since))
        return [in_words(*each) for each in reversed(found)]

    async def _later(self, gateway: str, question: Callable[[CommandClient], _T]) -> _T:
        def answered() -> _T:
            kafka = self._kafka
            client = CommandClient(kafka.servers, kafka.properties(), gateway, prefix=kafka.prefix)
            return question(client)

        return await get_running_loop().run_in_executor(_THREADS, answered)


def command_card(gateway: str, sender: CommandSender, now_ms: Callable[[], int]) -> None:
    """Builds the card."""
    with card("Command", wide=True):
        with ui.element("div").classes("line"):
            action = ui.select(list(ACTIONS), value="read", label="Action").props("dense")
            target = ui.input("Target", placeholder="a relay, a sensor, a topic").props("dense")
            state = ui.select(["on", "off", "normal"], value="off", label="State").props("dense")
            for_s = ui.number("For, s", value=600, min=1).props("dense")
            interval_s = ui.number("Interval, s", value=10, min=0.1).props("dense")
            payload = ui.input("Payload").props("dense")
            ui.button("Send …", on_click=lambda: confirm()).props("dense no-caps outline")
        outcome = ui.label().classes("soft").props('role="status"')
        listed = ui.element("div")
    shown = {"switch": (state, for_s), "interval": (interval_s,), "publish": (payload,)}

    def arrange() -> None:
        target.set_visibility(action.value in WITH_TARGET)
        for name, inputs in shown.items():
            for each in inputs:
                each.set_visibility(action.value == name)

    action.on_value_change(arrange)
    arrange()

    def wanted() -> Command:
        chosen = str(action.value)
        args: dict[str, dict[str, Any]] = {
            "switch": {"state": state.value, "for_s": for_s.value},
            "interval": {"interval_s": interval_s.value},
            "publish": {"payload": payload.value},
        }
        place = str(target.value or "").strip() if chosen in WITH_TARGET else ""
        return new_command(gateway, chosen, place, args.get(chosen, {}), _EXPIRES_S)

    async def confirm() -> None:
        try:
            command = wanted()
        except (CloudError, InvalidFields) as error:
            outcome.set_text(str(error))
            return
        what = " ".join(filter(None, (command.action, command.target, *_words(command.args))))
        if await _confirmed(
            f"{gateway}: {what}. It is carried out within ten minutes or not at all.", gateway
        ):
            await watched(sender.send(command), f"{what}: waiting for {gateway}, a minute at most …")
            await renew()

    async def watched(answer: Awaitable[str], meanwhile: str) -> None:
        outcome.set_text(meanwhile)
        try:
            text = await answer
        except CloudError as error:
            text = str(error)
        if is_open(listed):
            outcome.set_text(text)

    async def renew() -> None:
        try:
            lines = await sender.recent(gateway, now_ms()) or [
                f"No command in the last {_LISTED_HOURS} hours."
            ]
        except CloudError as error:
            lines = [str(error)]
        if is_open(listed):
            listed.clear()
            with listed:
                for each in lines[:20]:
                    ui.label(each).classes("soft")

    ui.timer(0.1, renew, once=True)


def _words(args: Any) -> list[str]:
    return [f"{name} {value}" for name, value in args.items()]


async def _confirmed(what: str, gateway: str) -> bool:
    """Whether it is wanted, twice: by a button, and by the mast's name typed."""
    with ui.dialog() as first, ui.card():
        ui.label(what)
        with ui.row():
            ui.button("Cancel", on_click=lambda: first.submit(False)).props("flat no-caps")
            ui.button("Continue", on_click=lambda: first.submit(True)).props("no-caps")
    with ui.dialog() as second, ui.card():
        ui.label(f"{what} Type the mast's name to send it.")
        name = ui.input(gateway).props("dense")
        with ui.row():
            ui.button("Cancel", on_click=lambda: second.submit(False)).props("flat no-caps")
            send = ui.button("Send now", on_click=lambda: second.submit(True)).props("no-caps color=negative")
            send.bind_enabled_from(name, "value", lambda text: text == gateway)
    return bool(await first) and bool(await second)
