"""Fetches the running daemon's status over HTTP, for the commands."""

from __future__ import annotations

import http.client
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from buffer.reader import user_of
from cloud.toml_problems import unreadable
from gateway.config import Config, StatusConfig
from gateway.status.status import Status

DEFAULT_LISTEN: Final = StatusConfig().listen
_TIMEOUT_S: Final = 15.0
_MAX_RESPONSE_BYTES: Final = 8 << 20


class NoStatus(Exception):
    """The daemon's status can't be fetched; the message gives the reason."""


def fetch(listen: str) -> Status:
    """Returns the status of the daemon that listens on ``host:port``. Raises NoStatus."""
    if not listen:
        raise NoStatus("the status page is off: set [status] listen")
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit():
        raise NoStatus(f"status.listen {listen!r} is not HOST:PORT")
    host = host.strip("[]")
    # It listens on every address: connect to this machine's own.
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    connection = http.client.HTTPConnection(host, int(port), timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/api/status")
        response = connection.getresponse()
        body = response.read(_MAX_RESPONSE_BYTES)
        if response.status != http.client.OK:
            raise NoStatus(f"http://{listen}/api/status answers {response.status} {response.reason}")
        return msgspec.json.decode(body, type=Status)
    except (OSError, http.client.HTTPException) as error:
        raise NoStatus(f"no daemon answers at http://{listen}/api/status: {error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = "is not this version's; after an upgrade, restart the daemon"
        raise NoStatus(f"the answer of http://{listen}/api/status {why}: {error}") from error
    finally:
        connection.close()


def listen_address(config: Path, *, chosen: bool) -> tuple[str, str]:
    """Returns ``[status] listen`` of a config file, else the default and why. Raises NoStatus.

    ``chosen``: the user has named the file, so it must be readable.
    """
    try:
        section = tomllib.loads(config.read_text(encoding="utf-8")).get("status", {})
    except OSError as error:
        if chosen:
            raise NoStatus(f"{config}: {unreadable(config, error)}") from error
        return DEFAULT_LISTEN, f"\n{config}: {unreadable(config, error)}; so this is the default address"
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoStatus(f"{config}: {error}") from error
    listen = section.get("listen", DEFAULT_LISTEN) if isinstance(section, dict) else DEFAULT_LISTEN
    if not isinstance(listen, str):
        raise NoStatus(f"{config}: status.listen must be a string")
    return listen, ""


def daemon_of(config: Config) -> int | None:
    """Returns the process that uses the gateway's outbox, None without one. Raises PermissionError."""
    lock = Path(f"{config.outbox.path}.lock")
    try:
        lock.stat()
    except PermissionError as error:
        raise PermissionError(f"{lock}: {error.strerror}") from error
    except OSError:
        return None
    return user_of(config.outbox.path)


def daemon_status(config: Config) -> Status | None:
    """Returns the status of this gateway's daemon, None where none runs. Raises NoStatus without response."""
    try:
        status = fetch(config.status.listen)
    except NoStatus as error:
        reason = str(error)
    else:
        if status.gateway == config.gateway.id:
            return status
        reason = f"{config.status.listen} answers for gateway {status.gateway!r}"
    try:
        process = daemon_of(config)
    except PermissionError as error:
        raise NoStatus(f"whether a daemon has the sensors can't be seen ({error}): use sudo") from error
    if process is None:
        return None
    raise NoStatus(
        f"the daemon (process {process}) has the sensors and its status can't be fetched: {reason}; "
        "or stop it first (sudo systemctl stop fieldgate)"
    )
