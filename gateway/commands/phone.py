"""``fieldgate phone`` opens the status page to a phone for a while, and shows a QR code of its address."""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from cloud.command_line import OK, CommandError, add_config, add_json, positive
from gateway.config import load
from gateway.status.control_socket import ControlError, send_request
from gateway.status.service import CLOSE, OPEN
from gateway.system.host import Interface, interfaces, reachable

# White on black whatever the terminal's colours are: the blocks are the light modules.
_ON, _OFF = "\x1b[97;40m", "\x1b[0m"
_QUIET: Final = 2
"""Light modules around the code. The standard wants four; cameras do with two, and terminals are small."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds for how long, and by which of this machine's addresses."""
    add_config(parser)
    parser.add_argument(
        "--minutes", type=positive, default=60.0, metavar="N", help="close it after N (default: 60)"
    )
    parser.add_argument("--address", metavar="ADDRESS", help="of this machine, where it has several")
    parser.add_argument("--close", action="store_true", help="close it now")
    add_json(parser, "for programs; no code")


def run(arguments: argparse.Namespace) -> int:
    """Opens or closes it. Raises ConfigError, CommandError where the daemon can't or refuses to."""
    outbox = load(arguments.config).outbox.path
    try:
        if arguments.close:
            answer = send_request(outbox, {"do": CLOSE})
            words = "closed" if answer["was_open"] else "it wasn't open"
            print(json.dumps(answer) if arguments.json else words)
            return OK
        among = reachable(interfaces())
        if arguments.address is None and not among:
            raise CommandError(
                "no network here that a phone could be in: join its hotspot, or give --address"
            )
        chosen = arguments.address or among[0].address
        answer = send_request(outbox, {"do": OPEN, "address": chosen, "minutes": arguments.minutes})
    except ControlError as error:
        raise CommandError(error) from error
    link = f"{answer['url']}?t={answer['token']}"
    if arguments.json:
        print(json.dumps({**answer, "link": link}))
    else:
        print("\n".join(lines(answer, link, chosen, among, shutil.get_terminal_size().columns)), flush=True)
    return OK


def lines(
    answer: dict[str, Any], link: str, chosen: str, among: Sequence[Interface], columns: int
) -> list[str]:
    """Returns the code, and below it the address, the network and how long it stays open."""
    until = datetime.now().astimezone() + timedelta(seconds=answer["seconds"])
    name = next((each.name for each in among if each.address == chosen), None)
    others = [f"--address {each.address} ({each.name})" for each in among if each.address != chosen]
    code = qr_lines(link)
    width = len(code[0])
    shown = [f"{_ON}{line}{_OFF}" if sys.stdout.isatty() else line for line in code]
    if width > columns:
        shown = [f"(This window is too narrow for the code, which needs {width} columns.)"]
    return [
        *shown,
        f"Scan this, or open {answer['url']} and type the token {answer['token']}",
        link,
        f"The phone has to be in the same network as {name or 'this machine'} ({chosen})."
        + (f" Else: {', '.join(others)}." if others else ""),
        f"It closes by itself at {until:%H:%M} ({answer['seconds'] / 60:.0f} minutes); "
        "at once with: fieldgate phone --close",
    ]


def qr_lines(text: str) -> list[str]:
    """Returns a QR code as text, two rows of modules a line, light modules as blocks."""
    import segno

    code = io.StringIO()
    segno.make(text, error="l", micro=False).terminal(code, border=_QUIET, compact=True)
    return code.getvalue().splitlines()
