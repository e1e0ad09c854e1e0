"""The tokens of ``[http]``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from cloud.wire.reading_records import GATEWAY_ID

_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


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
