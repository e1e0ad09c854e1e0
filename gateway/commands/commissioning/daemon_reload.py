"""Tells the running daemon to read its config again, and finds out what became of that.

Only a process that is a ``fieldgate run`` on this very file is signalled: SIGHUP would end any other.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from gateway.calibration.history import UnreadableHistory, channel_records, history_path, read_history
from gateway.commands.arguments import CONFIG_PATH
from gateway.config import Config
from gateway.status.client import NoStatus, daemon_of, fetch

_PROC: Final = Path("/proc")
_POLL_S: Final = 0.1
WAIT_S: Final = 30.0
"""A daemon looks once a second; a sensor that hangs is given up after 18 s, and holds it up so long."""

_SYSTEMCTL: Final = "sudo systemctl reload fieldgate"

State = Literal["no daemon", "taken over", "refused", "unknown", "not told"]


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What became of it. ``words`` are for a person; a refusal's are the daemon's own."""

    state: State
    words: str


def reload_daemon(
    path: Path,
    config: Config,
    sensor: str,
    *,
    wait_s: float = WAIT_S,
    hang_up: Callable[[int], None] = lambda pid: os.kill(pid, signal.SIGHUP),
) -> Reloaded:
    """Send SIGHUP to the daemon of this config and wait until it has taken over ``sensor`` as it is now."""
    try:
        pid = daemon_of(config)
    except PermissionError as error:
        return Reloaded("not told", f"a daemon can't be seen from here ({error}): {_SYSTEMCTL}")
    if pid is None:
        return Reloaded("no daemon", "no daemon runs: it will find the new figures at its start")
    problem = _not_ours(pid, path)
    if problem is not None:
        return Reloaded("not told", f"{problem}: if it is the daemon's, {_SYSTEMCTL}")
    wanted = {(record.channel, record.cal) for record in channel_records(config) if record.sensor == sensor}
    before = _config_state(config)
    try:
        hang_up(pid)
    except PermissionError:
        return Reloaded("not told", f"the daemon (process {pid}) is another user's: {_SYSTEMCTL}")
    except ProcessLookupError:
        return Reloaded("no daemon", f"the daemon (process {pid}) has just ended: it finds it at its start")
    end_s = time.monotonic() + wait_s
    while True:
        now = _config_state(config)
        over = time.monotonic() >= end_s
        # The same refusal as before looks like no answer at first.
        if now is not None and now.get("error") and (over or now != before):
            return Reloaded("refused", str(now["error"]))
        if _in_force(config, wanted) and (now is None or not now.get("error")):
            return Reloaded("taken over", f"the daemon (process {pid}) measures with it")
        if over:
            return Reloaded(
                "unknown",
                f"the daemon (process {pid}) was told, and hasn't answered within {wait_s:g} s:"
                " see fieldgate calibrations, and journalctl -u fieldgate",
            )
        time.sleep(_POLL_S)


def _not_ours(pid: int, path: Path) -> str | None:
    """Why a process isn't the daemon on this file, or None."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError as error:
        return f"process {pid} has the outbox and can't be looked at ({error.strerror})"
    if "run" not in words:
        return f"process {pid} ({' '.join(words).strip()}) has the outbox and is no fieldgate run"
    given = _config_argument(words[words.index("run") + 1 :])
    try:
        theirs = (_PROC / str(pid) / "cwd").readlink() / given if not given.is_absolute() else given
        if not theirs.samefile(path):
            return f"the daemon (process {pid}) runs on {theirs}"
    except OSError as error:
        return f"the config of process {pid} can't be found ({error})"
    return None


def _config_argument(words: Collection[str]) -> Path:
    """What -c says on a daemon's command line."""
    told = list(words)
    for at, word in enumerate(told):
        if word in ("-c", "--config") and at + 1 < len(told):
            return Path(told[at + 1])
        for prefix in ("--config=", "-c"):
            if word.startswith(prefix) and word != prefix:
                return Path(word.removeprefix(prefix))
    return CONFIG_PATH


def _config_state(config: Config) -> dict[str, Any] | None:
    """``config`` of the daemon's status; None where it can't be asked."""
    if not config.status.enabled:
        return None
    try:
        status = fetch(config.status.listen)
    except NoStatus:
        return None
    state = status.get("config")
    return state if status.get("gateway") == config.gateway.id and isinstance(state, dict) else None


def _in_force(config: Config, wanted: Collection[tuple[str, str]]) -> bool:
    """Whether the daemon's own history says that it measures with these calibrations."""
    try:
        records = read_history(history_path(config))
    except UnreadableHistory:
        return False
    return set(wanted) <= {(record.channel, record.cal) for record in records if record.in_force}
