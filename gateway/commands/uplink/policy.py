"""What to do about an uplink that stays away: when to reset the modem, when to reboot. Pure.

Hours away are added up over the looks, by time since boot: the clock may be wrong, and power that is off is
no outage. They go on over reboots and daemons, and begin anew with any word from Kafka. While the daemon
doesn't answer nothing is known and nothing counts.

Within one outage each action waits twice as long as before: resets up to a day apart, reboots up to a week,
or as long as configured where that is more. So a mast without coverage for a month is rebooted some seven
times, and no action comes more often than configured, whatever happens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

_LONGEST_RESET_PAUSE_S: Final = 24 * 3600.0
_LONGEST_REBOOT_PAUSE_S: Final = 7 * 24 * 3600.0
_HOUR_S: Final = 3600.0
# The daemon's seconds are rounded, and taken a little later.
_SLACK_S: Final = 60.0

Action = Literal["reset", "reboot"]


@dataclass(frozen=True, slots=True)
class Rules:
    """Seconds without a word from Kafka; None: never."""

    reset_after_s: float | None
    reboot_after_s: float | None

    @classmethod
    def of_hours(cls, reset_after_h: float | None, reboot_after_h: float | None) -> Rules:
        """As configured."""
        return cls(
            None if reset_after_h is None else reset_after_h * _HOUR_S,
            None if reboot_after_h is None else reboot_after_h * _HOUR_S,
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """One look: which boot, how long it lasts, and the daemon's word, None where it doesn't answer.

    ``confirmed_ago_s`` is None where Kafka never confirmed anything to this daemon.
    """

    boot: str
    boot_s: float
    answered: bool
    confirmed_ago_s: float | None = None


@dataclass(frozen=True, slots=True)
class State:
    """What is remembered between two looks, over reboots too. ``away_s``: the outage so far."""

    boot: str = ""
    boot_s: float = 0.0
    away_s: float = 0.0
    resets: int = 0
    reset_at_s: float = 0.0
    reboots: int = 0
    reboot_at_s: float = 0.0

    @classmethod
    def read(cls, fields: dict[str, Any]) -> State:
        """From JSON. Raises ValueError, TypeError."""
        state = cls(**fields)
        seconds: tuple[Any, ...] = (state.boot_s, state.away_s, state.reset_at_s, state.reboot_at_s)
        counts: tuple[Any, ...] = (state.resets, state.reboots)
        if not all(isinstance(each, int | float) and 0 <= each < float("inf") for each in seconds):
            raise ValueError("a number of seconds is none")
        if not all(isinstance(each, int) and each >= 0 for each in counts):
            raise ValueError("a count is none")
        return state


def look(state: State, seen: Seen, rules: Rules) -> tuple[State, Action | None]:
    """What is to be remembered, before anything is done, and what is to be done."""
    passed_s = seen.boot_s - state.boot_s if seen.boot == state.boot else seen.boot_s
    passed_s = max(passed_s, 0.0)
    now = replace(state, boot=seen.boot, boot_s=seen.boot_s)
    if not state.boot or not seen.answered:
        # The first look of all has nothing to compare with.
        return now, None
    away_s = state.away_s + passed_s
    ago_s = seen.confirmed_ago_s
    if ago_s is not None and (ago_s <= passed_s or ago_s < away_s - _SLACK_S):
        # Something came through since this outage began: it is over, another one may have begun.
        return State(seen.boot, seen.boot_s, away_s=ago_s), None
    now = replace(now, away_s=away_s)
    if _due(now.away_s, rules.reboot_after_s, now.reboots, now.reboot_at_s, _LONGEST_REBOOT_PAUSE_S):
        return replace(now, reboots=now.reboots + 1, reboot_at_s=now.away_s), "reboot"
    if _due(now.away_s, rules.reset_after_s, now.resets, now.reset_at_s, _LONGEST_RESET_PAUSE_S):
        return replace(now, resets=now.resets + 1, reset_at_s=now.away_s), "reset"
    return now, None


def _due(away_s: float, after_s: float | None, done: int, last_s: float, longest_s: float) -> bool:
    if after_s is None:
        return False
    if not done:
        return away_s >= after_s
    return away_s >= last_s + min(after_s * 2.0 ** min(done - 1, 30), max(after_s, longest_s))
