"""``fieldgate calibrations``: which calibration was in force when, and what the config would change."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cloud.command_line import OK, CommandError, add_config, add_json
from cloud.terminal import plain_table
from cloud.wire.channel_records import ChannelRecord, Period, encode_channel
from cloud.wire.fields import format_time
from gateway.calibration.history import UnreadableHistory, channel_records, history_path, read_history
from gateway.config import load

State = Literal["ended", "in force", "until reload", "from reload"]

_WIDTH: Final = 400
_STYLES: Final[dict[State, str]] = {
    "ended": "bright_black",
    "in force": "green",
    "until reload": "yellow",
    "from reload": "yellow",
}


class Known(NamedTuple):
    """A record and how it stands: by the history alone, and by what the config has now."""

    record: ChannelRecord
    state: State


def standing(history: Iterable[ChannelRecord], configured: Iterable[ChannelRecord]) -> list[Known]:
    """All records, by channel and then in the order of their beginnings."""
    wanted = {(record.gateway, record.channel, record.cal): record for record in configured}
    known = []
    for record in history:
        state: State = "ended"
        if record.in_force:
            coming = wanted.pop((record.gateway, record.channel, record.cal), None)
            state = "until reload" if coming is None else "in force"
        known.append(Known(record, state))
    known += [Known(record, "from reload") for record in wanted.values()]
    return sorted(known, key=_place)


def _place(known: Known) -> tuple[str, str, bool, int]:
    record = known.record
    return record.gateway, record.channel, known.state == "from reload", record.valid_from_us or 0


def _table(known: Sequence[Known]) -> Table:
    figures = ("slope", "offset")
    table = plain_table(
        "channel", "cal", "state", "from", "to", "serial", *figures, "calibrated", "expires", right=figures
    )
    for record, last_state in known:
        for period in record.periods:
            state: State = last_state if period is record.periods[-1] else "ended"
            table.add_row(
                record.channel,
                record.cal,
                Text(state, style=_STYLES[state]),
                *_ends(period, state),
                record.serial or "",
                *("" if figure is None else f"{figure:g}" for figure in (record.slope, record.offset)),
                *("" if day is None else str(day) for day in (record.calibrated, record.expires)),
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
