"""Schema registries for tests: a small one of our own in this process, and Apicurio's.

The small one takes the protocol's requests as Apicurio 3.0.9 was seen to answer them, and has the one rule
that a schema may be refused.
"""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any, Final
from urllib.request import urlopen

from tests.support.servers import eventually

_JARS: Final = Path(__file__).parents[2] / ".jars" / "registry"


@dataclass
class SmallRegistry:
    """What a registry has; ``requests`` are those it was asked, ``refuses`` why it takes no other schema."""

    schemas: dict[int, str] = field(default_factory=dict)
    rules: dict[str, str] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    refuses: str | None = None
    login: str | None = None
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and answer of a request."""
        parts = path.partition("?")[0].strip("/").split("/")
        match method, parts:
            case "GET", ["schemas", "ids", number]:
                schema = self.schemas.get(int(number))
                return (404, _no(40403)) if schema is None else (200, {"schema": schema})
            case "GET", ["config", subject]:
                rule = self.rules.get(subject)
                return (404, _no(40401)) if rule is None else (200, {"compatibilityLevel": rule})
            case "PUT", ["config", subject]:
                self.rules[subject] = body["compatibility"]
                return 200, body
            case "POST", ["subjects", subject]:
                if subject not in self.subjects:
                    return 404, _no(40401)
                found = (each for each in self.subjects[subject] if self.schemas[each] == body["schema"])
                own = next(found, 0)
                return (200, {"id": own}) if own else (404, _no(40403))
            case "POST", ["subjects", subject, "versions"]:
                if self.refuses is not None:
                    return 409, {"error_code": 409, "message": self.refuses}
                return 200, {"id": self.register(subject, body["schema"])}
            case "POST", ["compatibility", "subjects", subject, "versions"]:
                if subject not in self.subjects:
                    return 404, _no(40401)
                messages = [] if self.refuses is None else [self.refuses]
                return 200, {"is_compatible": not messages, "messages": messages}
        return 404, {}

    def register(self, subject: str, schema: str) -> int:
        """The id of a schema, a new one where it isn't registered."""
        known = next((number for number, each in self.schemas.items() if each == schema), 0)
        number = known or max(self.schemas, default=0) + 1
        self.schemas[number] = schema
        self.subjects.setdefault(subject, []).append(number)
        return number


def _no(code: int) -> dict[str, Any]:
    return {"error_code": code, "message": "No such subject or schema was found."}


class _Server(ThreadingHTTPServer):
    def server_bind(self) -> None:
        # The base's asks for this machine's name.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]


@contextmanager
def small_registry(
    registry: SmallRegistry | None = None, *, port: int = 0, certificate: tuple[Path, Path] | None = None
) -> Iterator[SmallRegistry]:
    """One that listens on a port of this machine; with ``certificate`` (and its key) by TLS."""
    small = registry or SmallRegistry()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length) or b"{}")
            small.requests.append(f"{self.command} {self.path}")
            status, answer = 401, _no(401)
            wanted = None if small.login is None else base64.b64encode(small.login.encode()).decode()
            if wanted is None or self.headers.get("Authorization") == f"Basic {wanted}":
                status, answer = small.answer(self.command, self.path, body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = _answer  # noqa: N815 - the base's names

    server = _Server(("127.0.0.1", port), Handler)
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    small.url = f"{scheme}://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield small
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def apicurio_jar() -> Path | None:
    """Apicurio's, where `make registry-jars` has fetched it."""
    return next(_JARS.glob("*-runner.jar"), None)


@contextmanager
def apicurio(port: int, log: Path) -> Iterator[str]:
    """Apicurio in memory; the address of its protocol."""
    jar = apicurio_jar()
    assert jar is not None
    options = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1")
    command = ["java", *options, f"-Dquarkus.http.port={port}", "-jar", str(jar)]
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=jar.parent, stdout=output, stderr=output)
        try:
            eventually(lambda: _is_up(f"{url}/subjects"), 120)
            yield url
        finally:
            process.kill()
            process.wait()


def _is_up(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as response:  # noqa: S310 - this machine's
            return bool(response.status == 200)
    except OSError:
        return False
