"""``fieldgate calibrations``: which calibration was in force when, and what the config would change."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cloud.wire.channel_records import ChannelRecord, Period, encode_channel
from cloud.wire.fields import format_time
from gateway.calibration.history import UnreadableHistory, channel_records, history_path, read_history
from gateway.commands.arguments import OK, CommandError, add_config, add_json
from gateway.commands.tables import plain_table
from gateway.config import load

State = Literal["ended", "in force", "until reload", "from reload"]

_WIDTH: Final = 400
_STYLES: Final[dict[State, str]] = {
    "ended": "bright_black",
    "in force": "green",
    "until reload": "yellow",
    "from reload": "yellow",
}


@dataclass(frozen=True, slots=True)
class Known:
    """A record and how it stands: by the history alone, and by what the config has now."""

    record: ChannelRecord
    state: State


def standing(history: Iterable[ChannelRecord], configured: Iterable[ChannelRecord]) -> list[Known]:
    """All records, by channel and then in the order of their beginnings."""
    wanted = {(record.gateway, record.channel, record.cal): record for record in configured}
    known = []
    for record in history:
        coming = wanted.get((record.gateway, record.channel, record.cal))
        if record.in_force:
            wanted.pop((record.gateway, record.channel, record.cal), None)
            known.append(Known(record, "in force" if coming is not None else "until reload"))
        else:
            known.append(Known(record, "ended"))
    known += [Known(record, "from reload") for record in wanted.values()]
    return sorted(known, key=lambda each: (each.record.gateway, each.record.channel, _place(each)))


def _place(known: Known) -> tuple[bool, int]:
    return known.state == "from reload", known.record.valid_from_us or 0


def _table(known: Sequence[Known]) -> Table:
    figures = ("slope", "offset")
    table = plain_table(
        "channel", "cal", "state", "from", "to", "serial", *figures, "calibrated", "expires", right=figures
    )
    for each in known:
        record = each.record
        last = len(record.periods) - 1
        for number, period in enumerate(record.periods):
            state: State = each.state if number == last else "ended"
            table.add_row(
                record.channel,
                record.cal,
                Text(state, style=_STYLES[state]),
                *_ends(period, state),
                record.serial or "",
                "" if record.slope is None else f"{record.slope:g}",
                "" if record.offset is None else f"{record.offset:g}",
                "" if record.calibrated is None else str(record.calibrated),
                "" if record.expires is None else str(record.expires),
            )
    return table


def _ends(period: Period, state: State) -> tuple[str, str]:
    if state == "from reload":
        return "", ""
    begin = "unknown" if period.begin_us is None else _minute(period.begin_us)
    if period.end_us is not None:
        return begin, _minute(period.end_us)
    return begin, "unknown" if state == "ended" else ""


def _minute(time_us: int) -> str:
    return format_time(time_us)[:16].replace("T", " ") + "Z"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The config."""
    add_config(parser)
    add_json(parser, "the records as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the history beside a config's outbox. Raises ConfigError, CommandError."""
    config = load(arguments.config)
    place = history_path(config)
    try:
        known = standing(read_history(place), channel_records(config))
    except UnreadableHistory as error:
        raise CommandError(f"{error}; the daemon sets it aside at its next start") from error
    if arguments.json:
        answer: list[dict[str, Any]] = [
            {**json.loads(encode_channel(each.record)), "state": each.state} for each in known
        ]
        print(json.dumps(answer, indent=2))
        return OK
    if not place.exists():
        print(f"no history yet: the daemon writes {place} when it starts")
    # A narrow terminal breaks the lines; figures that are cut off would be of no use.
    Console(width=_WIDTH).print(_table(known))
    return OK
