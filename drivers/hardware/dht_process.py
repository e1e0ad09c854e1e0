"""Times a DHT's data line, in a process of its own: ``python -P dht_process.py D4``.

Adafruit's library polls the line for a quarter of a second without releasing the interpreter lock; in the
daemon that would delay every other sensor, and other threads would stretch the line's pulses.

It writes ``ready``, or ``error`` and the reason. Then each line it reads is a request, answered with
``edges`` and the durations in µs, or ``error`` and the reason. It ends with its standard input: when the
gateway closes it, or dies.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Any, Final

_LONGEST_REQUEST_S: Final = 5
"""A request takes 0.4 s. SIGALRM ends one that hangs, for when the gateway has died."""


def main(pin: str) -> int:
    """Answer requests until standard input ends; 1 where the line can't be opened."""
    # Libraries print on standard output; their text belongs in the log.
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        sensor = _open(pin)
    except (ImportError, RuntimeError, NotImplementedError, AttributeError, OSError, ValueError) as error:
        _write(answers, f"error {error}")
        return 1
    _write(answers, "ready")
    gc.freeze()
    gc.disable()
    for _ in iter(sys.stdin.buffer.readline, b""):
        signal.alarm(_LONGEST_REQUEST_S)
        try:
            answer = "edges " + " ".join(map(str, sensor._get_pulses_bitbang()))
        except (RuntimeError, OSError, ValueError) as error:
            answer = f"error {error}"
        signal.alarm(0)
        _write(answers, answer)
        # Between requests: never while the line is timed.
        gc.collect()
    return 0


def _open(pin: str) -> Any:
    import adafruit_dht
    import board

    return adafruit_dht.DHT11(getattr(board, pin), use_pulseio=False)


def _write(answers: int, text: str) -> None:
    os.write(answers, b" ".join(text.encode().split()) + b"\n")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except ConnectionError:
        sys.exit(0)
