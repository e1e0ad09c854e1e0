"""Users of the pages: a login, and each one's masts alone; over TLS, with a browser too."""

from __future__ import annotations

import http.client
import os
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import pytest

from cloud.local.process import free_port
from tests.support.browser import Chromium
from tests.support.fleet_lake import write_fleet
from tests.support.servers import eventually

PASSWORD = "a mast of sixty metres"  # noqa: S105


def hashed(password: str) -> str:
    command = (sys.executable, "-m", "gateway.cli", "dashboard", "--hash-password")
    made = subprocess.run(command, input=f"{password}\n", capture_output=True, text=True, check=True)
    return made.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("login")
    write_fleet(root / "lake", 3, 1, end=datetime(2026, 11, 21, tzinfo=UTC))
    line = hashed(PASSWORD)
    assert PASSWORD not in line
    (root / "cloud.toml").write_text(
        f'[lake]\npath = "lake"\n\n[dashboard.users.olga]\n{line}\n'
        f'[dashboard.users.anna]\ngateways = ["*-02", "elsewhere"]\n{line}'
    )
    openssl = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    )
    subprocess.run(
        (
            *openssl.split(),
            "-keyout",
            "pages.key",
            "-out",
            "pages.pem",
            "-addext",
            "subjectAltName=DNS:localhost",
        ),
        cwd=root,
        check=True,
        capture_output=True,
    )
    text = (root / "cloud.toml").read_text()
    (root / "tls.toml").write_text(f'{text}\n[dashboard]\ncertificate = "pages.pem"\nkey = "pages.key"\n')
    return root


@contextmanager
def served(place: Path, config: str, host: str, *, quiet: bool = True) -> Iterator[int]:
    port = free_port()
    log = place / f"{config}.log"
    command = ("dashboard", "--cloud", str(place / config), "--listen", f"{host}:{port}")
    with log.open("w") as out:
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        process = subprocess.Popen(
            (sys.executable, "-m", "gateway.cli", *command), stdout=out, stderr=out, env=env
        )
    try:
        eventually(log.read_text, 60, until=lambda text: f"://{host}:{port}/" in text)
        yield port
    finally:
        process.terminate()
        process.wait(20)
    assert not quiet or len(log.read_text().splitlines()) == 1, log.read_text()


@pytest.fixture(scope="module")
def port(place: Path) -> Iterator[int]:
    with served(place, "cloud.toml", "127.0.0.1") as found:
        yield found


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    text: str


