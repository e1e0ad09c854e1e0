"""QARTOD flags from reasons. Pure.

Source: US IOOS QARTOD manuals (flags 1, 2, 3, 4, 9; roll-up: the worst flag wins, missing stands alone).
"""

from __future__ import annotations

from collections.abc import Iterable

from cloud.wire.reading_records import FAIL, GOOD, SUSPECT
from drivers.interface import Channel
from gateway.quality.reasons import REASONS


def worst_flag(reasons: Iterable[str]) -> int:
    """The flag of a value that is there, by its reasons: at most fail, good without any.

    A reason that isn't of the wire contract (a driver's own) makes it suspect.
    """
    flags = (REASONS[reason].flag if reason in REASONS else SUSPECT for reason in reasons)
    return max((min(each, FAIL) for each in flags), default=GOOD)


def range_reasons(value: float, channel: Channel) -> tuple[str, ...]:
    """Gross range test against the sensor's range, in the channel's unit."""
    if value < channel.lower:
        return ("UNDER_RANGE",)
    if value > channel.upper:
        return ("OVER_RANGE",)
    return ()
