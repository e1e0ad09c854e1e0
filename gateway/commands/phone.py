"""``fieldgate phone``: opens the status page to the phone of whoever stands here, and shows the way there."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from gateway.config import ConfigError, load
from gateway.status.control_socket import ControlError, ask
from gateway.status.service import CLOSE, OPEN
from gateway.system.interfaces import Interface, interfaces, reachable

# Black on white whatever the terminal's colours are: cameras want the dark modules dark.
_ON, _OFF = "\x1b[30;107m", "\x1b[0m"
_QUIET: Final = 2
"""Light modules around the code. The standard wants four; cameras do with two, and terminals are small."""


def run(path: Path, *, minutes: float, address: str | None, close: bool, json_output: bool) -> int:
    """Open or close it: 0, or 1 where the daemon can't or won't."""
    try:
        outbox = load(path, {}).outbox.path
        if close:
            answer = ask(outbox, {"do": CLOSE})
            _say(json.dumps(answer) if json_output else _closed(was_open=bool(answer["was_open"])))
            return 0
        among = reachable(interfaces())
        if address is None and not among:
            raise ControlError(
                "no network here that a phone could be in: join its hotspot, or give --address"
            )
        chosen = address or among[0].address
        answer = ask(outbox, {"do": OPEN, "address": chosen, "minutes": minutes})
    except ConfigError as error:
        sys.stderr.write("".join(f"{problem}\n" for problem in error.problems))
        return 1
    except ControlError as error:
        sys.stderr.write(f"fieldgate: {error}\n")
        return 1
    link = f"{answer['url']}?t={answer['token']}"
    if json_output:
        _say(json.dumps({**answer, "link": link}))
    else:
        for line in told(answer, link, chosen, among, shutil.get_terminal_size().columns):
            _say(line)
    return 0


def told(
    answer: dict[str, Any], link: str, chosen: str, among: Sequence[Interface], columns: int
) -> list[str]:
    """What an installer reads."""
    until = datetime.now().astimezone() + timedelta(seconds=answer["seconds"])
    name = next((each.name for each in among if each.address == chosen), None)
    others = [f"--address {each.address} ({each.name})" for each in among if each.address != chosen]
    code = qr_lines(link)
    width = len(code[0])
    lines = [f"{_ON}{line}{_OFF}" if sys.stdout.isatty() else line for line in code]
    if width > columns:
        lines = [f"(This window is too narrow for the code, which needs {width} columns.)"]
    return [
        *lines,
        f"Scan this, or open {answer['url']} and type the token {answer['token']}",
        link,
        f"The phone has to be in the same network as {name or 'this machine'} ({chosen})."
        + (f" Else: {', '.join(others)}." if others else ""),
        f"It closes by itself at {until:%H:%M} ({answer['seconds'] / 60:.0f} minutes); "
        "at once with: fieldgate phone --close",
    ]


def qr_lines(text: str) -> list[str]:
    """A QR code as text, two rows of modules a line, dark modules as blocks."""
    import segno

    rows = [[bool(module) for module in row] for row in segno.make(text, error="l", micro=False).matrix]
    side = len(rows[0]) + 2 * _QUIET
    empty = [[False] * side for _ in range(_QUIET)]
    framed = [*empty, *([False] * _QUIET + row + [False] * _QUIET for row in rows), *empty]
    if len(framed) % 2:
        framed.append([False] * side)
    blocks = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
    return [
        "".join(blocks[upper, lower] for upper, lower in zip(above, below, strict=True))
        for above, below in zip(framed[::2], framed[1::2], strict=True)
    ]


def _closed(*, was_open: bool) -> str:
    return "closed" if was_open else "it wasn't open"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
