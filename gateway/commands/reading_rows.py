"""Shows readings to people: one row for each channel, from a daemon's status or from a sensor itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cloud.terminal import age_text, clock_text, plain_table, quality_text
from cloud.wire.reading_records import FAIL, MISSING, Reading
from drivers.registry import driver_type
from gateway.config import SensorConfig
from gateway.quality.qartod import REASONS
from gateway.status.status import Channel, OwnChannel, Status

_NARROW: Final = 80


@dataclass(frozen=True, slots=True)
class Row:
    """Holds one channel's reading. ``trouble`` is the driver's message where there is no value."""

    sensor: str
    channel: str
    time: str | None
    value: float | None
    unit: str
    raw: float | None
    raw_unit: str | None
    quality: int
    reasons: tuple[str, ...]
    seq: int
    trouble: str | None = None
    due_s: float | None = None
    """The seconds within which a sensor without a reading will have one, at the latest."""

    @classmethod
    def of(cls, sensor: str, channel: str, last: Channel, trouble: str | None) -> Row:
        """Makes a row from a channel's last reading."""
        return cls(
            sensor, channel, last.time, last.value, last.unit, last.raw, last.raw_unit, last.quality,
            last.reasons, last.seq, trouble if last.value is None else None,
        )  # fmt: skip

    @property
    def failed(self) -> bool:
        """Returns True for a value that is missing though due, or that can't be right."""
        return self.quality in (MISSING, FAIL) and not self.pending

    @property
    def pending(self) -> bool:
        """Returns True while the first reading isn't due yet."""
        return self.due_s is not None

    @property
    def words(self) -> str:
        """Returns the reasons of its quality; the driver's message last."""
        return "; ".join(filter(None, (*map(reason_words, self.reasons), self.trouble)))

    def as_json(self) -> dict[str, Any]:
        """Returns all of it, for programs."""
        return {**asdict(self), "words": self.words}


def reason_words(reason: str) -> str:
    """Returns a reason of the wire contract in words for people."""
    return REASONS[reason].text if reason in REASONS else reason


def row_of_reading(reading: Reading, sensor: str, trouble: str | None) -> Row:
    """Makes the row of a reading, with the driver's message where it has no value."""
    return Row.of(sensor, reading.channel, Channel.of(reading), trouble)


def row_without_reading(sensor: str, trouble: str | None, due_s: float | None = None) -> Row:
    """Makes the row of a sensor without a reading, and why."""
    return Row(sensor, sensor, None, None, "", None, None, MISSING, (), 0, trouble, due_s)


def rows_of_status(status: Status, sensors: Sequence[SensorConfig]) -> list[Row]:
    """Returns the daemon's last readings; a sensor without one has one row, which states when it is due."""
    channels, troubles = status.channels, status.troubles
    rows = []
    for sensor in sensors:
        own = [name for name in channels if name.rsplit(".", 1)[0] == sensor.name]
        trouble = troubles.get(sensor.name)
        if not own:
            rows.append(_no_reading_yet(sensor, status, trouble))
        rows += [Row.of(sensor.name, name, channels[name], trouble) for name in own]
    return rows


def _no_reading_yet(sensor: SensorConfig, status: Status, trouble: str | None) -> Row:
    # A first period on the grid may begin a whole interval after the start, and what is counted ends another
    # one later; the read takes its time, too.
    longest_s = 2 * sensor.interval_s + driver_type(sensor.driver).longest_read_s
    due_s = max(longest_s - _config_age_s(status), 0.0)
    if due_s > 0:
        words = f"no reading yet, due within {due_s:.0f} s" if due_s >= 1 else "no reading yet, due now"
        return row_without_reading(sensor.name, "; ".join(filter(None, (words, trouble))), round(due_s, 1))
    words = "no reading, though it is due: reload the daemon if the sensor is new in the config"
    return row_without_reading(sensor.name, "; ".join(filter(None, (trouble, words))))


def _config_age_s(status: Status) -> float:
    """Returns how long the daemon has had its config, by the clock of the machine that both run on."""
    loaded_s = (datetime.now(UTC) - datetime.fromisoformat(status.config.loaded_at)).total_seconds()
    # A clock that was set since makes the difference meaningless.
    return min(status.uptime_s, loaded_s) if loaded_s >= 0 else status.uptime_s


def number_text(value: float | None, unit: str | None) -> str:
    """Formats a figure for people, a small one with three digits."""
    if value is None:
        return "–"
    digits = f"{value:.3f}" if value == 0 or abs(value) >= 0.1 else f"{value:.3g}"
    return f"{digits} {unit or ''}".rstrip()


def line(row: Row) -> Text:
    """Formats a reading on one line."""
    raw, value = number_text(row.raw, row.raw_unit), number_text(row.value, row.unit)
    text = Text(f"{clock_text(row.time)} {row.channel}  {raw}  {value}  ")
    text.append_text(_quality(row))
    return text.append(f"  {row.words}" if row.words else "")


def print_rows(rows: Sequence[Row], console: Console, now: datetime | None) -> None:
    """Prints a table, or a few lines for each channel on a narrow terminal; ages against ``now`` if given.

    A driver's message is text as it stands: ``[board]`` in it is no markup.
    """
    if console.width < _NARROW:
        for row in rows:
            raw, value = number_text(row.raw, row.raw_unit), number_text(row.value, row.unit)
            ago = f"  {age_text(row.time, now)} ago" if now is not None else ""
            console.print(Text(f"{row.channel}  ", style="bold").append_text(_quality(row)))
            console.print(f"  {value}  (raw {raw}){ago}")
            if row.words:
                console.print(Text(f"  {row.words}"))
        return
    age = [] if now is None else ["age"]
    columns = ("channel", "raw", "value", "quality", *age, "reason")
    table = plain_table(*columns, right=("raw", "value", "age"), wrapped=("reason",))
    for row in rows:
        raw, value = number_text(row.raw, row.raw_unit), number_text(row.value, row.unit)
        ages = [] if now is None else [age_text(row.time, now)]
        table.add_row(row.channel, raw, value, _quality(row), *ages, Text(row.words))
    console.print(table)


def channel_table(status: Status, now: datetime | None = None, most: int | None = None) -> Table:
    """Returns the last reading of each channel, those of other devices last; at most so many rows.

    ``age`` is against ``now``, left out where that is None: replayed time.
    """
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("channel", no_wrap=True, ratio=3)
    table.add_column("value", justify="right", no_wrap=True)
    for name in ("unit", "quality", "time"):
        table.add_column(name, no_wrap=True)
    if now is not None:
        table.add_column("age", justify="right", no_wrap=True)
    table.add_column("reasons", no_wrap=True, ratio=2, overflow="ellipsis")
    channels: Iterable[tuple[str, Channel]] = chain(
        sorted(status.channels.items()), sorted(status.forwarded_channels.items())
    )
    for name, last in islice(channels, most):
        cells: list[str | Text] = [
            name,
            "–" if last.value is None else f"{last.value:.3f}",
            last.unit,
            quality_text(last.quality),
            clock_text(last.time),
        ]
        if now is not None:
            cells.append(age_text(last.time, now))
        source = () if isinstance(last, OwnChannel) else ("forwarded",)
        table.add_row(*cells, " ".join((*source, *last.reasons)))
    return table


def _quality(row: Row) -> Text:
    return Text("–") if row.pending else quality_text(row.quality)
