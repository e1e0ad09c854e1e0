"""What is wrong between properties and a listener that is reached: real sockets and TLS on the loopback."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cloud.kafka.listener_probe import listener_fault

Serve = Callable[..., str]


def text_of(servers: str, properties: dict[str, str]) -> str | None:
    fault = listener_fault(servers, properties)
    assert fault is None or fault.kind == ("certificate" if "certificate" in fault.text else "protocol")
    return None if fault is None else fault.text


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Self-signed ones, each with its key beside it."""
    directory = tmp_path_factory.mktemp("certificates")
    for name, subject in (("broker", "127.0.0.1"), ("elsewhere", "10.1.2.3"), ("mast", "1.2.3.4")):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-subj", "/CN=test", "-addext", f"subjectAltName=IP:{subject}", "-days", "2",
             "-keyout", f"{name}.key", "-out", f"{name}.pem"],
            check=True, capture_output=True, cwd=directory,
        )  # fmt: skip
    _expired(directory)
    return directory


def _expired(directory: Path) -> None:
    """Of an authority, whose index openssl needs, as it alone sets both dates."""
    (directory / "index.txt").touch()
    (directory / "ca.cnf").write_text(
        "[ca]\ndefault_ca = own\n[own]\ndatabase = index.txt\nnew_certs_dir = .\nrand_serial = yes\n"
        "default_md = sha256\npolicy = any\n[any]\ncommonName = supplied\n"
    )
    commands = (
        ["req", "-new", "-key", "broker.key", "-subj", "/CN=old", "-out", "old.csr"],
        ["ca", "-batch", "-config", "ca.cnf", "-selfsign", "-keyfile", "broker.key", "-in", "old.csr",
         "-startdate", "20200101000000Z", "-enddate", "20200102000000Z", "-notext", "-out", "old.pem"],
    )  # fmt: skip
    for command in commands:
        subprocess.run(["openssl", *command], check=True, capture_output=True, cwd=directory)


@pytest.fixture
def serve(certificates: Path) -> Iterator[Serve]:
    """A listener, which answers one request of each connection and then waits for its end.

    ``error`` is its answer to a handshake: 33, it doesn't have the mechanism, or 34, it has no logins.
    """
    listeners: list[socket.socket] = []

    def answer(connection: socket.socket, context: ssl.SSLContext | None, error: int | None) -> None:
        with suppress(OSError), connection:
            talk = context.wrap_socket(connection, server_side=True) if context else connection
            with talk:
                # As Kafka: a length that is no request's ends the connection.
                head = talk.recv(4)
                if len(head) == 4 and int.from_bytes(head) < 1000 and error is not None:
                    talk.sendall(b"\0\0\0\x0a\0\0\0\1" + error.to_bytes(2) + bytes(4))
                    talk.recv(100)

    def accept(listener: socket.socket, context: ssl.SSLContext | None, error: int | None) -> None:
        with suppress(OSError):
            while True:
                args = listener.accept()[0], context, error
                threading.Thread(target=answer, args=args, daemon=True).start()

    def start(certificate: str | None = None, wants: str | None = None, error: int | None = 33) -> str:
        context = None
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            key = "broker" if certificate == "old" else certificate
            context.load_cert_chain(certificates / f"{certificate}.pem", certificates / f"{key}.key")
            if wants is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(certificates / f"{wants}.pem")
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threading.Thread(target=accept, args=(listener, context, error), daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_plaintext_to_a_listener_with_tls(serve: Serve) -> None:
    fault = "its listener wants TLS: security.protocol must be SSL, or SASL_SSL with a login"
    address = serve("broker")
    assert text_of(address, {}) == fault
    assert text_of(address, {"security.protocol": "SASL_PLAINTEXT"}) == (
        "its listener wants TLS: security.protocol must be SASL_SSL"
    )


def test_tls_to_a_listener_without(serve: Serve) -> None:
    assert text_of(serve(), {"security.protocol": "SASL_SSL"}) == (
        "its listener has no TLS: security.protocol must be SASL_PLAINTEXT, or the port another one"
    )


def test_one_that_wants_a_login(serve: Serve, certificates: Path) -> None:
    wants = "its listener answers, and wants a login: security.protocol must be {}, with sasl.mechanism"
    assert text_of(serve(), {}) == wants.format("SASL_PLAINTEXT")
    trusts = {"ssl.ca.location": str(certificates / "broker.pem")}
    assert text_of(serve("broker"), {"security.protocol": "ssl", **trusts}) == wants.format("SASL_SSL")
    assert text_of(serve("broker"), {"security.protocol": "sasl_ssl", **trusts}) is None


@pytest.mark.parametrize(
    ("certificate", "trusted", "fault"),
    [
        ("broker", "mast", "the broker's certificate is of an authority that isn't in ssl.ca.location"),
        (
            "elsewhere",
            "elsewhere",
            "the broker's certificate is not for 127.0.0.1: use the name it has in the bootstrap servers",
        ),
        ("old", "old", "the broker's certificate has expired, or this machine's clock is wrong"),
    ],
)
def test_a_certificate_that_is_not_trusted(
    serve: Serve, certificates: Path, certificate: str, trusted: str, fault: str
) -> None:
    properties = {"security.protocol": "SSL", "ssl.ca.location": str(certificates / f"{trusted}.pem")}
    if certificate == "old":
        properties["ssl.endpoint.identification.algorithm"] = "none"
    assert text_of(serve(certificate), properties) == fault


def test_a_clients_certificate_that_the_broker_does_not_take(serve: Serve, certificates: Path) -> None:
    properties = {"security.protocol": "SSL", "ssl.ca.location": str(certificates / "broker.pem")}
    address = serve("broker", "mast")
    assert (text_of(address, properties) or "").startswith("the broker refuses our certificate (")
    own = {name: str(certificates / f"mast.{end}") for name, end in
           (("ssl.certificate.location", "pem"), ("ssl.key.location", "key"))}  # fmt: skip
    assert (text_of(address, {**properties, **own}) or "").startswith("its listener answers, and wants")


@pytest.mark.parametrize("error", [34, None], ids=["has no logins", "ends the connection"])
def test_nothing_is_said_of_one_that_has_nothing_against_us(
    serve: Serve, certificates: Path, error: int | None
) -> None:
    trusts = {"security.protocol": "ssl", "ssl.ca.location": str(certificates / "broker.pem")}
    assert text_of(serve(error=error), {}) is None
    assert text_of(serve("broker", error=error), trusts) is None


def test_nothing_is_said_of_what_is_not_reached(nowhere: str) -> None:
    assert text_of(f"{nowhere},no.such.invalid:1", {}) is None
