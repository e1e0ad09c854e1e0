"""Quality flags and reasons: which flag a reason leads to, and both in words for the installer. Pure.

Source: US IOOS QARTOD manuals (flags 1, 2, 3, 4, 9; roll-up: the worst flag wins, missing stands alone).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from cloud.wire.reading_records import FAIL, GOOD, MISSING, SUSPECT
from drivers.interface import Channel


class Reason(NamedTuple):
    """What a reason leads to, and means."""

    flag: int
    text: str


REASONS: Final[Mapping[str, Reason]] = {
    "UNDER_RANGE": Reason(FAIL, "below the range"),
    "OVER_RANGE": Reason(FAIL, "above the range"),
    "READ_ERROR": Reason(MISSING, "the sensor does not answer: check plug, wiring and supply"),
    "CHECKSUM": Reason(MISSING, "the answer was damaged on the wire: check the cable and its length"),
    "STUCK_VALUE": Reason(SUSPECT, "has not moved for too long"),
    "STEP_TOO_HIGH": Reason(SUSPECT, "jumped further than weather does"),
    "SPIKE": Reason(SUSPECT, "a single reading far from its neighbours"),
    "NOISY": Reason(SUSPECT, "the electrical signal can't be trusted: check plugs, pull-up and supply"),
    "PAIR_DISAGREES": Reason(SUSPECT, "differs from its twin"),
    "CALIBRATION_EXPIRED": Reason(SUSPECT, "the calibration has expired"),
    "WARMING_UP": Reason(SUSPECT, "warming up"),
    "DEAD_BAND": Reason(SUSPECT, "the vane points into its dead band: within some degrees of it"),
    "CLOCK_UNSYNCED": Reason(SUSPECT, "the time is not known"),
}
"""Those of the wire contract. Ranges are the sensor's own here; beyond the site's a value is suspect."""


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
