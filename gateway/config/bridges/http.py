"""The ``[http]`` section: what may listen where."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Final

from cloud.wire.reading_records import GATEWAY_ID
from gateway.config.bridges.model import HttpConfig
from gateway.config.named_files import opens
from gateway.config.source import Source
from gateway.config.values import is_loopback

_FILES: Final = ("tokens", "certificate", "key")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


def with_files(source: Source, given: HttpConfig, base_dir: Path) -> HttpConfig:
    """The section with its files' places; what would let others in, or read along, is an error."""
    if (given.certificate is None) != (given.key is None):
        absent = "certificate" if given.certificate is None else "key"
        source.error(("http", absent), "is required: certificate and key go together")
    if given.address is not None and not is_loopback(given.address[0]):
        if given.tokens is None:
            source.error(("http", "listen"), "lets other machines in: http.tokens must say which")
        if given.certificate is None:
            source.error(
                ("http", "listen"),
                "tokens would cross the network in the clear: give http.certificate and key",
            )
    files = {name: base_dir / file for name in _FILES if (file := getattr(given, name)) is not None}
    if given.address is not None:
        for name, file in files.items():
            if opens(source, ("http", name), file) and name == "tokens":
                try:
                    read_tokens(file)
                except (OSError, ValueError) as error:
                    source.error(("http", name), str(error), starts=True)
    return dataclasses.replace(given, **files)


def read_tokens(path: Path) -> dict[bytes, str]:
    """Each device by its token's SHA-256. Raises OSError; ValueError, with the line that is wrong."""
    devices: dict[bytes, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or GATEWAY_ID.fullmatch(words[0]) is None or _DIGEST.fullmatch(words[1]) is None:
            raise ValueError(
                f"{path}:{number}: must be a device's id (a-z, 0-9, -) and its token's SHA-256 in hex"
            )
        devices[bytes.fromhex(words[1])] = words[0]
    return devices
