"""What a program that polls a DHT's data line sees of it, as Adafruit's bit-banging reader does."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

IDLE_US, RESPONSE_US, LOW_US, ZERO_US, ONE_US = 30, 80, 50, 27, 70
KEPT = 81


def bits_of(frame: bytes) -> list[int]:
    return [byte >> bit & 1 for byte in frame for bit in range(7, -1, -1)]


def level_changes(
    frame: bytes, low_us: int = LOW_US, zero_us: int = ZERO_US, one_us: int = ONE_US
) -> list[int]:
    """When the line changes, in µs from its release: 80 µs low, 80 µs high, the bits, the closing low."""
    durations = [IDLE_US, RESPONSE_US, RESPONSE_US]
    for bit in bits_of(frame):
        durations += [low_us, one_us if bit else zero_us]
    durations.append(low_us)
    changes, now = [], 0
    for duration in durations:
        now += duration
        changes.append(now)
    return changes


def polled(changes: Sequence[int], poll_us: int = 1, stalls: Iterable[tuple[int, int]] = ()) -> array[int]:
    """The last 81 durations that polls every ``poll_us`` find.

    In a stall (start, length in µs) the line isn't polled: a pulse within one goes unnoticed.
    """
    pauses = sorted(stalls)
    seen: list[int] = []
    level = 0  # changes seen so far, by parity
    now, position = 0, 0
    while now <= changes[-1] + 2 * poll_us:
        for start, length in pauses:
            if start <= now < start + length:
                now = start + length
        while position < len(changes) and changes[position] <= now:
            position += 1
        if position % 2 != level:
            level = position % 2
            seen.append(now)
        now += poll_us
    first = max(1, len(seen) - KEPT)
    return array("H", (min(seen[at] - seen[at - 1], 65535) for at in range(first, len(seen))))
