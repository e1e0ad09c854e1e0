"""Quotas of Kafka's clients: two requests of its protocol, which librdkafka doesn't have.

One connection, with TLS and login as librdkafka's properties say, by the standard library; SCRAM is RFC 5802.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import struct
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError

from cloud.errors import CloudError
from cloud.kafka.listener_probe import address_of, tls_context

RATE: Final = "producer_byte_rate"
_HANDSHAKE, _AUTHENTICATE, _DESCRIBE, _ALTER = 17, 36, 48, 49
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_EXACT, _DEFAULT = 0, 1
_LONGEST: Final = 16 << 20
_ITERATIONS: Final = range(4096, 1_000_001)


class Quotas:
    """What every user's clients of one client id may send, in bytes a second; any broker takes the requests.

    Each call raises CloudError with Kafka's reason.
    """

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, str], timeout_s: float) -> None:
        self._connection = _Connection(bootstrap_servers, properties, timeout_s)

    def rate(self, client_id: str) -> float | None:
        """The quota as it is; None where there is none."""
        user = _text("user") + struct.pack(">bh", _DEFAULT, -1)
        client = _text("client-id") + struct.pack(">b", _EXACT) + _text(client_id)
        answer = self._connection.request(_DESCRIBE, 0, struct.pack(">i", 2) + user + client + b"\x01")
        answer.take(">i")
        answer.refusal()
        for _ in range(max(0, answer.take(">i"))):
            for _ in range(answer.take(">i")):
                answer.text(), answer.text()
            values = {answer.text(): answer.take(">d") for _ in range(answer.take(">i"))}
            if RATE in values:
                return float(values[RATE])
        return None

    def set_rate(self, client_id: str, rate: float) -> None:
        """Set the quota."""
        entity = struct.pack(">i", 2) + _text("user") + struct.pack(">h", -1)
        entity += _text("client-id") + _text(client_id)
        change = struct.pack(">i", 1) + _text(RATE) + struct.pack(">d?", rate, False)
        answer = self._connection.request(_ALTER, 0, struct.pack(">i", 1) + entity + change + b"\x00")
        answer.take(">ii")
        answer.refusal()

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


class _Answer:
    """Reads a response's fields in order."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def take(self, layout: str) -> int:
        try:
            first, *_ = struct.unpack_from(layout, self._content, self._at)
        except struct.error as error:
            raise CloudError("Kafka's answer is too short: it may be of another version") from error
        self._at += struct.calcsize(layout)
        return first  # type: ignore[no-any-return] # as the layout says

    def raw(self, length: int) -> bytes:
        self._at += max(0, length)
        return self._content[self._at - max(0, length) : self._at]

    def text(self) -> str:
        return self.raw(self.take(">h")).decode()

    def refusal(self) -> None:
        """Raises CloudError where code and message are one."""
        code, message = self.take(">h"), self.text()
        if code:
            raise CloudError(f"Kafka refuses: {message or KafkaError(code).str()}")


class _Connection:
    """Requests and responses, one by one, after the login."""

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, str], timeout_s: float) -> None:
        self._number = 0
        protocol = properties.get("security.protocol", "plaintext").lower()
        failure: Exception | None = None
        for server in bootstrap_servers.split(","):
            address = address_of(server)
            try:
                self._socket = socket.create_connection(address, timeout_s)
            except OSError as error:
                failure = error
                continue
            try:
                if protocol.endswith("ssl"):
                    context = tls_context(properties)
                    self._socket = context.wrap_socket(self._socket, server_hostname=address[0])
                if protocol.startswith("sasl_"):
                    self._log_in(properties)
            except (OSError, ValueError, CloudError) as error:
                self.close()
                raise CloudError(f"Kafka at {server.strip()}: {error}") from error
            return
        raise CloudError(f"no answer from Kafka at {bootstrap_servers}: {failure}") from failure

    def request(self, key: int, version: int, body: bytes) -> _Answer:
        """Send a request and take its response. Raises CloudError where the connection breaks."""
        self._number += 1
        header = struct.pack(">hhih", key, version, self._number, -1)
        try:
            self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
            (length,) = struct.unpack(">i", self._exactly(4))
            if not 4 <= length <= _LONGEST:
                raise CloudError("what answers isn't Kafka")
            return _Answer(self._exactly(length)[4:])
        except OSError as error:
            raise CloudError(f"Kafka closed the connection: {error}") from error

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, length: int) -> bytes:
        content = b""
        while len(content) < length:
            part = self._socket.recv(length - len(content))
            if not part:
                raise ConnectionResetError("before its answer was complete")
            content += part
        return content

    def _log_in(self, properties: Mapping[str, str]) -> None:
        mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "")).upper()
        user, password = properties.get("sasl.username", ""), properties.get("sasl.password", "")
        if mechanism not in (*_HASHES, "PLAIN"):
            raise CloudError(f"quotas can't be set over {mechanism}: use a login with SCRAM or a certificate")
        answer = self.request(_HANDSHAKE, 1, _text(mechanism))
        if code := answer.take(">h"):
            raise CloudError(f"Kafka refuses {mechanism}: {KafkaError(code).str()}")
        if mechanism == "PLAIN":
            self._say(f"\0{user}\0{password}".encode())
        else:
            self._scram(_HASHES[mechanism], user, password)

    def _say(self, message: bytes) -> bytes:
        """One step of the login; what the broker replies."""
        answer = self.request(_AUTHENTICATE, 0, struct.pack(">i", len(message)) + message)
        answer.refusal()
        return answer.raw(answer.take(">i"))

    def _scram(self, name: str, user: str, password: str) -> None:
        nonce = secrets.token_urlsafe(18)
        first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        challenge = self._say(f"n,,{first}".encode()).decode()
        try:
            fields = dict(part.split("=", 1) for part in challenge.split(","))
            salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
            if not fields["r"].startswith(nonce) or iterations not in _ITERATIONS:
                raise ValueError(challenge)
        except (ValueError, KeyError) as error:
            raise CloudError("what answers the login isn't Kafka") from error
        last = f"c=biws,r={fields['r']}"
        signed = f"{first},{challenge},{last}".encode()
        salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
        key = hmac.digest(salted, b"Client Key", name)
        signature = hmac.digest(hashlib.new(name, key).digest(), signed, name)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        reply = self._say(f"{last},p={base64.b64encode(proof).decode()}".encode()).decode()
        own = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
        if not hmac.compare_digest(reply.encode(), b"v=" + base64.b64encode(own)):
            raise CloudError("what answers the login doesn't have this user's password: it isn't Kafka")


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()
