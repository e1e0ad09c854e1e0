"""A command from the page of a mast, through a real Kafka to a real gateway, and its result on the page."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.integration.test_commands import mast_config
from tests.integration.test_dashboard_login import PASSWORD, Visitor, hashed, served
from tests.support.browser import Chromium, Page
from tests.support.fleet_lake import write_fleet
from tests.support.mast import run_gateway
from tests.support.servers import eventually

MAST = "mast-01"


def press(page: Page, label: str) -> None:
    """Presses the button of that label, once it is there and enabled."""
    button = f"[...document.querySelectorAll('button')].find(each => each.innerText.trim() == {label!r})"
    eventually(lambda: page.run(f"{button} && !{button}.disabled"), 20)
    page.run(f"{button}.click()")


def fill(page: Page, label: str, text: str) -> None:
    place = f"input[aria-label={label!r}]"
    eventually(lambda: page.run(f'!!document.querySelector("{place}")'), 20)
    page.run(f'document.querySelector("{place}").focus()')
    page.type(text)


def test_a_command_is_confirmed_twice_and_answered(
    provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    write_fleet(tmp_path / "lake", 1, 1, end=datetime(2026, 11, 21, tzinfo=UTC))
    line = hashed(PASSWORD)
    (tmp_path / "cloud.toml").write_text(
        f'[kafka]\nbootstrap_servers = "{provisioned}"\n[lake]\npath = "lake"\n[dashboard]\ncommands = true\n'
        f"[dashboard.users.olga]\ncommands = true\n{line}[dashboard.users.anna]\n{line}"
    )
    config = mast_config(MAST, "read")
    with (
        run_gateway(tmp_path, config, MAST, provisioned, mosquitto) as mast,
        served(tmp_path, "cloud.toml", "127.0.0.1", quiet=False) as port,
        Chromium(tmp_path / "profile") as browser,
    ):
        eventually(mast.sampled)
        looks_on = Visitor(port)
        looks_on.log_in("anna")
        assert "Payload" not in looks_on.ask(f"/mast/{MAST}").text
        page = browser.page(1440, 900)
        page.open(f"http://127.0.0.1:{port}/mast/{MAST}")
        page.see("form", lambda text: "Password" in text)
        fill_in = "document.querySelector('[name={}]').value = {!r};"
        page.run(fill_in.format("user", "olga") + fill_in.format("password", PASSWORD))
        page.run("document.querySelector('form').submit()")
        page.see("main", lambda text: "Command" in text)
        # Live from Kafka, though the lake has no such channel yet.
        page.see(
            "main", lambda text: re.search(r"m/s.*cup\.wind_speed(good|not evaluated).*, \d s ago", text)
        )
        press(page, "Send …")
        page.see("main", lambda text: "read needs a target" in text)
        fill(page, "Target", "cup")
        press(page, "Send …")
        press(page, "Continue")
        fill(page, MAST, MAST)
        press(page, "Send now")
        answer = page.see("main", lambda text: " done " in text, 60)
        assert re.search(r"read cup: done \{.*cup\.wind_speed", answer)
        assert page.complaints() == []
    log = (tmp_path / "cloud.toml.log").read_text()
    assert re.search(rf"event=dashboard\.command user=olga gateway={MAST} id=\w+ action=read target=cup", log)
