"""``fieldgate dashboard``: pages over a lake, for this machine's browser. Needs the extra ``dashboard``."""

from __future__ import annotations

import argparse
import ipaddress
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from cloud.config import CloudConfig, load
from cloud.errors import CloudError
from cloud.lake.query import lakes_of
from cloud.values import CLOUD_CONFIG


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    arguments = argparse.ArgumentParser(
        prog="fieldgate dashboard", description="Pages over the tables of a lake."
    )
    arguments.add_argument(
        "--lake", metavar="URI", help="root of the tables (default ./lake), or a name of [lakes]"
    )
    arguments.add_argument("--cloud", type=Path, metavar="FILE", help="the cloud's config: where the lake is")
    arguments.add_argument(
        "--listen", default="127.0.0.1:8090", metavar="HOST:PORT", help="default %(default)s"
    )
    return arguments


def listen_address(text: str) -> tuple[str, int]:
    """Host and port, of this machine alone. Raises CloudError with the remedy."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not port.isdecimal() or not 0 < int(port) < 65536 or not host:
        raise CloudError(f"--listen {text} is no HOST:PORT such as 127.0.0.1:8090")
    try:
        is_here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = False
    if not is_here:
        raise CloudError(
            f"--listen {text}: the pages have no passwords, so only this machine may open them. Leave "
            f"127.0.0.1, and from elsewhere: ssh -L {port}:127.0.0.1:{port} THIS-MACHINE, then http://127.0.0.1:{port}/"
        )
    return host, int(port)


def _try(host: str, port: int) -> None:
    """Raises CloudError where something else listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            raise CloudError(f"--listen {host}:{port}: {error.strerror}; give another port") from error


def run(argv: Sequence[str]) -> int:
    """Serves until interrupted; exit status 1 on an error, which goes to stderr in one line."""
    options = parser().parse_args(argv)
    path: Path | None = options.cloud
    if path is None and "/" not in (options.lake or "") and CLOUD_CONFIG.exists():
        path = CLOUD_CONFIG
    try:
        host, port = listen_address(options.listen)
        _try(host, port)
        config = CloudConfig() if path is None else load(path)
        # Loaded here: a wrong option is refused at once.
        from cloud.dashboard.reading import LakeReader
        from cloud.dashboard.server import serve

        reader = LakeReader(lakes_of([options.lake] if options.lake else [], config))
        reader.look()
    except CloudError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1

    def ready() -> None:
        sys.stdout.write(f"http://{options.listen}/\n")
        sys.stdout.flush()

    serve(reader, host, port, ready)
    return 0
