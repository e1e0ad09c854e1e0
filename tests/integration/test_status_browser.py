"""The status page in a real Chromium, from a real daemon: on a phone's screen and on a desk's."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from paho.mqtt import publish

from cloud.wire.reading_records import format_time
from gateway.clock.given_time import ManualTime, TimeOffer
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.status.control_socket import send_request
from gateway.status.server import StatusServer, StatusSource
from gateway.status.status import Status
from gateway.status.tokens import Gate
from tests.support.browser import Chromium, Page
from tests.support.config import config_text, cup, dht
from tests.support.mast import GatewayProcess, run_gateway
from tests.support.servers import eventually, unique_name
from tests.support.status import status


def mast_config(name: str) -> str:
    fault = {"sensor": "gone", "kind": "bit-errors", "amount": 1}
    sensors = (cup("cup-50m-a"), dht(), dht("gone", 5))
    shed = {"filter": "shed", "payload": "number", "quantity": "temperature"}
    return config_text(
        *sensors,
        gateway={"id": name},
        board={"faults": [fault]},
        forward=[shed],
        actuator=[{"name": "heater", "pin": 23}, {"name": "fan", "pin": 24}],
        interlock=[
            {"when": "dht.temperature < 80", "then": "relay.heater on"},
            {"when": "gone.temperature > 40", "then": "relay.fan on"},
        ],
    )


TOKEN = "k7mq2fxa9tpehw3d"  # noqa: S105


@dataclass
class Mast:
    """A daemon, and what opens its page."""

    gateway: GatewayProcess
    outbox: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.status_port}/"

    def phone(self) -> tuple[str, str]:
        """Opens the door for phones: its address, and its token."""
        opened = send_request(self.outbox, {"do": "phone-open", "address": "127.0.0.1", "minutes": 5})
        return str(opened["url"]), str(opened["token"])


@pytest.fixture(scope="module")
def mast(provisioned: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mast]:
    directory, name = tmp_path_factory.mktemp("mast"), unique_name("mast")
    with (
        LocalMosquitto(directory / "mosquitto") as mosquitto,
        run_gateway(directory, mast_config(name), name, provisioned, mosquitto) as gateway,
    ):
        eventually(gateway.sampled, 60)
        eventually(lambda: gateway.status()["mqtt_connected"], 60)
        publish.single("shed", "21.5", qos=1, hostname=mosquitto.host, port=mosquitto.port)
        yield Mast(gateway, directory / "outbox.db")
        gateway.stop()


def card(name: str) -> str:
    """A channel's card, as an expression."""
    return f"[...document.querySelectorAll('.channels li')].find((li) => li.textContent.includes('{name}'))"


def milliseconds_between_readings(page: Page) -> float:
    """From one drawing of a cup's last readings to the next, by the browser's own clock."""
    script = f"""new Promise((kept) => {{
        const times = [];
        new MutationObserver((_, observer) => {{
            times.push(performance.now());
            const passed = times[times.length - 1] - times[0];
            if (passed > 100) {{ observer.disconnect(); kept(passed); }}
        }}).observe({card("cup-50m-a")}.querySelector('svg'), {{ childList: true }});
    }})"""
    return float(page.run(script))


