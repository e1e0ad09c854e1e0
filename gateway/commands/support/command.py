"""``fieldgate support-bundle``: one file to send to whoever helps."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from gateway.commands.support.bundle import archive, files_of
from gateway.commands.support.parts import Request, gathered
from gateway.commands.support.redaction import Found, Redactor
from gateway.system.host import own_version


def run(request: Request, file: Path | None) -> int:
    """Write the bundle and say what is in it: 0, or 1 where no file can be written."""
    # What goes wrong stands in the manifest.
    for package in ("gateway", "drivers", "cloud"):
        logging.getLogger(package).setLevel(logging.CRITICAL)
    now = datetime.now(UTC)
    name = f"fieldgate-support-{now:%Y%m%dT%H%M%SZ}"
    target = file or Path(f"{name}.tar.gz")
    found = Found()
    # All of them first: the last one may name a secret that the first one holds.
    parts = list(gathered(request, found))
    about = {
        "made": now.isoformat(timespec="seconds"),
        "fieldgate": own_version(),
        "config": str(request.config),
        "redacted": "secrets, comments of the config" + ("" if request.position else ", the mast's position"),
    }
    files = files_of(parts, Redactor(found), about)
    content = archive(files, name, int(now.timestamp()))
    try:
        # Not over a file that is there, and for nobody else's eyes.
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
    except OSError as error:
        sys.stderr.write(f"fieldgate: {target}: {error.strerror or error}\n")
        return 1
    sys.stdout.write(f"wrote {target}: {len(content):,} bytes, {len(files)} files\n")
    for each in json.loads(files[0].content)["missing"]:
        sys.stdout.write(f"missing {each['part']}: {each['why'].splitlines()[0]}\n")
    sys.stdout.write("Secrets, comments and the position are left out; look into it before you send it.\n")
    return 0
