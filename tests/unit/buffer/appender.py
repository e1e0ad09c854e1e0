"""Appends to an outbox for ever; prints each last number once stored. Killed by tests."""

from __future__ import annotations

import sys
from pathlib import Path

from buffer.sqlite_outbox import SqliteOutbox


def main() -> None:
    path, batch = Path(sys.argv[1]), int(sys.argv[2])
    outbox = SqliteOutbox(path)
    earlier = outbox.peek(0, 1 << 30, 1 << 30)
    last = earlier[-1][0] if earlier else 0
    while True:
        numbers = outbox.append([b"record %d" % number for number in range(last + 1, last + batch + 1)])
        last = numbers[-1]
        sys.stdout.write(f"{last}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
