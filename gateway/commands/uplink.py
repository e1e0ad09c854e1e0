"""``fieldgate service uplink``: checks once whether Kafka has been away for long, and acts by ``[uplink]``.

Run as root by fieldgate-uplink.timer. What it is about to do is on the disk before it is done: a machine that
crashes on the way, or comes up without a modem, doesn't do it again at once.

The policy says when to reset the modem, and when to reboot. Hours away are added up over the checks, by time
since boot: the clock may be wrong, and power that is off is no outage. They go on over reboots and daemons,
and start again with any confirmation from Kafka. While the daemon doesn't respond nothing counts.

Within one outage each action waits twice as long as before: resets up to a day apart, reboots up to a week,
or as long as configured where that is more. A mast without coverage for a month is rebooted some seven
times, and no action comes more often than configured, whatever happens.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec.structs import replace

from buffer.files import boot_id
from cloud.backoff import backoff_s
from cloud.command_line import OK, add_config, fail
from gateway.clock.system_clock import since_boot_ns
from gateway.config import Config, load
from gateway.config.model import UplinkConfig
from gateway.reporting.event_spool import NotSpooled, spool_event
from gateway.status.client import NoStatus, fetch
from gateway.status.status import Status
from gateway.system.atomic_file import read_state, write_atomic

_HOUR_S: Final = 3600.0
_LONGEST_RESET_PAUSE_S: Final = 24 * _HOUR_S
_LONGEST_REBOOT_PAUSE_S: Final = 7 * 24 * _HOUR_S
# The daemon's seconds are rounded, and taken a little later.
_SLACK_S: Final = 60.0

Action = Literal["reset", "reboot"]


@dataclass(frozen=True, slots=True)
class Seen:
    """One check: which boot, how long it lasts, and whether the daemon responded.

    ``confirmed_ago_s`` is None where Kafka never confirmed anything to this daemon.
    """

    boot: str
    boot_s: float
    answered: bool
    confirmed_ago_s: float | None = None


_Seconds = Annotated[float, msgspec.Meta(ge=0)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is stored between two checks, over reboots too. ``away_s``: the outage so far."""

    boot: str = ""
    boot_s: _Seconds = 0.0
    away_s: _Seconds = 0.0
    resets: _Count = 0
    reset_at_s: _Seconds = 0.0
    reboots: _Count = 0
    reboot_at_s: _Seconds = 0.0


def decide(state: State, seen: Seen, rules: UplinkConfig) -> tuple[State, Action | None]:
    """What is to be stored, before anything is done, and what is to be done."""
    passed_s = seen.boot_s - state.boot_s if seen.boot == state.boot else seen.boot_s
    passed_s = max(passed_s, 0.0)
    now = replace(state, boot=seen.boot, boot_s=seen.boot_s)
    if not state.boot or not seen.answered:
        # The first check of all has nothing to compare with.
        return now, None
    away_s = state.away_s + passed_s
    ago_s = seen.confirmed_ago_s
    if ago_s is not None and (ago_s <= passed_s or ago_s < away_s - _SLACK_S):
        # Something came through since this outage began: it is over, another one may have begun.
        return State(seen.boot, seen.boot_s, away_s=ago_s), None
    now = replace(now, away_s=away_s)
    if _due(away_s, rules.reboot_after_h, now.reboots, now.reboot_at_s, _LONGEST_REBOOT_PAUSE_S):
        return replace(now, reboots=now.reboots + 1, reboot_at_s=away_s), "reboot"
    if _due(away_s, rules.reset_after_h, now.resets, now.reset_at_s, _LONGEST_RESET_PAUSE_S):
        return replace(now, resets=now.resets + 1, reset_at_s=away_s), "reset"
    return now, None


def _due(away_s: float, after_h: float | None, done: int, last_s: float, longest_s: float) -> bool:
    if after_h is None:
        return False
    after_s = after_h * _HOUR_S
    if not done:
        return away_s >= after_s
    return away_s >= last_s + backoff_s(done, after_s, max(after_s, longest_s))


_COMMAND_TIMEOUT_S: Final = 120.0
STATE_PATH: Final = Path("/var/lib/fieldgate-uplink/state.json")
REBOOT: Final = ("/usr/bin/systemctl", "reboot")

execute: Final = partial(subprocess.run, check=True, timeout=_COMMAND_TIMEOUT_S, stdin=subprocess.DEVNULL)
"""Runs a command to its end, at most two minutes. Raises OSError, subprocess.SubprocessError."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The boot, seconds since it, the daemon's status, running a command.

    ``execute`` raises OSError, subprocess.SubprocessError.
    """

    boot: Callable[[], str] = boot_id
    boot_s: Callable[[], float] = lambda: since_boot_ns() / 1e9
    status: Callable[[str], Status] = fetch
    execute: Callable[[Sequence[str]], object] = execute


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The config, and where the state is kept."""
    add_config(parser)
    meaning = f"what was done when (default: {STATE_PATH})"
    parser.add_argument("--state", type=Path, default=STATE_PATH, metavar="FILE", help=meaning)
    parser.add_argument("--dry-run", action="store_true", help="only print what would be done")


def run(arguments: argparse.Namespace) -> int:
    """Check once, on this machine. Raises ConfigError."""
    config = load(arguments.config, at_work=False)
    return check_uplink(config, arguments.state, Machine(), dry_run=arguments.dry_run)


def check_uplink(config: Config, state_path: Path, machine: Machine, *, dry_run: bool) -> int:
    """Check once; the exit code. A ``dry_run`` stores and does nothing."""
    if config.uplink.reset_after_h is None and config.uplink.reboot_after_h is None:
        print("neither uplink.reset_after_h nor uplink.reboot_after_h is set: nothing to do")
        return OK
    status: Status | None = None
    try:
        status = machine.status(config.status.listen)
    except NoStatus as error:
        print(f"nothing is counted: {error}")
    before = read_state(state_path, partial(msgspec.convert, type=State), State())
    confirmed_ago_s = None if status is None else status.kafka_confirmed_ago_s
    seen = Seen(machine.boot(), machine.boot_s(), status is not None, confirmed_ago_s)
    after, action = decide(before, seen, config.uplink)
    if action == "reboot" and status is not None and status.outbox_memory_records:
        # They would be lost, and a reboot mends no card.
        sys.stderr.write("no reboot: readings are in memory only, because the outbox's disk fails\n")
        after, action = replace(after, reboots=before.reboots, reboot_at_s=before.reboot_at_s), None
    if status is not None:
        done = f"{after.resets} resets, {after.reboots} reboots"
        now = f"; now: {action}" if action else ""
        print(f"Kafka away for {after.away_s / 3600:.1f} h; in this outage {done}{now}", flush=True)
    if dry_run:
        return OK
    try:
        write_atomic(state_path, msgspec.json.encode(after))
    except OSError as error:
        # Not stored, it would be done again at each check.
        return fail(f"nothing is done: {state_path} can't be written: {error.strerror}")
    return OK if action is None else _act(action, config, after, machine)


def _act(action: Action, config: Config, state: State, machine: Machine) -> int:
    fields = {"away_h": round(state.away_s / 3600, 2), "resets": state.resets, "reboots": state.reboots}
    try:
        spool_event(config.outbox.path, f"uplink-{action}", fields)
    except NotSpooled as error:
        fail(error)
    command = REBOOT if action == "reboot" else config.uplink.reset_command
    try:
        machine.execute(command)
    except (OSError, subprocess.SubprocessError) as error:
        return fail(f"{' '.join(command)}: {error}")
    return OK
