"""Readings by HTTP: what is taken, what is refused and why, and who may post."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import select
import socket
import ssl
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from cloud.wire.reading_records import encode_reading
from gateway.config import check
from gateway.config.bridges.access_files import read_tokens
from gateway.config.bridges.model import HttpConfig
from gateway.devices import http_server
from gateway.devices.entry import BadBody, DeviceEntry, PostedReadings, payloads, unpacked
from gateway.devices.http_server import HttpServer
from gateway.forwarding.forwarder import Posted, Published
from tests.support.certificates import self_signed
from tests.support.config import config_text, write_config
from tests.support.servers import eventually
from tests.unit.cloud.wire.test_reading_records import READING
from tests.unit.gateway.mqtt.test_intake import FixedClock, intake

TOKEN = "".join(("a", "-token-of-logger-3"))
GOOD = encode_reading(replace(READING, gateway="logger-3"))
JSON, LINES = {"Content-Type": "application/json"}, {"Content-Type": "application/x-ndjson"}


def durable_at_once(posted: Posted | Published) -> None:
    assert posted.ack.done is not None
    posted.ack.done()


def collecting() -> tuple[list[Posted], Callable[[Posted], None]]:
    """What has entered, and where it enters: it is durable at once."""
    entered: list[Posted] = []

    def put(posted: Posted) -> None:
        entered.append(posted)
        durable_at_once(posted)

    return entered, put


@pytest.fixture
def readings() -> PostedReadings:
    return PostedReadings(intake()[0], FixedClock(), lambda reading: None)


@contextmanager
def serving(
    config: HttpConfig,
    readings: PostedReadings,
    put: Callable[[Any], None] = durable_at_once,
    is_full: Callable[[], bool] = lambda: False,
) -> Iterator[HttpServer]:
    server = HttpServer(config, readings, DeviceEntry(put, is_full), Counter())
    server.start()
    try:
        yield server
    finally:
        server.stop()


HERE = HttpConfig("127.0.0.1:0")


def post(
    server: HttpServer,
    body: bytes = GOOD,
    headers: Mapping[str, str] = JSON,
    path: str = "/v1/readings",
    source: str = "127.0.0.1",
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.server_port, timeout=20, source_address=(source, 0)
    )
    try:
        connection.request("POST", path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def bearer(token: str) -> dict[str, str]:
    return {**JSON, "Authorization": f"Bearer {token}"}


def with_tokens(directory: Path, **tokens: str) -> HttpConfig:
    """A server that knows these tokens by their devices' names, in which _ stands for a dash."""
    lines = [
        f"{name.replace('_', '-')} {hashlib.sha256(token.encode()).hexdigest()}\n"
        for name, token in tokens.items()
    ]
    (directory / "tokens").write_text("# made in May\n" + "".join(lines))
    return replace(HERE, tokens=directory / "tokens")


