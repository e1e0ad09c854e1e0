"""How single values are written, in the file and as options. Each raises ValueError with what to write."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

CLOUD_CONFIG = Path("/etc/fieldgate/cloud.toml")
"""What jobs and ``query`` read where it is, unless their options name another Kafka or lake."""

_T = TypeVar("_T")

_LABEL: Final = re.compile(r"[\w-]{1,63}")
_HOST_AND_PORT: Final = re.compile(
    r"(?:\w+://)?(?:\[(?P<address>[^]]*)\]|(?P<name>[^:/]*))(?::(?P<port>[0-9]+))?/?"
)
_LONGEST_PREFIX: Final = 249 - len("gateway.command-results")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_UNITS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
_DAY_S: Final = 86_400


def duration_s(text: str) -> float:
    """Seconds in ``0``, ``500ms``, ``2s``, ``1m``, ``1h``, ``7d``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", "0s" if text.strip() == "0" else text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 500ms, 2s, 10m, 1h or 7d")
    return float(match[1]) * _SECONDS[match[2]]


def duration_text(seconds: float) -> str:
    """A duration in the largest unit of which there are at least two: 119 s, 2 min, 47 h, 3 d."""
    unit_s, unit = next((each for each in _UNITS if seconds >= 2 * each[0]), (1.0, "s"))
    return f"{seconds / unit_s:.0f} {unit}"


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


def is_host(text: str) -> bool:
    """Whether it is a name or an IP address, one of version 6 without brackets."""
    try:
        ip_address(text)
    except ValueError:
        *_, last = labels = text.removesuffix(".").split(".")
        return not last.isdigit() and all(map(_LABEL.fullmatch, labels))
    return True


def host_alone(text: str) -> str:
    """A name or an address alone."""
    match = _HOST_AND_PORT.fullmatch(text)
    if is_host(text) or match is None:
        alone, port = text, None
    else:
        alone, port = match["address"] or match["name"], match["port"]
    if not is_host(alone):
        raise ValueError(f'must be a name or an IP address, not "{text}"')
    if alone != text:
        also = f", and port = {port}" if port else ""
        raise ValueError(f'must be a name or an IP address alone: write "{alone}"{also}')
    return text


def server_list(text: str) -> str:
    """``HOST:PORT[,HOST:PORT…]``."""
    if ";" in text:
        raise ValueError(f'must have commas between: write "{text.replace(";", ",")}"')
    for server in map(str.strip, text.split(",")):
        host, colon, port = server.rpartition(":")
        blank = any(char.isspace() for char in server)
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") and ":" in host else host
        if not server:
            problem = "must not be empty, nor have a comma too many"
        elif "://" in server:
            problem = f'must not have a scheme: write "{server.partition("://")[2].rstrip("/")}"'
        elif not colon and not blank:
            problem = f'needs a port: write "{server}:9092"'
        elif ":" in host and bare == host and is_host(server):
            right = f"[{host}]:{port}" if is_host(host) else f"[{server}]:9092"
            problem = f'an IPv6 address needs brackets: write "{right}"'
        elif blank or host in ("", "[]") or re.fullmatch("[0-9]{1,5}", port) is None or int(port) > 65535:
            problem = 'must be "host:port", or several separated by commas'
        elif not is_host(bare):
            problem = f'must have a name or an IP address before the port, not "{host}"'
        elif int(port) == 0:
            problem = "must not have port 0"
        else:
            continue
        raise ValueError(problem)
    return text


def topic_prefix(text: str) -> str:
    """How all topics and consumer groups of a fleet begin that shares its Kafka; empty for none."""
    if re.fullmatch(r"[A-Za-z0-9._-]*", text, re.ASCII) is None:
        raise ValueError("may have letters, digits, dots, underscores and hyphens alone, as Kafka's topics")
    if len(text) > _LONGEST_PREFIX:
        raise ValueError(f"must have at most {_LONGEST_PREFIX} characters: a topic has 249 in Kafka")
    if text.startswith(("mqtt.", "gateway.", "__")):
        raise ValueError('must not begin with "mqtt.", "gateway." or "__": topics without a prefix do')
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


# The wide ones are what a Japanese keyboard gives: spreadsheets take them too.
BEGINS_A_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def no_formula(value: _T) -> _T | str:
    """A text that a spreadsheet would take for a formula, kept a text; all else as it is.

    Each text in a file that people open passes here: units and names are a device's own words.
    """
    is_formula = isinstance(value, str) and len(value) > 1 and value.startswith(BEGINS_A_FORMULA)
    return f"'{value}" if is_formula else value


def installed_version() -> str:
    """What files that are made for people say they were made by."""
    try:
        return version("fieldgate")
    except PackageNotFoundError:
        return "(not installed)"
