"""How single values are written, in the file and as options. Each raises ValueError with what to write.

And which version this is.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

CLOUD_CONFIG = Path("/etc/fieldgate/cloud.toml")
"""What jobs and ``query`` read where it is, unless their options name another Kafka or lake."""

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DAY_S: Final = 86_400


def duration_s(text: str) -> float:
    """Seconds in ``0``, ``500ms``, ``2s``, ``1m``, ``1h``, ``7d``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", "0s" if text.strip() == "0" else text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 500ms, 2s, 10m, 1h or 7d")
    return float(match[1]) * _SECONDS[match[2]]


def interval_s(text: str) -> int:
    """Whole seconds of a statistics interval, which divides a day."""
    seconds = duration_s(text)
    if seconds < 1 or seconds != int(seconds) or _DAY_S % int(seconds):
        raise ValueError(f"an interval of {text} does not divide a day into whole seconds")
    return int(seconds)


def location(text: str, base: Path) -> str:
    """A directory or URI. Relative paths are made absolute: Spark's driver and workers may be elsewhere.

    ``file:///a`` becomes ``/a``: Delta takes it and the ``file:/a`` that Hadoop makes of it for two places.
    """
    local = re.fullmatch(r"file:(?://)?(/.*)", text)
    if local is not None:
        return str(Path(local[1]))
    return text if "://" in text else str((base / text).resolve())


def server_list(text: str) -> str:
    """``HOST:PORT[,HOST:PORT…]``."""
    for server in map(str.strip, text.split(",")):
        host, colon, port = server.rpartition(":")
        blank = any(char.isspace() for char in server)
        if not server:
            problem = "must not be empty, nor have a comma too many"
        elif "://" in server:
            problem = f'must not have a scheme: write "{server.partition("://")[2].rstrip("/")}"'
        elif not colon and not blank:
            problem = f'needs a port: write "{server}:9092"'
        elif blank or host in ("", "[]") or re.fullmatch("[0-9]{1,5}", port) is None or int(port) > 65535:
            problem = 'must be "host:port", or several separated by commas'
        elif int(port) == 0:
            problem = "must not have port 0"
        else:
            continue
        raise ValueError(problem)
    return text


def registry_url(text: str) -> str:
    """A registry's address without a slash at its end. Raises ValueError."""
    try:
        parts = urlsplit(text)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        sound = False
    if not sound or any(character.isspace() for character in text) or "?" in text or "#" in text:
        raise ValueError("must be http(s)://HOST[:PORT][/PATH], such as https://registry.example.org")
    if "@" in parts.netloc:
        raise ValueError("must not have a login in it: name it by username and password")
    return text.rstrip("/")


def tiles_url(text: str) -> str:
    """Where a map's tiles are, such as ``https://tiles.example.org/{z}/{x}/{y}.png``."""
    places = re.findall(r"\{([^{}]*)\}", text)
    is_address = re.fullmatch(r"https?://[^/\s\"'<>]+/[^\s\"'<>]*", text) is not None
    # Leaflet fills in these, and draws nothing where it meets others.
    if not is_address or not {"z", "x"} <= set(places) or not set(places) <= {"z", "x", "y", "-y", "s", "r"}:
        raise ValueError(
            "must be http(s)://HOST/PATH with {z}, {x} and {y} in it, such as "
            "https://tiles.example.org/{z}/{x}/{y}.png"
        )
    if len({"y", "-y"} & set(places)) != 1:
        raise ValueError("must have one of {y} and {-y} in it")
    return text


def installed_version() -> str:
    """What files that are made for people say they were made by."""
    try:
        return version("fieldgate")
    except PackageNotFoundError:
        return "(not installed)"
