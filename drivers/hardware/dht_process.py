"""Times a DHT's data line, in a process of its own: ``python -m drivers.dht_process D4``.

Adafruit's library polls the line for a quarter of a second without giving other threads a turn; in the daemon
that would delay every other sensor, and other threads would stretch the line's pulses. Here it is alone.

It says ``ready``, or ``error`` and why. Then each line it gets is a request, answered with ``edges`` and the
durations in µs, or ``error`` and why. It ends with its standard input: when the gateway closes it, or dies.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Any, Final

_LONGEST_REQUEST_S: Final = 5
"""A request takes 0.4 s. SIGALRM ends one that hangs, should nobody be left to end this process."""


def main(pin: str) -> int:
    """Answer requests until standard input ends; 1 where the line can't be opened."""
    # Libraries print on standard output; what they say belongs to the log.
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        sensor = _open(pin)
    except (ImportError, RuntimeError, NotImplementedError, AttributeError, OSError, ValueError) as error:
        _say(answers, f"error {error}")
        return 1
    _say(answers, "ready")
    gc.freeze()
    gc.disable()
    for _ in iter(sys.stdin.buffer.readline, b""):
        signal.alarm(_LONGEST_REQUEST_S)
        try:
            answer = "edges " + " ".join(map(str, sensor._get_pulses_bitbang()))
        except (RuntimeError, OSError, ValueError) as error:
            answer = f"error {error}"
        signal.alarm(0)
        _say(answers, answer)
        # Between requests: never while the line is timed.
        gc.collect()
    return 0


def _open(pin: str) -> Any:
    import adafruit_dht
    import board

    return adafruit_dht.DHT11(getattr(board, pin), use_pulseio=False)


def _say(answers: int, words: str) -> None:
    os.write(answers, b" ".join(words.encode().split()) + b"\n")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except BrokenPipeError:
        sys.exit(0)
