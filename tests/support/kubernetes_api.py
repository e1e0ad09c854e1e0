"""What Spark's scheduler uses of Kubernetes' API, with pods that are processes of this machine."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Start = Callable[[Sequence[str], Mapping[str, str]], list[str]]
"""The command of a container: of its arguments and environment."""


class KubernetesApi:
    """Serves on a free port of 127.0.0.1 while it is open; each pod's output is a file in ``logs``.

    ``pods`` are all that were requested, as they were, by name. A volume is a directory below ``root``.
    """

    def __init__(self, start: Start, root: Path, logs: Path) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self._start, self._root, self._logs = start, root, logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"null")
                status, answer = api.request(self.command, self.path, body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - http.server's names

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for name in list(self._running):
            self.kill(name)

    @property
    def running(self) -> list[str]:
        """Names of the pods whose process has not ended."""
        return [name for name, process in self._running.items() if process.poll() is None]

    def kill(self, name: str) -> None:
        """SIGKILL to a pod's processes."""
        self._running[name].kill()
        self._running[name].wait(30)

    def request(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Status and answer."""
        place = urlsplit(path)
        words = place.path.removeprefix("/api/v1/namespaces/default/").split("/")
        with self._lock:
            if words[0] != "pods":
                return 201 if method == "POST" else 200, (body or {"kind": "List", "items": []})
            if method == "POST":
                return 201, self._create(body)
            if len(words) == 2:
                if method == "DELETE" and words[1] in self.running:
                    self.kill(words[1])
                known = words[1] in self.pods
                return (200, self._seen(words[1])) if known else (404, {"kind": "Status", "code": 404})
            selector = parse_qs(place.query).get("labelSelector", [""])[0]
            names = [name for name in self.pods if self._matches(name, selector)]
            if method == "DELETE":
                for name in names:
                    self.kill(name)
            return 200, {"kind": "PodList", "apiVersion": "v1", "items": [self._seen(name) for name in names]}

    def _matches(self, name: str, selector: str) -> bool:
        labels = self.pods[name]["metadata"]["labels"]
        wanted = (each.partition("=") for each in selector.split(",") if "!=" not in each and each)
        return all(labels.get(key) == value for key, _, value in wanted)

    def _create(self, pod: dict[str, Any]) -> dict[str, Any]:
        name = pod["metadata"]["name"]
        self.pods[name] = pod
        (container,) = pod["spec"]["containers"]
        fields = {"status.podIP": "127.0.0.1", "metadata.name": name}
        environment = {
            each["name"]: each.get("value")
            or fields[each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "metadata.name")]
            for each in container["env"]
        }
        for mount in container["volumeMounts"]:
            volume = self._root / mount["mountPath"][1:]
            volume.mkdir(parents=True, exist_ok=True)
            volume.chmod(0o777)
        with (self._logs / f"{name}.log").open("wb") as log:
            command = self._start(container["args"], environment)
            self._running[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self._seen(name)

    def _seen(self, name: str) -> dict[str, Any]:
        """A pod with its status."""
        pod, ended = self.pods[name], name not in self.running
        metadata = pod["metadata"] | {"uid": name, "resourceVersion": "1", "namespace": "default"}
        metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
        return pod | {"metadata": metadata, "status": {"phase": "Failed" if ended else "Running"}}
