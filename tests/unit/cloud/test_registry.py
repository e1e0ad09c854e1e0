"""What is asked of a schema registry, and what each fault is called."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud.registry import NotRegistered, Registry, RegistryAccess, RegistryError, RegistrySchemas
from cloud.wire.avro_readings import SCHEMA, SUBJECT
from tests.support.schema_registry import SmallRegistry, small_registry
from tests.support.secured_kafka import make_certificates


@pytest.fixture
def small() -> Iterator[SmallRegistry]:
    with small_registry() as registry:
        yield registry


def test_each_schema_is_asked_for_once(small: SmallRegistry) -> None:
    number = small.register(SUBJECT, SCHEMA)
    schemas = RegistrySchemas(Registry(RegistryAccess(small.url)))
    for _ in range(3):
        assert (schemas.get(number), schemas.get(99)) == (SCHEMA, None)
    assert dict(schemas) == {number: SCHEMA}
    assert small.requests == [f"GET /schemas/ids/{number}", "GET /schemas/ids/99"]


def test_a_certificate_is_compared_with_its_authority(tmp_path: Path) -> None:
    make_certificates(tmp_path / "pki")
    pki = tmp_path / "pki"
    with small_registry(certificate=(pki / "broker.pem", pki / "broker.key")) as small:
        small.register(SUBJECT, SCHEMA)
        url = small.url.replace("localhost", "127.0.0.1")
        assert Registry(RegistryAccess(url, str(pki / "ca.pem"))).own_id() == 1
        for ca, reason in (
            (str(pki / "other.pem"), "certificate verify failed"),
            (None, "certificate verify"),
        ):
            with pytest.raises(RegistryError, match=reason):
                Registry(RegistryAccess(url, ca)).own_id()
        with pytest.raises(RegistryError, match=r"none\.pem"):
            Registry(RegistryAccess(url, str(pki / "none.pem"))).own_id()
        with pytest.raises(RegistryError, match="Hostname mismatch"):
            Registry(RegistryAccess(small.url, str(pki / "ca.pem"))).own_id()


ANSWERS = {
    "nothing": b"",
    "no HTTP": b"220 mail.example.org\r\n\r\n",
    "no JSON": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n<>",
    "no object": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    "no id": b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"id":"1"}',
    "a foreign id": b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"id":-1}',
    "cut off": b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"id":1',
    "nested": b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + b"[" * 20_000,
    "a proxy's page": b"HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\n<html>",
    "elsewhere": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "out of order": b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_whatever_answers_is_an_error_with_the_address(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(RegistryError, match=url) as raised:
            Registry(RegistryAccess(url), 5.0).own_id()
        thread.join()
    assert not isinstance(raised.value, NotRegistered)


def test_one_that_is_away_or_silent_is_an_error_soon(nowhere: str) -> None:
    with pytest.raises(RegistryError, match="refused"):
        Registry(RegistryAccess(f"http://{nowhere}")).own_id()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RegistryError, match="timed out"):
            Registry(RegistryAccess(url), 0.05).own_id()
