"""What a running daemon says of itself, fetched from its status address and shown as a table."""

from __future__ import annotations

import http.client
import json
import sys
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.config.files import unreadable

DEFAULT_LISTEN: Final = "127.0.0.1:8321"
_TIMEOUT_S: Final = 3.0
_MAX_ANSWER_BYTES: Final = 8 << 20

QUALITY: Final = {
    1: ("good", "green"),
    2: ("not evaluated", "cyan"),
    3: ("suspect", "yellow"),
    4: ("fail", "red"),
    9: ("missing", "magenta"),
}


class NoStatus(Exception):
    """The daemon can't be asked; the message says why."""


def fetch(listen: str) -> dict[str, Any]:
    """The daemon's status from ``host:port``. Raises NoStatus."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit():
        raise NoStatus(f"status.listen {listen!r} is not HOST:PORT")
    host = host.strip("[]")
    # It listens everywhere: ask it here.
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    connection = http.client.HTTPConnection(host, int(port), timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/api/status")
        response = connection.getresponse()
        body = response.read(_MAX_ANSWER_BYTES)
        if response.status != http.client.OK:
            raise NoStatus(f"http://{listen}/api/status answers {response.status} {response.reason}")
        status = json.loads(body)
    except (OSError, http.client.HTTPException) as error:
        raise NoStatus(f"no daemon answers at http://{listen}/api/status: {error}") from error
    except ValueError as error:
        raise NoStatus(f"http://{listen}/api/status does not answer JSON: {error}") from error
    finally:
        connection.close()
    if not isinstance(status, dict):
        raise NoStatus(f"http://{listen}/api/status does not answer an object")
    return status


def listen_address(config: Path, *, chosen: bool) -> str:
    """``[status] listen`` of a config file, else the default. Raises NoStatus where it can't be read."""
    try:
        section = tomllib.loads(config.read_text(encoding="utf-8")).get("status", {})
    except OSError as error:
        if chosen:
            raise NoStatus(f"{config}: {unreadable(config, error)}") from error
        return DEFAULT_LISTEN
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NoStatus(f"{config}: {error}") from error
    listen = section.get("listen", DEFAULT_LISTEN) if isinstance(section, dict) else DEFAULT_LISTEN
    if not isinstance(listen, str):
        raise NoStatus(f"{config}: status.listen must be a string")
    return listen


def channel_table(channels: Mapping[str, Mapping[str, Any]], now: datetime | None = None) -> Table:
    """Each channel's last reading; ``age`` against ``now``, left out where that is None (replayed time)."""
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("channel", no_wrap=True, ratio=3)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("quality", no_wrap=True)
    table.add_column("time", no_wrap=True)
    if now is not None:
        table.add_column("age", justify="right", no_wrap=True)
    table.add_column("reasons", no_wrap=True, ratio=2, overflow="ellipsis")
    for name in sorted(channels):
        last = channels[name]
        quality, colour = QUALITY.get(last.get("quality", 2), ("?", "white"))
        value = last.get("value")
        cells: list[str | Text] = [
            name,
            "–" if value is None else f"{value:.3f}",
            str(last.get("unit") or ""),
            Text(quality, style=colour),
            _clock(last.get("time")),
        ]
        if now is not None:
            cells.append(_age(last.get("time"), now))
        table.add_row(*cells, " ".join(last.get("reasons") or ()))
    return table


def _moment(time: object) -> datetime | None:
    if not isinstance(time, str):
        return None
    try:
        return datetime.fromisoformat(time)
    except ValueError:
        return None


def _clock(time: object) -> str:
    moment = _moment(time)
    return "–" if moment is None else moment.astimezone(UTC).strftime("%H:%M:%S")


def _age(time: object, now: datetime) -> str:
    moment = _moment(time)
    if moment is None:
        return "–"
    seconds = (now - moment).total_seconds()
    return f"{seconds:.0f} s" if abs(seconds) < 600 else f"{seconds / 60:.0f} min"


def _summary(status: Mapping[str, Any]) -> str:
    broker = "connected" if status.get("mqtt_connected") else "not connected"
    dropped = status.get("broker_dropped")
    held, unsynced = status.get("held"), status.get("clock") == "unsynced"
    clock = f", clock unsynced: {held} readings wait for it" if held or unsynced else ""
    return (
        f"{status.get('gateway')} run {status.get('run')}: {status.get('state')}, "
        f"uplink {status.get('uplink')}, local broker {broker}{clock}\n"
        f"sampled {status.get('sampled')}  confirmed {status.get('confirmed')}  "
        f"in flight {status.get('in_flight')}  outbox {status.get('outbox_records')} records, "
        f"{status.get('outbox_bytes')} bytes  dead letters {status.get('dead_letters')}  "
        f"dropped by the local broker {'unknown' if dropped is None else dropped}" + _outbox_trouble(status)
    )


def _outbox_trouble(status: Mapping[str, Any]) -> str:
    problem = status.get("outbox_problem")
    if not problem:
        return ""
    records, size = status.get("outbox_memory_records"), status.get("outbox_memory_bytes")
    return f"\noutbox can't be written, {records} of its records are in memory only ({size} bytes): {problem}"


def _unread(config: Path, *, chosen: bool) -> str:
    """That the daemon may well listen elsewhere, where the config that says so can't be read."""
    if chosen:
        return ""
    try:
        config.open("rb").close()
    except FileNotFoundError:
        return f"there is no {config}, so the default address was asked: -c names another config\n"
    except OSError as error:
        return f"{config} {unreadable(config, error)}; so the default address was asked\n"
    return ""


def run(config: Path, *, json_output: bool, chosen: bool) -> int:
    """Print the status: 0, or 1 where the daemon can't be asked. ``chosen``: the config must exist."""
    try:
        status = fetch(listen_address(config, chosen=chosen))
    except NoStatus as error:
        sys.stderr.write(f"fieldgate: {error}\n{_unread(config, chosen=chosen)}")
        return 1
    if json_output:
        sys.stdout.write(json.dumps(status, indent=2) + "\n")
        return 0
    console = Console()
    console.print(_summary(status), highlight=False)
    console.print(channel_table(status.get("channels") or {}, datetime.now(UTC)))
    return 0
