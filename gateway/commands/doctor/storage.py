"""The outbox, the disk it is on, and what the uplink will cost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from rich.filesize import decimal

from buffer.errors import OutboxError
from buffer.files import free_bytes, misowned_files
from buffer.reader import OutboxReader, files_of, user_of
from gateway.commands.doctor.findings import Finding
from gateway.config import Config
from gateway.forwarding import capacity

_FEW_DAYS: Final = 7.0
_MONTH_S: Final = 30 * 86_400

# TCP payload both ways for a reading, measured (docs/performance.md): live by readings a second, metered by
# readings a batch. Between the points by the logarithm.
_LIVE_BYTES: Final = ((2.0, 533.0), (12.0, 428.0))
_BATCH_BYTES: Final = ((12.0, 145.0), (60.0, 84.0), (720.0, 19.0))


def outbox(config: Config) -> Iterator[Finding]:
    """The outbox's files, who uses them, and how long they last without Kafka."""
    path = config.outbox.path
    directory = path.parent
    there = next(place for place in (directory, *directory.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        yield Finding(
            "outbox", "error", f"{there} can't be written by this user",
            f"make {directory}, writable for the daemon's user, or set outbox.path; or run this as that user",
        )  # fmt: skip
        return
    user = user_of(path)
    use = f"in use by process {user}" if user is not None else "not in use"
    if path.exists():
        if strange := misowned_files(path):
            found, _, command = strange.partition(": ")
            yield Finding("outbox", "error", f"{found}: the service can't write it", command)
        try:
            with OutboxReader(path) as reader:
                newest, oldest = reader.newest(), next(reader.blocks(), None)
        except OutboxError as error:
            yield Finding("outbox", "error", str(error), "the daemon recovers a damaged one at its start")
            return
        waiting = 0 if newest is None or oldest is None else newest.last - oldest.first + 1
        yield Finding("outbox", "ok", f"{path}: {waiting:,} records at most are waiting, {use}")
    else:
        yield Finding("outbox", "ok", f"{path}: not there yet, the daemon makes it")
    files = files_of(path)
    if files.aside:
        size = sum(files.aside.values())
        yield Finding(
            "outbox", "warning", f"{len(files.aside)} damaged files set aside, {size:,} bytes",
            "see gateway.events for what was lost; delete them when they are no longer needed: the daemon"
            " does so where readings need their room",
        )  # fmt: skip
    yield _capacity(config, files.total, free_bytes(there))


def _capacity(config: Config, used: int, free: int) -> Finding:
    limits = config.outbox
    if free <= limits.min_free_disk:
        found = f"{decimal(free)} free, outbox.min_free_disk is {decimal(limits.min_free_disk)}"
        remedy = (
            "free the disk, or lower outbox.min_free_disk: in an outage the oldest would be dropped at once"
        )
        return Finding("disk", "error", found, remedy)
    room = capacity.room_bytes(config, used, free)
    per_reading = capacity.bytes_per_reading(config)
    days = capacity.days(room, config, per_reading)
    if days == float("inf"):
        found = f"{decimal(free)} free; no sensors, so only other devices fill the outbox"
        return Finding("disk", "ok", found)
    room_text = f"{decimal(room)} of room, {per_reading:.0f} bytes a reading"
    found = f"holds {days:.1f} days without Kafka ({room_text})"
    if days < _FEW_DAYS:
        return Finding("disk", "warning", found, "a larger outbox.max_bytes, or a larger disk")
    if used + free - limits.min_free_disk < limits.max_bytes:
        found += f"; the disk has no room for outbox.max_bytes, {decimal(limits.max_bytes)}"
        return Finding("disk", "warning", found, "free the disk, or lower outbox.max_bytes")
    return Finding("disk", "ok", found)


def volume(config: Config) -> Finding:
    """Megabytes a month."""
    rate, readers = capacity.readings_per_s(config), capacity.reader_bytes(config)
    waiting = "".join(f"; {decimal(round(size))} to wait for {name}" for name, size in readers.items())
    if not rate:
        return Finding("volume", "ok", f"no sensors of its own{waiting}")
    metered = config.uplink.mode == "metered"
    points, at = (_BATCH_BYTES, rate * config.uplink.batch_s) if metered else (_LIVE_BYTES, rate)
    each = capacity.between(points, at)
    month = rate * each * _MONTH_S + sum(readers.values())
    how = f"batches of {config.uplink.batch_s:g} s" if metered else "live"
    found = f"about {decimal(round(month))} a month ({how}, {each:.0f} bytes a reading both ways{waiting})"
    return Finding("volume", "ok", found)
