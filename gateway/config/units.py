"""The two spellings that config values have beyond TOML's own: sizes and addresses."""

from __future__ import annotations

import re
from typing import Final

from gateway.config.problems import quote

_SIZE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]*)", re.ASCII)
_FACTORS: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}


def parse_size(text: str) -> int:
    """Bytes of a size such as "512MiB", "1.5 GB" or "4096". Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    factor = _FACTORS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        units = "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"
        raise ValueError(f'must be a size such as "512MiB" or "1GiB" ({units}), not {quote(text)}')
    return round(float(match[1]) * factor)


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port of "127.0.0.1:8321" or "[::1]:8321"; port 0 picks a free one. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError('an IPv6 address needs brackets, as in "[::1]:8321"')
    if not colon or not host or not _is_port(port):
        raise ValueError('must be "host:port", such as "127.0.0.1:8321", or empty for no status page')
    return host, int(port)


def check_servers(text: str) -> None:
    """A comma-separated list of ``host:port``. Raises ValueError."""
    for server in text.split(","):
        host, colon, port = server.strip().rpartition(":")
        if not server.strip():
            raise ValueError("must not be empty, nor have a comma too many")
        if "://" in server:
            raise ValueError(f"must not have a scheme: write {quote(server.partition('://')[2].rstrip('/'))}")
        if not colon and not any(char.isspace() for char in server.strip()):
            raise ValueError(f"needs a port: write {quote(f'{server.strip()}:9092')}")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if (
            not colon
            or not bare
            or any(char.isspace() for char in bare)
            or not _is_port(port)
            or int(port) == 0
        ):
            raise ValueError('must be "host:port", or several separated by commas')


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535
