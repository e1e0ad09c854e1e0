"""Makes the running daemon read its config again, and finds out whether it measures with it.

Only a process that is a ``fieldgate run`` on this very file is signalled: SIGHUP would end any other.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from gateway.calibration.history import UnreadableHistory, channel_records, history_path, read_history
from gateway.commands.arguments import CONFIG_PATH
from gateway.config import Config
from gateway.status.client import NoStatus, daemon_of, fetch

_PROC: Final = Path("/proc")
_POLL_S: Final = 0.1
_WAIT_S: Final = 30.0
"""A daemon checks once a second; a sensor that hangs is given up after 18 s, and holds it up so long."""

_SYSTEMCTL: Final = "sudo systemctl reload fieldgate"


class Reloaded(NamedTuple):
    """What became of it. ``words`` are for a person; a refusal's are the daemon's own."""

    state: Literal["no daemon", "taken over", "refused", "unknown", "not reloaded"]
    words: str


def reload_daemon(path: Path, config: Config, sensor: str) -> Reloaded:
    """Send SIGHUP to the daemon of this config and wait until it has taken over ``sensor`` as it is now."""
    try:
        pid = daemon_of(config)
    except PermissionError as error:
        return Reloaded("not reloaded", f"a daemon can't be seen from here ({error}): {_SYSTEMCTL}")
    if pid is None:
        return Reloaded("no daemon", "no daemon runs: it will find the new figures at its start")
    problem = _not_ours(pid, path)
    if problem is not None:
        return Reloaded("not reloaded", f"{problem}: if it is the daemon's, {_SYSTEMCTL}")
    before = _config_state(config)
    try:
        os.kill(pid, signal.SIGHUP)
    except PermissionError:
        return Reloaded("not reloaded", f"the daemon (process {pid}) is another user's: {_SYSTEMCTL}")
    except ProcessLookupError:
        return Reloaded("no daemon", f"the daemon (process {pid}) has just ended: it finds it at its start")
    wanted = {(record.channel, record.cal) for record in channel_records(config) if record.sensor == sensor}
    end_s = time.monotonic() + _WAIT_S
    while True:
        now = _config_state(config)
        refusal = (now or {}).get("error")
        over = time.monotonic() >= end_s
        # The same refusal as before may be the one before.
        if refusal and (over or now != before):
            return Reloaded("refused", str(refusal))
        if not refusal and _in_force(config, wanted):
            return Reloaded("taken over", f"the daemon (process {pid}) measures with it")
        if over:
            return Reloaded(
                "unknown",
                f"the daemon (process {pid}) was signalled, and hasn't responded within {_WAIT_S:g} s:"
                " see fieldgate calibrations, and journalctl -u fieldgate",
            )
        time.sleep(_POLL_S)


def _not_ours(pid: int, path: Path) -> str | None:
    """Why a process isn't the daemon on this file, or None."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError as error:
        return f"process {pid} has the outbox and its command line can't be read ({error.strerror})"
    if "run" not in words:
        return f"process {pid} ({' '.join(words).strip()}) has the outbox and is no fieldgate run"
    theirs = _config_argument(words[words.index("run") + 1 :])
    try:
        if not theirs.is_absolute():
            theirs = (_PROC / str(pid) / "cwd").readlink() / theirs
        if not theirs.samefile(path):
            return f"the daemon (process {pid}) runs on {theirs}"
    except OSError as error:
        return f"the config of process {pid} can't be found ({error})"
    return None


def _config_argument(words: Sequence[str]) -> Path:
    """The value of -c on a daemon's command line."""
    for at, word in enumerate(words):
        if word in ("-c", "--config") and at + 1 < len(words):
            return Path(words[at + 1])
        for prefix in ("--config=", "-c"):
            if word.startswith(prefix) and word != prefix:
                return Path(word.removeprefix(prefix))
    return CONFIG_PATH


def _config_state(config: Config) -> dict[str, Any] | None:
    """``config`` of the daemon's status; None where that can't be fetched."""
    if not config.status.enabled:
        return None
    try:
        status = fetch(config.status.listen)
    except NoStatus:
        return None
    state = status.get("config")
    return state if status.get("gateway") == config.gateway.id and isinstance(state, dict) else None


def _in_force(config: Config, wanted: Collection[tuple[str, str]]) -> bool:
    """Whether the daemon measures with these calibrations, by its own history."""
    try:
        records = read_history(history_path(config))
    except UnreadableHistory:
        return False
    return set(wanted) <= {(record.channel, record.cal) for record in records if record.in_force}