@contextmanager
def connected(server: HttpServer, count: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections, on each of which these bytes are sent and no more."""
    with ExitStack() as opened:
        clients = [
            opened.enter_context(socket.create_connection(("127.0.0.1", server.server_port)))
            for _ in range(count)
        ]
        for client in clients:
            client.settimeout(20)
            client.sendall(sent)
        yield clients


def answered(clients: list[socket.socket], count: int) -> list[socket.socket]:
    return eventually(lambda: select.select(clients, [], [], 0)[0], until=lambda found: len(found) == count)


@pytest.mark.parametrize(
    ("body", "headers", "count"),
    [
        (GOOD, JSON, 1),
        (b"[" + GOOD + b",\n " + GOOD + b"]", JSON, 2),
        (b"[]", JSON, 0),
        (GOOD + b"\r\n\n" + GOOD + b"\n", LINES, 2),
        (gzip.compress(GOOD), {**JSON, "Content-Encoding": "gzip"}, 1),
    ],
)
def test_readings_go_on_byte_for_byte(
    readings: PostedReadings, body: bytes, headers: dict[str, str], count: int
) -> None:
    entered, put = collecting()
    with serving(HERE, readings, put) as server:
        assert post(server, body, headers) == (200, {"accepted": count})
    records = [record for posted in entered for record in posted.records]
    assert [record.value for record in records] == [GOOD] * count
    assert {(record.topic, record.key) for record in records} <= {
        ("mqtt.wind_speed", b"logger-3/cup-50m-a.wind_speed")
    }


def test_a_bad_line_is_named_and_the_good_ones_are_taken(readings: PostedReadings) -> None:
    own = GOOD.replace(b"logger-3", b"mast-07")
    body = b"\n".join((GOOD, b"{", b"", own, GOOD.replace(b"m/s", b"km/h"), GOOD))
    with serving(HERE, readings) as server:
        code, answer = post(server, body, LINES)
    assert (code, answer["accepted"], answer["refused"]) == (400, 2, 3)
    assert [(each["line"], each["reason"]) for each in answer["lines"]] == [
        (2, "NOT_JSON"),
        (4, "FORGED"),
        (5, "WRONG_UNIT"),
    ]


@pytest.mark.parametrize(
    ("host", "code"),
    [("localhost:8323", 200), ("127.0.0.1", 200), ("[::1]:8323", 200), (socket.gethostname(), 200), ("", 200),
     ("attacker.example:8323", 421), ("127.0.0.1.attacker.example", 421), ("[x", 421)],
)  # fmt: skip
def test_a_page_of_another_name_posts_nothing(host: str, code: int, readings: PostedReadings) -> None:
    """An attacker's name that points to the loopback lets his page post without a token."""
    entered, put = collecting()
    with serving(HERE, readings, put) as server:
        found, answer = post(server, GOOD, {**JSON, "Host": host})
    assert (found, len(entered)) == (code, int(code == 200))
    assert ("localhost" in answer.get("error", "")) == (code == 421)


BOMB = gzip.compress(b"[" + b"0," * 600_000 + b"0]")


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b"[1", JSON, 400),
        (b"", JSON, 400),
        (b"\xff", JSON, 400),
        (b"[" * 100_000, JSON, 400),
        (b"x", {}, 415),
        (GOOD, {"Content-Type": "text/plain"}, 415),
        (GOOD, {**JSON, "Content-Encoding": "br"}, 415),
        (GOOD, {**JSON, "Content-Encoding": "gzip"}, 400),
        (gzip.compress(GOOD)[:-3], {**JSON, "Content-Encoding": "gzip"}, 400),
        (gzip.compress(GOOD) + b"more", {**JSON, "Content-Encoding": "gzip"}, 400),
        (BOMB, {**JSON, "Content-Encoding": "gzip"}, 413),
        (b"[" + b"0," * 20_000 + b"0]", JSON, 413),
        (b"x" * 1_048_577, JSON, 413),
        (GOOD, {**JSON, "Content-Length": "12345678901234"}, 413),
        (GOOD, {**JSON, "Content-Length": "-1"}, 411),
        (GOOD, {**JSON, "Transfer-Encoding": "chunked"}, 411),
    ],
)
def test_what_is_no_body_of_readings_is_refused(
    readings: PostedReadings, body: bytes, headers: dict[str, str], code: int
) -> None:
    def put(posted: Posted) -> None:
        raise AssertionError(posted)

    with serving(HERE, readings, put) as server:
        try:
            assert post(server, body, headers)[0] == code
        except (BrokenPipeError, ConnectionResetError):
            # It was refused by its head, while the rest was still on its way.
            assert code in (411, 413, 415)
        assert post(server, b"x", path="/v1/other")[0] == 404


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode) | st.just(GOOD), st.booleans())
def test_no_body_does_harm(body: bytes, packed: bool) -> None:
    made = PostedReadings(intake()[0], FixedClock(), lambda reading: None)
    for content_type in ("application/json", "application/x-ndjson"):
        try:
            plain = unpacked(zlib.compress(body, wbits=31), 200) if packed else body
            found = payloads(plain, content_type)
        except BadBody:
            continue
        records, refusals = made.records(found, None)
        assert len(records) + len(refusals) == len(found)


def test_no_bytes_end_the_server(readings: PostedReadings, caplog: pytest.LogCaptureFixture) -> None:
    heads = st.sampled_from(
        [b"POST /v1/readings HTTP/9.9\r\n\r\n", b"\x16\x03\x01", b"GET //[ HTTP/1.1\r\n\r\n"]
    )
    with serving(HERE, readings) as server:

        @settings(max_examples=60, deadline=None)
        @given(st.binary(max_size=120) | heads)
        def attempt(sent: bytes) -> None:
            with socket.create_connection(("127.0.0.1", server.server_port)) as client:
                client.sendall(sent)
            assert post(server)[0] == 200

        attempt()
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


def test_a_tokens_device_posts_its_own_readings_only(readings: PostedReadings, tmp_path: Path) -> None:
    with serving(with_tokens(tmp_path, logger_3=TOKEN), readings) as server:
        assert post(server, GOOD, bearer(TOKEN))[0] == 200
        code, answer = post(server, GOOD.replace(b"logger-3", b"logger-4"), bearer(TOKEN))
        assert (code, answer["lines"][0]["reason"]) == (400, "FOREIGN")
        assert post(server)[0] == 401

        def with_token(token: str) -> int:
            return post(server, GOOD, bearer(token))[0]

        # One that comes again and again is one guess: behind its address there may be others.
        assert [with_token("another") for _ in range(6)] == [401] * 6
        assert [with_token(f"another{number}") for number in range(5)] == [401] * 4 + [429]
        # Those others: behind one address there may be a whole site.
        assert with_token(TOKEN) == 200
        assert with_token("another5") == 429


@pytest.mark.parametrize("line", ["logger-3", "LOGGER " + "0" * 64, "logger-3 " + "0" * 63, "a b c"])
def test_a_tokens_file_that_is_wrong_opens_nothing(
    readings: PostedReadings, tmp_path: Path, line: str
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"\n{line}\n")
    with pytest.raises(ValueError, match="tokens:2: must be"):
        read_tokens(tokens)
    with pytest.raises(OSError, match="tokens:2: must be"), serving(replace(HERE, tokens=tokens), readings):
        pass


