"""What to do about an uplink that stays away: when to reset the modem, when to reboot. Pure.

Hours away are added up over the checks, by time since boot: the clock may be wrong, and power that is off is
no outage. They go on over reboots and daemons, and start again with any confirmation from Kafka. While the
daemon doesn't respond nothing counts.

Within one outage each action waits twice as long as before: resets up to a day apart, reboots up to a week,
or as long as configured where that is more. So a mast without coverage for a month is rebooted some seven
times, and no action comes more often than configured, whatever happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec
from msgspec.structs import replace

from cloud.backoff import backoff_s
from gateway.config.model import UplinkConfig

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
