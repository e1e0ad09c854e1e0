"""QARTOD flags from reasons. Pure.

Source: US IOOS QARTOD manuals (flags 1, 2, 3, 4, 9; roll-up: the worst flag wins, missing stands alone).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cloud.wire.reading_records import FAIL, GOOD, MISSING, SUSPECT
from drivers.interface import Channel

REASON_FLAGS: Final[Mapping[str, int]] = {
    "UNDER_RANGE": FAIL,
    "OVER_RANGE": FAIL,
    "READ_ERROR": MISSING,
    "CHECKSUM": MISSING,
    "STUCK_VALUE": SUSPECT,
    "STEP_TOO_HIGH": SUSPECT,
    "SPIKE": SUSPECT,
    "NOISY": SUSPECT,
    "PAIR_DISAGREES": SUSPECT,
    "CALIBRATION_EXPIRED": SUSPECT,
    "WARMING_UP": SUSPECT,
    "CLOCK_UNSYNCED": SUSPECT,
}
"""The flag each reason leads to. Ranges are the sensor's own here; beyond the site's a value is suspect."""


def worst_flag(reasons: Iterable[str]) -> int:
    """The flag of a value that is there, by its reasons: at most fail, good without any.

    A reason that isn't of the wire contract (a driver's own) makes it suspect.
    """
    flags = (REASON_FLAGS.get(reason, SUSPECT) for reason in reasons)
    return max((min(each, FAIL) for each in flags), default=GOOD)


def range_reasons(value: float, channel: Channel) -> tuple[str, ...]:
    """Gross range test against the sensor's range, in the channel's unit."""
    if value < channel.lower:
        return ("UNDER_RANGE",)
    if value > channel.upper:
        return ("OVER_RANGE",)
    return ()
