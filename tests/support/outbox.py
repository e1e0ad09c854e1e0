"""What a gateway's outbox holds."""

from __future__ import annotations

from pathlib import Path

from buffer.reader import OutboxReader
from cloud.wire.reading_records import InvalidReading, parse_reading
from gateway.forwarding.record_codec import from_bytes

Identity = tuple[str, str, int]
"""Channel, run, seq of one gateway."""


def in_outbox(path: Path, gateway: str) -> set[Identity]:
    """Identities of a gateway's readings in the outbox, none where there is no file."""
    found: set[Identity] = set()
    if not path.exists():
        return found
    with OutboxReader(path) as reader:
        for _, stored in reader.records():
            try:
                reading = parse_reading(from_bytes(stored).value, unrepaired=True)
            except InvalidReading:
                # A run record or a dead letter.
                continue
            if reading.gateway == gateway:
                found.add((reading.channel, reading.run, reading.seq))
    return found
