"""``fieldgate support-bundle``: one file to send to whoever supports you."""

from __future__ import annotations

import argparse
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from cloud.command_line import OK, CommandError, add_config, add_timeout, count, without_logs
from gateway.commands.support.bundle import archive, files_of
from gateway.commands.support.parts import Request, gathered
from gateway.commands.support.redaction import Redactor
from gateway.system.host import installed_version


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where it goes and how much goes into it."""
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="must not be there yet (default: named by time)"
    )
    add_config(parser)
    parser.add_argument(
        "--lines", type=count, default=5000, metavar="N", help="of each journal (default: 5000)"
    )
    parser.add_argument("--position", action="store_true", help="with the mast's coordinates")
    add_timeout(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the bundle and list what is missing in it. Raises CommandError where no file can be written."""
    request = Request(arguments.config, arguments.timeout, arguments.lines, arguments.position)
    # What goes wrong stands in the manifest.
    without_logs("gateway", "drivers", "cloud")
    now = datetime.now(UTC)
    name = f"fieldgate-support-{now:%Y%m%dT%H%M%SZ}"
    target: Path = arguments.file or Path(f"{name}.tar.gz")
    hidden: set[str] = set()
    parts = list(gathered(request, hidden))
    about = {
        "made": now.isoformat(timespec="seconds"),
        "fieldgate": installed_version() or "unknown",
        "config": str(request.config),
        "hidden": "secrets, comments of the config" + ("" if request.position else ", the mast's position"),
    }
    files = files_of(parts, Redactor(hidden), about)
    content = archive(files, name, int(now.timestamp()))
    try:
        # Not over a file that is there, and readable by its owner alone.
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
    except OSError as error:
        raise CommandError(f"{target}: {error.strerror or error}") from error
    print(f"wrote {target}: {len(content):,} bytes, {len(files)} files")
    for each in msgspec.json.decode(files[0].content)["missing"]:
        print(f"missing {each['part']}: {each['why'].splitlines()[0]}")
    print("Secrets, comments and the position are left out; read it before you send it.")
    return OK
