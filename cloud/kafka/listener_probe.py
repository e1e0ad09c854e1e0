"""Why a Kafka listener that is reached doesn't answer, by the standard library's TLS.

librdkafka reports that all brokers are down where only ``security.protocol`` is another than the listener's,
and has one text for an expired certificate, an unknown authority and a wrong host name. A connection or two
separate these. While an outage lasts it is found anew, for one fault may follow another.
"""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

_TIMEOUT_S: Final = 3.0
_DEFAULT_PORT: Final = 9092
_SASL_HANDSHAKE: Final = struct.pack(">ihhihh", 12, 17, 1, 1, -1, 0)
"""Key 17, version 1, no client id, no mechanism: a listener without logins answers that there are none."""
_ILLEGAL_SASL_STATE: Final = 34
"""https://kafka.apache.org/protocol: error codes, and what requests and answers are made of."""
# https://docs.openssl.org/3.0/man1/openssl-verification-options/: X509_V_ERR_…
_NOT_YET, _EXPIRED, _UNKNOWN, _OTHER_HOST = 9, 10, (18, 19, 20, 21), (62, 63, 64)


class Fault(NamedTuple):
    """What a listener has against us: ``text`` names the property that mends it."""

    kind: Literal["protocol", "certificate"]
    text: str


def listener_fault(bootstrap_servers: str, properties: Mapping[str, str]) -> Fault | None:
    """What is wrong and which property mends it; None where no listener is reached or all seems right."""
    protocol = properties.get("security.protocol", "plaintext").lower()
    for server in bootstrap_servers.split(","):
        try:
            return _fault(_address_of(server), protocol, properties)
        except OSError:
            # Not reached: the next one.
            continue
    return None


def _address_of(server: str) -> tuple[str, int]:
    """Host and port of ``HOST[:PORT]``."""
    host, _, port = server.strip().rpartition(":")
    if not host:
        host, port = port, str(_DEFAULT_PORT)
    return host.strip("[]"), int(port) if port.isdigit() else _DEFAULT_PORT


def _fault(address: tuple[str, int], protocol: str, properties: Mapping[str, str]) -> Fault | None:
    """Raises OSError where the address isn't reached."""
    login = protocol.startswith("sasl_")
    if not _speaks_tls(address):
        if protocol.endswith("ssl"):
            right = "SASL_PLAINTEXT" if login else "PLAINTEXT, or SASL_PLAINTEXT with a login"
            text = f"its listener has no TLS: security.protocol must be {right}, or the port another one"
            return Fault("protocol", text)
        logs_in = _has_logins(socket.create_connection(address, _TIMEOUT_S))
        return _wants_login("SASL_PLAINTEXT") if logs_in and not login else None
    if not protocol.endswith("ssl"):
        right = "SASL_SSL" if login else "SSL, or SASL_SSL with a login"
        return Fault("protocol", f"its listener wants TLS: security.protocol must be {right}")
    try:
        context = _tls_context(properties)
    except (OSError, ValueError):
        # librdkafka has its own words for files that it can't use.
        return None
    raw = socket.create_connection(address, _TIMEOUT_S)
    try:
        logs_in = _has_logins(context.wrap_socket(raw, server_hostname=address[0]))
    except ssl.SSLCertVerificationError as error:
        return Fault("certificate", _distrusted(error, address[0]))
    except ssl.SSLError as error:
        return Fault("certificate", _refused(error))
    finally:
        raw.close()
    return _wants_login("SASL_SSL") if logs_in and not login else None


def _speaks_tls(address: tuple[str, int]) -> bool:
    """Whether a TLS handshake begins. Raises OSError where the address isn't reached."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(address, _TIMEOUT_S) as raw:
        try:
            with context.wrap_socket(raw):
                return True
        except ssl.SSLError as error:
            # An alert is TLS: it wants a client's certificate, for instance.
            return "ALERT" in (error.reason or "")
        except OSError:
            return False


def _has_logins(connection: socket.socket) -> bool:
    """Whether a listener says that it has; False too where it says nothing, for it may be slow.

    Raises SSLError where it refuses the client's certificate.
    """
    with connection:
        try:
            connection.sendall(_SASL_HANDSHAKE)
            # Length, the request's number, an error's code.
            answer = connection.makefile("rb").read(10)
            return len(answer) == 10 and int.from_bytes(answer[8:]) != _ILLEGAL_SASL_STATE
        except ssl.SSLError:
            raise
        except OSError:
            return False


def _tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """TLS as librdkafka's properties have it. Raises OSError, ValueError."""
    authority = properties.get("ssl.ca.location", "probe")
    place = None if authority == "probe" else Path(authority)
    context = ssl.create_default_context(
        cafile=str(place) if place and not place.is_dir() else None,
        capath=str(place) if place and place.is_dir() else None,
        cadata=properties.get("ssl.ca.pem"),
    )
    context.check_hostname = properties.get("ssl.endpoint.identification.algorithm", "https") != "none"
    if properties.get("enable.ssl.certificate.verification", "true") == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if "ssl.certificate.location" in properties:
        context.load_cert_chain(
            properties["ssl.certificate.location"],
            properties.get("ssl.key.location"),
            properties.get("ssl.key.password", ""),
        )
    return context


def _wants_login(protocol: str) -> Fault:
    return Fault(
        "protocol",
        f"its listener answers, and wants a login: security.protocol must be {protocol}, with sasl.mechanism",
    )


def _distrusted(error: ssl.SSLCertVerificationError, host: str) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return "the broker's certificate has expired, or this machine's clock is wrong"
    if code == _NOT_YET:
        return "the broker's certificate isn't valid yet: this machine's clock is behind"
    if code in _UNKNOWN:
        return "the broker's certificate is of an authority that isn't in ssl.ca.location"
    if code in _OTHER_HOST:
        return f"the broker's certificate is not for {host}: use the name it has in the bootstrap servers"
    return f"the broker's certificate is refused: {error.verify_message}"


def _refused(error: ssl.SSLError) -> str:
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return (
        f"the broker refuses our certificate ({reason}): see ssl.certificate.location and "
        "ssl.key.location, its last day, and the authority that the broker trusts"
    )


log = logging.getLogger(__name__)

_AGAIN_S: Final = 15.0
"""Between questions for one reason: two handshakes, some 8 kB, beside librdkafka's own each 10 s."""


class ListenerWatch:
    """``fault`` is what stands; None where nothing is known."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self._asked_s = float("-inf")
        self._asking: object = None

    def suspect(self, config: Mapping[str, str], *, is_new: bool) -> None:
        """Ask, at once for a new reason, else after a pause and where a listener was the reason before."""
        now_s = time.monotonic()
        if not is_new and now_s < self._asked_s + _AGAIN_S:
            return
        self._asked_s, self._asking = now_s, (asking := object())
        threading.Thread(target=self._ask, args=(config, asking), name="kafka-probe", daemon=True).start()

    def clear(self) -> None:
        """What was found, or will be by a question that was begun, stands no longer."""
        self.fault = self._asking = None

    def _ask(self, config: Mapping[str, str], asking: object) -> None:
        fault = listener_fault(config["bootstrap.servers"], config)
        if asking is not self._asking:
            return
        if fault is not None and fault != self.fault:
            log.warning("event=kafka.listener_refuses reason=%s", fault.text)
        self.fault = fault