def test_what_is_not_durable_is_not_answered_with_200(
    readings: PostedReadings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "_DURABLE_S", 0.05)
    monkeypatch.setattr(http_server, "_TURN_S", 0.05)
    entered: list[Posted] = []
    with serving(HERE, readings, entered.append) as server:
        assert post(server)[0] == 503
        body = b"\n".join([GOOD] * 2000)
        assert [post(server, body, LINES)[0] for _ in range(2)] == [503, 503]
        # Over 4 MiB are open: it waits until the first are durable.
        assert eventually(lambda: post(server, body, LINES)[0], until=lambda code: code == 429)
        for posted in entered:
            durable_at_once(posted)
        assert post(server)[0] == 503


def test_a_full_memory_lets_devices_wait(readings: PostedReadings) -> None:
    with serving(HERE, readings, is_full=lambda: True) as server:
        assert post(server)[0] == 429


SLOW_HEAD = b"POST /v1/readings HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n"


def test_a_client_that_is_slow_is_disconnected(
    readings: PostedReadings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "_BODY_S", 0.2)
    with serving(HERE, readings) as server, connected(server, 1, SLOW_HEAD + b"\r\n{") as (client,):
        assert client.recv(1000) == b""


def test_slow_bodies_without_a_token_keep_no_device_waiting(readings: PostedReadings, tmp_path: Path) -> None:
    guess = b"Authorization: Bearer another\r\n"
    with (
        serving(with_tokens(tmp_path, logger_3=TOKEN), readings) as server,
        connected(server, 8, SLOW_HEAD + b"\r\n{") as unnamed,
        connected(server, 8, SLOW_HEAD + guess + b"\r\n{") as guessing,
    ):
        # They are turned away by their heads.
        assert {client.recv(1000).split()[1] for client in (*unnamed, *guessing)} <= {b"401", b"429"}
        # From another address: the guesses count against theirs.
        assert post(server, GOOD, bearer(TOKEN), source="127.0.0.2")[0] == 200


def test_a_device_with_slow_bodies_keeps_no_other_waiting(readings: PostedReadings, tmp_path: Path) -> None:
    other = TOKEN + "-too"
    slow = SLOW_HEAD + f"Authorization: Bearer {other}\r\n\r\n{{".encode()
    with (
        serving(with_tokens(tmp_path, logger_3=TOKEN, logger_4=other), readings) as server,
        connected(server, 9, slow) as clients,
    ):
        # All but its first two are turned away.
        assert {client.recv(1000).split()[1] for client in answered(clients, 7)} == {b"429"}
        assert post(server, GOOD, bearer(TOKEN))[0] == 200
        assert post(server, GOOD, bearer(other))[0] == 429


def test_without_tokens_a_slow_body_makes_room(
    readings: PostedReadings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "SLOW_S", 0.2)
    with serving(HERE, readings) as server, connected(server, 8, SLOW_HEAD + b"\r\n{") as clients:
        eventually(lambda: server.bodies.taken, until=lambda taken: taken == 8)
        # A device that is asked to come again does, and gets in long before the 30 s of a body.
        assert eventually(lambda: post(server)[0], 5, until=lambda code: code == 200)
        (given_up,) = answered(clients, 1)
        assert b"Retry-After: 1" in given_up.recv(1000)


def test_connections_of_one_address_leave_room_for_others(readings: PostedReadings) -> None:
    # They send nothing at all.
    with serving(HERE, readings) as server, connected(server, 20) as clients:
        assert {client.recv(1) for client in answered(clients, 4)} == {b""}
        assert post(server, source="127.0.0.2")[0] == 200


def test_tls_and_a_client_that_shakes_no_hands(readings: PostedReadings, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    config = replace(HERE, certificate=certificate, key=key)
    with serving(config, readings) as server, socket.create_connection(("127.0.0.1", server.server_port)):
        context = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection("localhost", server.server_port, timeout=20, context=context)
        for _ in range(2):
            connection.request("POST", "/v1/readings", GOOD, JSON)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b'{"accepted":1}')
        connection.close()


@pytest.mark.parametrize(
    ("section", "problems"),
    [
        ({"listen": "127.0.0.1:8323"}, []),
        ({"listen": "0.0.0.0:8323"}, ["lets other machines in", "in the clear"]),
        ({"listen": "0.0.0.0:8323", "tokens": "tokens"}, ["in the clear"]),
        ({"certificate": "c.pem"}, ["certificate and key go together"]),
        ({"listen": "[::1]:8323", "tokens": "nowhere"}, ["nowhere: "]),
        ({"listen": "8323"}, ['must be "host:port"']),
    ],
)
def test_what_would_let_others_in_is_refused(
    tmp_path: Path, section: dict[str, str], problems: list[str]
) -> None:
    (tmp_path / "tokens").touch()
    found = check(write_config(tmp_path, config_text(gateway={"id": "mast"}, http=section)), at_work=True)[1]
    assert [text in each.message for text, each in zip(problems, found, strict=True)] == [True] * len(
        problems
    )
