"""``python -m gateway.capacity_process``: what a reading takes in the outbox, in a process of its own.

A config comes on standard input as the daemon's own pickle of it; the bytes a reading takes go to standard
output. In the daemon itself the measurement would hold the interpreter's lock for a second or two of a small
processor, and leave what it imports in memory for a year (60 MB where pandas is installed).
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Final

from gateway.config import Config
from gateway.forwarding import capacity

_PATIENCE_S: Final = 300
"""A Pi that samples takes seconds."""


def bytes_per_reading(config: Config) -> float:
    """``capacity.bytes_per_reading``, measured by a child. Raises OSError where there is no answer."""
    # It finds what this process found, drivers of others among it.
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-m", __name__],
            input=pickle.dumps(config),
            capture_output=True,
            timeout=_PATIENCE_S,
            env=paths,
            check=True,
            start_new_session=True,  # Ctrl-C is the gateway's
        )
        return float(child.stdout)
    except subprocess.CalledProcessError as error:
        told = error.stderr.decode(errors="replace").strip().splitlines() or ["no word"]
        raise OSError(f"the measurement ended with {error.returncode}: {told[-1]}") from error
    except subprocess.TimeoutExpired as error:
        raise OSError(f"the measurement took more than {_PATIENCE_S} s") from error


if __name__ == "__main__":
    # From the daemon that started this process, and from nobody else.
    print(capacity.bytes_per_reading(pickle.load(sys.stdin.buffer)))  # noqa: S301, T201