@pytest.mark.parametrize(("width", "height"), [(360, 780), (1280, 900)])
def test_it_is_live_and_whole_on_each_screen(mast: Mast, chromium: Chromium, width: int, height: int) -> None:
    page = chromium.page(width, height)
    page.open(mast.url)
    assert page.see("#live", lambda text: text == "live")
    assert page.text("h1") == mast.gateway.id
    page.see(".channels", lambda text: "cup-50m-a.wind_speed" in text and "dht.humidity" in text)
    # The status each second; a starved machine may be late once, not three times.
    assert min(milliseconds_between_readings(page) for _ in range(3)) <= 2000
    wide, seen = page.run("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert (wide, seen) == (width, width)
    beyond = page.run(
        "[...document.querySelectorAll('body *')].filter((e) => !e.closest('svg') &&"
        " e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)"
        ".map((e) => e.tagName + e.className)"
    )
    assert beyond == []
    cup = page.run(card("cup-50m-a") + ".innerText")
    assert re.search(r"✓ good\s+\d+\.\d\d m/s\s+raw \d+\.\d\d Hz\s+\d+ s ago", cup), cup
    shed = page.run(card("shed") + ".innerText")
    assert re.search(r"21\.50 °C\s+raw 21\.50 °C\s+\d+ (s|min) ago\s+forwarded from another", shed), shed
    gone = page.run(card("gone.") + ".innerText")
    assert "✕ missing" in gone
    assert re.search("the sensor does not answer|the answer was damaged", gone), gone
    page.see("#tiles", lambda text: "Kafka acknowledged" in text and re.search(r"\d+ s ago", text))
    page.see("#tiles", lambda text: re.search(r"room for \d+ days", text))
    assert page.complaints() == []
    assert {url.split("/")[2] for url in page.requested()} == {mast.url.split("/")[2]}


def test_a_cup_that_turns_is_counted_as_it_turns(mast: Mast, chromium: Chromium) -> None:
    page = chromium.page(360, 780)
    page.open(mast.url)
    button = 'button[aria-label="Spin this cup: cup-50m-a"]'
    page.see(button)
    assert page.run("document.querySelectorAll('.channels button:not([hidden])').length") == 1
    page.click(button)
    begun = int(page.see("#spin-count", lambda text: text.isdigit()))
    assert int(page.see("#spin-count", lambda text: text.isdigit() and int(text) > begun)) > begun
    page.see("#spin-rate", lambda text: text.isdigit() and int(text) > 0)
    page.see("#spin-text", lambda text: text == "Pulses come.")
    assert page.run("document.documentElement.scrollWidth") == 360
    page.click("#spin-again")
    assert int(page.see("#spin-count", lambda text: text.isdigit())) <= begun
    page.press("Escape", 27)
    assert eventually(lambda: page.run("!document.querySelector('#spin').open"))
    assert page.complaints() == []


def test_all_of_it_can_be_reached_with_keys(mast: Mast, chromium: Chromium) -> None:
    page = chromium.page(360, 780)
    page.open(mast.url)
    page.see('button[aria-label="Spin this cup: cup-50m-a"]')
    page.press("Tab", 9)
    assert page.run("document.activeElement.getAttribute('aria-label')") == "Spin this cup: cup-50m-a"
    page.press("Enter", 13)
    assert eventually(lambda: page.run("document.querySelector('#spin').open"))
    # A screen reader gets what each picture and list is.
    assert page.run(
        "[...document.querySelectorAll('[role=img]')].every((e) => e.getAttribute('aria-label') !== '')"
    )
    assert page.run("document.querySelectorAll('h1').length") == 1
    assert page.run("document.documentElement.lang") == "en"


def test_relays_are_shown_with_their_reason(mast: Mast, chromium: Chromium) -> None:
    page = chromium.page(360, 780)
    page.open(mast.url)
    page.see("#details", lambda text: "relayheater: on (dht.temperature < 80)" in text)
    poor = page.run("[...document.querySelectorAll('#details .poor')].map((e) => e.textContent)")
    assert poor == ["fan: off (no good reading of gone.temperature)"]
    assert page.complaints() == []


def test_a_phone_gets_in_with_its_token_only(mast: Mast, chromium: Chromium) -> None:
    url, token = mast.phone()
    stranger = chromium.page(360, 780)
    stranger.open(url)
    assert "Scan the code" in stranger.see("p[role=status]")
    assert mast.gateway.id not in stranger.run("document.documentElement.outerHTML")
    stranger.click("#t")
    stranger.type("notthetoken")
    stranger.press("Enter", 13)
    stranger.see("p[role=status]", lambda text: "That token is wrong" in text)

    phone = chromium.page(360, 780)
    phone.open(f"{url}?t={token}")
    phone.see("#live", lambda text: text == "live")
    # Neither the address bar nor a script has it.
    assert phone.run("location.href") == url
    assert phone.run("document.cookie") == ""
    assert re.search(r"This page closes in[1-5] min", phone.see("#details"))
    assert phone.complaints() == []
    # It was typed in by hand, too.
    stranger.click("#t")
    stranger.type(token)
    stranger.press("Enter", 13)
    stranger.see("#live", lambda text: text == "live")

    assert send_request(mast.outbox, {"do": "phone-close"}) == {"was_open": True}
    phone.see("#live", lambda text: text == "not live")
    assert "No answer from the gateway" in phone.see("#gone-text")


def test_an_old_code_shows_what_to_do(mast: Mast, chromium: Chromium) -> None:
    url, token = mast.phone()
    phone = chromium.page(360, 780)
    phone.open(f"{url}?t={token}")
    phone.see("#live", lambda text: text == "live")
    again, other = mast.phone()
    assert (again, other == token) == (url, False)
    # The page requests the reason of the refusal, and shows it.
    phone.see("#gone-text", lambda text: "Scan the newest code" in text)
    send_request(mast.outbox, {"do": "phone-close"})


def test_a_lost_connection_is_shown_and_nothing_old_looks_live(mast: Mast, chromium: Chromium) -> None:
    page = chromium.page(360, 780)
    page.open(mast.url)
    page.see("#live", lambda text: text == "live")
    began = time.monotonic()
    mast.gateway.process.send_signal(19)  # SIGSTOP: the connection stays, and nothing comes over it.
    try:
        page.see("#live", lambda text: text == "not live")
        assert time.monotonic() - began > 1.0
        assert re.fullmatch(
            r"No answer from the gateway for \d+ s\. What you see is old\.", page.see("#gone-text")
        )
        ages = page.run("[...document.querySelectorAll('.age')].map((e) => e.textContent)")
        assert ages
        assert all(age.startswith("old: ") for age in ages), ages
        grey, ink = page.run(
            "['.value', 'body'].map((s) => getComputedStyle(document.querySelector(s)).color)"
        )
        assert grey != ink
    finally:
        mast.gateway.process.send_signal(18)
    # And live again, by itself.
    page.see("#live", lambda text: text == "live")
    page.see(".age", lambda text: text.endswith(" ago"))
    assert page.run("document.querySelector('#gone').hidden")


def test_a_phones_time_is_given_after_both_were_shown(chromium: Chromium) -> None:
    """The page against a server in this process, whose clock is a year behind."""
    behind_ms = 365 * 86_400_000
    booted_ms = time.time_ns() // 1_000_000 - 60_000
    offers = ManualTime(lambda: time.time_ns() - booted_ms * 1_000_000)
    may_be_given = [True]

    def snapshot() -> Status:
        now = format_time((time.time_ns() // 1_000_000 - behind_ms) * 1000)
        return status(now=now, clock="unsynced", clock_may_be_given=may_be_given[0], held=5123)

    def again(page: Page) -> list[TimeOffer]:
        """A busy machine may be too slow to carry a time: then one tries again, as the page advises."""
        if "too slow" in page.text("#clock-problem"):
            page.click("#clock-yes")
        return []

    gate = Gate(TOKEN, time.monotonic() + 600)
    source = StatusSource(snapshot, clock=offers)
    server = StatusServer("127.0.0.1", 0, source, gate, free_for_locals=False)
    server.start()
    try:
        page = chromium.page(360, 780)
        page.open(f"http://127.0.0.1:{server.server_port}/?t={TOKEN}")
        assert "5,123 readings wait for the right time" in page.see("#clock-text")
        page.click("#clock-open")
        assert page.see("#clock-differ") == "the gateway is 365 days behind"
        assert page.text("#clock-mine")[:4] != page.text("#clock-theirs")[:4]
        # Nothing is sent before the button is pressed.
        assert list(offers.take()) == []
        for refusal in ("the time was given already", None):
            page.click("#clock-yes")
            (offer,) = eventually(lambda: list(offers.take()) or again(page), 60)
            assert -2 <= offer.offset_ms - booted_ms <= offer.uncertain_ms + 2
            if refusal is None:
                offer.accepted.set_result(None)
            else:
                offer.accepted.set_exception(ValueError(refusal))
                assert eventually(lambda: page.text("#clock-problem")) == refusal
        assert eventually(lambda: page.run("!document.querySelector('#clock').open"))
        # Once it isn't wanted any more, it isn't offered.
        may_be_given[0] = False
        assert eventually(lambda: page.run("document.querySelector('#clock-section').hidden"))
    finally:
        server.stop()
