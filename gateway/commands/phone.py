"""``fieldgate phone``: opens the status page to a phone for a while, and shows a QR code of its address."""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from gateway.commands.arguments import OK, CommandError, add_config, add_json, positive
from gateway.commands.provision.access_file import parse_access
from gateway.config import load
from gateway.status.control_socket import ControlError, send_request
from gateway.status.service import CLOSE, OPEN, TAKE, TAKEN
from gateway.system.interfaces import Interface, interfaces, reachable

# White on black whatever the terminal's colours are: the blocks are the light modules.
_ON, _OFF = "\x1b[97;40m", "\x1b[0m"
_ASK_S: Final = 1.0
_QUIET: Final = 2
"""Light modules around the code. The standard wants four; cameras do with two, and terminals are small."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """For how long, and by which of this machine's addresses."""
    add_config(parser)
    parser.add_argument(
        "--minutes", type=positive, default=60.0, metavar="N", help="close it after N (default: 60)"
    )
    parser.add_argument("--address", metavar="ADDRESS", help="of this machine, where it has several")
    parser.add_argument("--close", action="store_true", help="close it now")
    meaning = "take the file of `fieldgate provision gateway` from the phone, as init --access does, and end"
    parser.add_argument("--access", action="store_true", help=meaning)
    add_json(parser, "for programs; no code")


def run(arguments: argparse.Namespace) -> int:
    """Open or close it. Raises ConfigError, CommandError where the daemon can't or refuses to."""
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
    if arguments.access and arguments.json:
        raise CommandError("--access waits, and --json prints once: give one of them")
    if arguments.json:
        print(json.dumps({**answer, "link": link}))
    else:
        print("\n".join(lines(answer, link, chosen, among, shutil.get_terminal_size().columns)), flush=True)
    return take_access(arguments.config, outbox) if arguments.access else OK


def take_access(config: Path, outbox: Path, pause_s: float = _ASK_S) -> int:
    """Wait for the file that a phone posts, and put it in its place. Raises CommandError."""
    print("Waiting for the access file from the phone; Ctrl-C ends it.", flush=True)
    try:
        while (answer := send_request(outbox, {"do": TAKE}))["open"]:
            if answer["access"] is None:
                time.sleep(pause_s)
                continue
            try:
                access = parse_access(str(answer["access"]), "what the phone has sent")
                written = access.renew(config)
            except CommandError as error:
                # The phone gets what is wrong, the terminal also what to write into the config.
                send_request(outbox, {"do": TAKEN, "problem": str(error).partition("\n")[0]})
                print(error, flush=True)
                continue
            send_request(outbox, {"do": TAKEN, "problem": None})
            for path in written:
                print(f"replaced {path}")
            print(f"Now: sudo systemctl {'reload' if access.identity_key is None else 'restart'} fieldgate")
            return OK
    except ControlError as error:
        raise CommandError(error) from error
    raise CommandError("the page was closed: nothing was taken")


def lines(
    answer: dict[str, Any], link: str, chosen: str, among: Sequence[Interface], columns: int
) -> list[str]:
    """The code, and below it the address, the network and how long it stays open."""
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
    """A QR code as text, two rows of modules a line, light modules as blocks."""
    import segno

    code = io.StringIO()
    segno.make(text, error="l", micro=False).terminal(code, border=_QUIET, compact=True)
    return code.getvalue().splitlines()