class Visitor:
    """A client with one cookie at most."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._port, self._tls = port, tls
        self.cookie = ""

    def ask(self, path: str, form: Mapping[str, str] | None = None, /, **headers: str) -> Answer:
        if self._tls is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        else:
            connection = http.client.HTTPSConnection("localhost", self._port, timeout=20, context=self._tls)
        if self.cookie:
            headers["Cookie"] = self.cookie
        try:
            body = None if form is None else urlencode(form)
            connection.request("GET" if form is None else "POST", path, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read().decode())
        finally:
            connection.close()

    def log_in(self, user: str, password: str = PASSWORD, to: str = "/") -> Answer:
        answer = self.ask("/login", {"user": user, "password": password, "to": to})
        self.cookie = (answer.headers["Set-Cookie"] or "").partition(";")[0]
        return answer


def test_nothing_is_shown_without_a_login(port: int) -> None:
    stranger = Visitor(port)
    led = stranger.ask("/mast/mast-01?channel=a&from=2026-11-20")
    assert (led.status, led.headers["Location"]) == (
        303,
        "/login?to=/mast/mast-01%3Fchannel%3Da%26from%3D2026-11-20",
    )
    assert stranger.ask("/login").status == 200
    assert stranger.ask("/csv/fleet").status == 401
    assert stranger.ask("/logout", {}).status == 401
    assert stranger.ask("/healthz").text == "ok\n"
    assert stranger.ask("/openapi.json").status in (303, 404)
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    assert stranger.ask("/_nicegui_ws/socket.io/?EIO=4&transport=websocket", **upgrade).status == 403
    assert stranger.ask("/_nicegui_ws/socket.io/?EIO=4&transport=polling").status == 401
    stranger.cookie = "fieldgate_session=" + 43 * "A"
    assert stranger.ask("/csv/fleet").status == 401


def test_each_user_has_the_masts_that_are_named(port: int) -> None:
    olga, anna = Visitor(port), Visitor(port)
    entered = olga.log_in("olga", to="/alerts")
    assert (entered.status, entered.headers["Location"]) == (303, "/alerts")
    assert {"HttpOnly", "SameSite=lax"} <= set(entered.headers["Set-Cookie"].split("; "))
    assert anna.log_in("anna").status == 303
    assert [line[:7] for line in olga.ask("/csv/fleet").text.splitlines()[1:]] == [
        "mast-01",
        "mast-02",
        "mast-03",
    ]
    assert [line[:7] for line in anna.ask("/csv/fleet").text.splitlines()[1:]] == ["mast-02"]
    assert anna.ask("/csv/mast/mast-02/series").status == 200
    refused = anna.ask("/csv/mast/mast-01/series")
    assert refused.status == 404
    assert refused.text.startswith("No statistics of mast-01 in the lake: ")
    assert refused.text.endswith(" The lake has mast-02.\n")
    for path in ("/", "/alerts", "/pipeline", "/mast/mast-01"):
        assert "mast-03" not in anna.ask(path).text
    assert "mast-03" in olga.ask("/pipeline").text
    assert anna.ask("/logout", {}, Origin="http://evil.example").status == 403
    assert anna.ask("/csv/fleet").status == 200
    left = anna.cookie
    assert anna.ask("/logout", {}).headers["Location"] == "/login"
    anna.cookie = left
    assert anna.ask("/csv/fleet").status == 401


def test_only_a_proxy_that_is_named_says_whose_guess_it_is(place: Path) -> None:
    def guess(visitor: Visitor, forwarded: str, password: str = "wrong") -> int:  # noqa: S107 - no password
        form = {"user": "olga", "password": password}
        return visitor.ask("/login", form, **{"X-Forwarded-For": forwarded}).status

    with served(place, "cloud.toml", "127.0.0.1") as port:
        found = [guess(Visitor(port), f"198.51.100.{number}") for number in range(10)]
        assert found == [403] * 5 + [429] * 5
    text = (place / "cloud.toml").read_text()
    (place / "proxy.toml").write_text(f'{text}\n[dashboard]\nproxies = ["127.0.0.1", "192.0.2.0/24"]\n')
    with served(place, "proxy.toml", "127.0.0.1") as port:
        # What the client itself writes stands before what the proxies add.
        chain = [f"203.0.113.{number}, 198.51.100.1, 192.0.2.9" for number in range(10)]
        assert [guess(Visitor(port), each) for each in chain] == [403] * 5 + [429] * 5
        assert guess(Visitor(port), "198.51.100.2", PASSWORD) == 303
    (place / "all.toml").write_text(f'{text}\n[dashboard]\nproxies = ["*"]\n')
    command = (sys.executable, "-m", "gateway.cli", "dashboard", "--cloud", str(place / "all.toml"))
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "dashboard.proxies.0: must be an address or a network" in refused.stderr


def test_guesses_of_many_addresses_at_once_dont_queue_up(place: Path) -> None:
    text = (place / "cloud.toml").read_text()
    (place / "crowd.toml").write_text(f'{text}\n[dashboard]\nproxies = ["127.0.0.1"]\n')
    with served(place, "crowd.toml", "127.0.0.1") as port, ThreadPoolExecutor(80) as pool:

        def guess(number: int, password: str = "wrong") -> Answer:  # noqa: S107 - no password
            form = {"user": "olga", "password": password}
            return Visitor(port).ask("/login", form, **{"X-Forwarded-For": f"198.51.100.{number}"})

        found = list(pool.map(guess, range(80)))
        assert Counter(each.status for each in found).keys() == {403, 429}
        refused = [each for each in found if each.status == 429]
        assert refused
        assert {each.headers["Retry-After"] for each in refused} == {"2"}
        assert "Too many logins at once" in refused[0].text
        assert guess(200, PASSWORD).status == 303


def test_a_login_leads_to_no_other_site(port: int) -> None:
    for to in ("//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"):
        assert Visitor(port).log_in("olga", to=to).headers["Location"] == "/"
    assert "<script>" not in Visitor(port).ask("/login?to=/%22%3E%3Cscript%3E").text


def test_over_tls_on_every_interface_and_guessing_is_slowed(place: Path) -> None:
    tls = ssl.create_default_context(cafile=place / "pages.pem")
    with served(place, "tls.toml", "0.0.0.0") as found:  # noqa: S104
        visitor = Visitor(found, tls)
        assert "Secure" in visitor.log_in("olga").headers["Set-Cookie"]
        assert visitor.ask("/csv/fleet").status == 200
        guesser = Visitor(found, tls)
        for user in ("olga", "nobody", "olga", "olga", "olga"):
            wrong = guesser.log_in(user, "a wrong one")
            assert (wrong.status, "No such user, or another password." in wrong.text) == (403, True)
        slowed = guesser.log_in("olga")
        assert (slowed.status, slowed.headers["Set-Cookie"]) == (429, None)
        # Who is in already stays in.
        assert visitor.ask("/csv/fleet").status == 200


def test_a_browser_logs_in_and_out(port: int, tmp_path: Path) -> None:
    with Chromium(tmp_path / "profile") as browser:
        page = browser.page(390, 844)
        page.open(f"http://127.0.0.1:{port}/mast/mast-02")
        page.see("form", lambda text: "Password" in text)
        page.run(
            "for (const [name, value] of [['user', 'anna'], ['password', "
            f"{PASSWORD!r}]]) document.querySelector(`[name=${{name}}]`).value = value; "
            "document.querySelector('form').submit()"
        )
        page.see("main", lambda text: "over time" in text)
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
        page.run("document.querySelector('form[action=\"/logout\"] button').click()")
        page.see("form", lambda text: "Password" in text)
        assert page.complaints() == []
