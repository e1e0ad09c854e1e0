"""``fieldgate outbox stats``: what waits in an outbox, beside a running daemon or without one."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from buffer.blocks import Block
from buffer.files import free_bytes
from buffer.reader import Files, OutboxReader, files_of, user_of
from cloud.command_line import OK
from cloud.terminal import ShowProgress, plain_table, progress_bar, wide_console
from cloud.wire.number_set import NumberSet
from cloud.wire.reading_records import InvalidReading, format_time, parse_reading
from gateway.config import Config
from gateway.forwarding import capacity
from gateway.forwarding.records import from_bytes, ranges

_RANGES_SHOWN: Final = 3


def collect(config: Config, progress: ShowProgress) -> dict[str, Any]:
    """What is found, reading it all once. Raises OutboxError.

    ``oldest`` and ``newest`` are event times (RFC 3339) of the first and the last block's readings,
    ``dropped`` counts records dropped for want of room since the file was made, ``days_left`` until the cap
    at this config's rate.
    """
    path = config.outbox.path
    with OutboxReader(path) as reader:
        records = blocks = 0
        first: Block | None = None
        seqs: defaultdict[tuple[str, str, str], NumberSet] = defaultdict(NumberSet)
        for block in reader.blocks():
            first = first or block
            blocks += 1
            records += block.count
            for each in ranges(block.summary):
                seqs[each.gateway, each.run, each.channel].add(each.first, each.last)
            progress(records)
        oldest = min(_times(reader, first), default=None)
        newest = max(_times(reader, reader.newest() if first else None), default=None)
        by_channel: Counter[str] = Counter()
        for (gateway, _, channel), numbers in seqs.items():
            by_channel[f"{gateway}/{channel}"] += len(numbers)
        files = files_of(path)
        room = capacity.room_bytes(config, files.total, free_bytes(path.parent)) - reader.database_bytes()
        days_left = capacity.days(max(room, 0), config, capacity.bytes_per_reading(config))
        return {
            "path": str(path),
            "used_by_pid": user_of(path),
            "records": records,
            "readings": by_channel.total(),
            "blocks": blocks,
            "damaged_blocks": reader.damaged,
            "oldest": None if oldest is None else format_time(oldest),
            "newest": None if newest is None else format_time(newest),
            "dropped": reader.dropped(),
            "files": asdict(files),
            "max_bytes": config.outbox.max_bytes,
            "days_left": None if days_left == float("inf") else round(days_left, 2),
            "by_channel": dict(sorted(by_channel.items())),
            "runs": [
                {"gateway": gateway, "run": run, "channel": channel, "ranges": list(numbers.spans())}
                for (gateway, run, channel), numbers in sorted(seqs.items())
            ],
        }


def _times(reader: OutboxReader, block: Block | None) -> list[int]:
    times = []
    for _, stored in reader.records_of(block) if block is not None else ():
        try:
            times.append(parse_reading(from_bytes(stored).value, unrepaired=True).time_us)
        except (InvalidReading, ValueError):
            continue
    return times


def run(config: Config, *, json_output: bool) -> int:
    """Print the statistics. Raises OutboxError."""
    with progress_bar("records read") as progress:
        stats = collect(config, progress)
    if json_output:
        print(json.dumps(stats, indent=2))
    else:
        _show(stats)
    return OK


def _show(stats: Mapping[str, Any]) -> None:
    console = wide_console(160)
    files = Files(**stats["files"])
    pid, dropped, days_left = (stats[key] for key in ("used_by_pid", "dropped", "days_left"))
    lines = {
        "outbox": f"{stats['path']} ({'not in use' if pid is None else f'in use by process {pid}'})",
        "records": f"{stats['records']:,}, of them {stats['readings']:,} readings, "
        f"in {stats['blocks']:,} blocks",
        "time": f"{stats['oldest'] or '–'} to {stats['newest'] or '–'}",
        "bytes": f"{files.total:,} of {stats['max_bytes']:,}: database {files.database:,}, log "
        f"{files.log + files.index:,}, ballast {files.ballast:,}",
        "days left": "–" if days_left is None else f"{days_left:,.1f} at this config's rate",
        "dropped": f"{'unknown' if dropped is None else f'{dropped:,}'} records so far for want of room",
    }
    if stats["damaged_blocks"]:
        lines["damaged"] = f"{stats['damaged_blocks']:,} blocks; the daemon announces what was in them"
    for name, size in files.aside.items():
        lines[f"beside it: {name}"] = f"{size:,} bytes"
    for name, text in lines.items():
        console.print(f"{name:<10} {text}", highlight=False, soft_wrap=True)
    if not stats["runs"]:
        return
    table = plain_table("gateway", "run", "channel", "readings", "seq", right=("readings",), wrapped=("seq",))
    for each in stats["runs"]:
        spans = each["ranges"]
        shown = ", ".join(f"{first}–{last}" for first, last in spans[:_RANGES_SHOWN])
        more = f" and {len(spans) - _RANGES_SHOWN} more ranges" if len(spans) > _RANGES_SHOWN else ""
        count = sum(last - first + 1 for first, last in spans)
        table.add_row(each["gateway"], each["run"], each["channel"], f"{count:,}", shown + more)
    console.print(table)
