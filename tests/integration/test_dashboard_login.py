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

from cloud.lake.documents import file_documents
from cloud.local.process import free_port
from tests.support.browser import Chromium
from tests.support.certificates import self_signed
from tests.support.fleet_lake import reader_of, write_fleet
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
    text = (
        f'[lake]\npath = "lake"\n\n[dashboard.users.olga]\n{line}\n'
        f'[dashboard.users.anna]\ngateways = ["*-02", "elsewhere"]\n{line}\n[dashboard]\n'
    )
    (root / "cloud.toml").write_text(f'{text}proxies = ["127.0.0.1", "192.0.2.0/24"]\n')
    (root / "all.toml").write_text(f'{text}proxies = ["*"]\n')
    certificate, key = self_signed(root)
    (root / "tls.toml").write_text(f'{text}certificate = "{certificate}"\nkey = "{key}"\n')
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
    """A server that proxies may be before: without their header it is the client that counts."""
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
    unknown = Visitor(port)
    led = unknown.ask("/mast/mast-01?channel=a&from=2026-11-20")
    assert (led.status, led.headers["Location"]) == (
        303,
        "/login?to=/mast/mast-01%3Fchannel%3Da%26from%3D2026-11-20",
    )
    assert unknown.ask("/login").status == 200
    assert unknown.ask("/csv/fleet").status == 401
    assert unknown.ask("/logout", {}).status == 401
    assert unknown.ask("/healthz").text == "ok\n"
    assert unknown.ask("/openapi.json").status in (303, 404)
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    assert unknown.ask("/_nicegui_ws/socket.io/?EIO=4&transport=websocket", **upgrade).status == 403
    assert unknown.ask("/_nicegui_ws/socket.io/?EIO=4&transport=polling").status == 401
    unknown.cookie = "fieldgate_session=" + 43 * "A"
    assert unknown.ask("/csv/fleet").status == 401


def test_a_document_is_linked_from_its_masts_page_and_for_its_audience_alone(port: int, place: Path) -> None:
    reader = reader_of(place / "lake")
    name, content = 'Über "Cup"; a=b\r\n.pdf', b"%PDF-1.7 <script>alert(1)</script>"
    ids = {}
    for mast in ("mast-01", "mast-02"):
        ((row,), _) = file_documents(reader, mast, {f"in/{name}": content}, "Ada", datetime.now(UTC))
        ids[mast] = row["id"]
    olga, anna, unknown = Visitor(port), Visitor(port), Visitor(port)
    olga.log_in("olga")
    anna.log_in("anna")
    own = f"/documents/mast-02/{ids['mast-02']}"
    # Once the server has seen the table.
    answer = eventually(lambda: anna.ask(own), until=lambda answer: answer.status == 200)
    assert answer.text.encode() == content
    headers = {each: answer.headers[each] for each in ("Content-Type", "X-Content-Type-Options")}
    assert headers == {"Content-Type": "application/pdf", "X-Content-Type-Options": "nosniff"}
    disposition = "attachment; filename*=UTF-8''%C3%9Cber%20%22Cup%22%3B%20a%3Db%0D%0A.pdf"
    assert answer.headers["Content-Disposition"] == disposition
    assert answer.headers["Content-Security-Policy"] == "sandbox"
    assert own in anna.ask("/mast/mast-02").text
    other = f"/documents/mast-01/{ids['mast-01']}"
    assert olga.ask(other).text.encode() == content
    for path in (other, f"/documents/mast-02/{ids['mast-01']}", f"/documents/mast-01/{ids['mast-02']}",
                 "/documents/mast-02/..%5Ccloud.toml", "/documents/mast-02/%27%20OR%201=1"):  # fmt: skip
        assert anna.ask(path).status == 404, path
    assert unknown.ask(own).status in (303, 401)


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


def guess(visitor: Visitor, forwarded: str, user: str = "olga", password: str = "wrong") -> Answer:  # noqa: S107
    """Logs in through a proxy, or as if there were one."""
    return visitor.ask("/login", {"user": user, "password": password}, **{"X-Forwarded-For": forwarded})


def test_a_proxy_that_is_named_says_whose_guess_it_is_and_guesses_at_once_dont_queue_up(
    port: int, place: Path
) -> None:
    with ThreadPoolExecutor(80) as pool:
        # What the client itself writes stands before what the proxies add.
        chain = [f"203.0.113.{number}, 198.51.100.1, 192.0.2.9" for number in range(10)]
        assert [guess(Visitor(port), each).status for each in chain] == [403] * 5 + [429] * 5
        assert guess(Visitor(port), "198.51.100.2", password=PASSWORD).status == 303

        crowd = [f"203.0.113.{number}" for number in range(80)]
        found = list(pool.map(lambda address: guess(Visitor(port), address), crowd))
        assert Counter(each.status for each in found).keys() == {403, 429}
        refused = [each for each in found if each.status == 429]
        assert {each.headers["Retry-After"] for each in refused} == {"2"}
        assert "Too many logins at once" in refused[0].text
        assert guess(Visitor(port), "198.51.100.3", password=PASSWORD).status == 303
    command = (sys.executable, "-m", "gateway.cli", "dashboard", "--cloud", str(place / "all.toml"))
    refusal = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refusal.returncode == 1
    assert "dashboard.proxies[1]: must be an address or a network" in refusal.stderr


def test_a_login_leads_to_no_other_site(port: int) -> None:
    for to in ("//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"):
        assert Visitor(port).log_in("olga", to=to).headers["Location"] == "/"
    assert "<script>" not in Visitor(port).ask("/login?to=/%22%3E%3Cscript%3E").text


def test_over_tls_on_every_interface_and_guessing_is_slowed(place: Path) -> None:
    tls = ssl.create_default_context(cafile=place / "certificate.pem")
    with served(place, "tls.toml", "0.0.0.0") as found:  # noqa: S104
        visitor = Visitor(found, tls)
        assert "Secure" in visitor.log_in("olga").headers["Set-Cookie"]
        assert visitor.ask("/csv/fleet").status == 200
        guesser = Visitor(found, tls)
        # Without a proxy that is named, what a client says of its address counts for nothing.
        for number, user in enumerate(("olga", "nobody", "olga", "olga", "olga")):
            wrong = guess(guesser, f"198.51.100.{number}", user)
            assert (wrong.status, "No such user, or another password." in wrong.text) == (403, True)
        slowed = guess(guesser, "198.51.100.9", password=PASSWORD)
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
