"""Readings for people: one row for each channel, from a running daemon's status or from a sensor itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cloud.terminal import age_text, clock_text, plain_table, quality_text
from cloud.wire.reading_records import FAIL, MISSING, Reading
from drivers.registry import driver_type
from gateway.config import SensorConfig
from gateway.quality.qartod import REASONS
from gateway.sampling.last_readings import reading_fields

_NARROW: Final = 80


@dataclass(frozen=True, slots=True)
class Row:
    """One channel's reading. ``trouble`` is the driver's message where there is no value."""

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
    def of(cls, sensor: str, channel: str, fields: Mapping[str, Any], trouble: str | None) -> Row:
        """Makes a row from a channel's fields in the daemon's status."""
        return cls(
            sensor, channel, fields.get("time"), fields.get("value"), str(fields.get("unit") or ""),
            fields.get("raw"), fields.get("raw_unit"), int(fields.get("quality", MISSING)),
            tuple(fields.get("reasons") or ()), int(fields.get("seq", 0)),
            trouble if fields.get("value") is None else None,
        )  # fmt: skip

    @property
    def failed(self) -> bool:
        """True where there is no value that is due, or one that can't be right."""
        return self.quality in (MISSING, FAIL) and not self.pending

    @property
    def pending(self) -> bool:
        """True where the first reading isn't due yet."""
        return self.due_s is not None

    @property
    def words(self) -> str:
        """The reasons of its quality; the driver's message last."""
        return "; ".join(filter(None, (*map(reason_words, self.reasons), self.trouble)))

    def as_json(self) -> dict[str, Any]:
        """All of it, for programs."""
        return {**asdict(self), "words": self.words}


def reason_words(reason: str) -> str:
    """A reason of the wire contract, for people."""
    return REASONS[reason].text if reason in REASONS else reason


def row_of_reading(reading: Reading, sensor: str, trouble: str | None) -> Row:
    """A reading, with the driver's message where it has no value."""
    return Row.of(sensor, reading.channel, reading_fields(reading), trouble)


def row_without_reading(sensor: str, trouble: str | None, due_s: float | None = None) -> Row:
    """A sensor of which there is no reading, and why."""
    return Row(sensor, sensor, None, None, "", None, None, MISSING, (), 0, trouble, due_s)


def rows_of_status(status: Mapping[str, Any], sensors: Sequence[SensorConfig]) -> list[Row]:
    """The daemon's last readings; a sensor that has none yet has one row that gives the time it is due."""
    channels, troubles = status.get("channels") or {}, status.get("troubles") or {}
    rows = []
    for sensor in sensors:
        own = [name for name in channels if name.rsplit(".", 1)[0] == sensor.name]
        trouble = troubles.get(sensor.name)
        if not own:
            rows.append(_no_reading_yet(sensor, status, trouble))
        rows += [Row.of(sensor.name, name, channels[name], trouble) for name in own]
    return rows


def _no_reading_yet(sensor: SensorConfig, status: Mapping[str, Any], trouble: str | None) -> Row:
    # A first period on the grid may begin a whole interval after the start, and what is counted ends another
    # one later; the read takes its time, too.
    longest_s = 2 * sensor.interval_s + driver_type(sensor.driver).longest_read_s
    due_s = max(longest_s - _config_age_s(status), 0.0)
    if due_s > 0:
        words = f"no reading yet, due within {due_s:.0f} s" if due_s >= 1 else "no reading yet, due now"
        return row_without_reading(sensor.name, "; ".join(filter(None, (words, trouble))), round(due_s, 1))
    words = "no reading, though it is due: reload the daemon if the sensor is new in the config"
    return row_without_reading(sensor.name, "; ".join(filter(None, (trouble, words))))


def _config_age_s(status: Mapping[str, Any]) -> float:
    """How long the daemon has had its config, by the clock of the machine that both run on."""
    uptime_s = float(status.get("uptime_s") or 0.0)
    loaded_at = (status.get("config") or {}).get("loaded_at")
    if not isinstance(loaded_at, str):
        return uptime_s
    loaded_s = (datetime.now(UTC) - datetime.fromisoformat(loaded_at)).total_seconds()
    # A clock that was set since makes the difference meaningless.
    return min(uptime_s, loaded_s) if loaded_s >= 0 else uptime_s


def number_text(value: float | None, unit: str | None) -> str:
    """A figure for people, small ones with three digits."""
    if value is None:
        return "–"
    digits = f"{value:.3f}" if value == 0 or abs(value) >= 0.1 else f"{value:.3g}"
    return f"{digits} {unit or ''}".rstrip()


def line(row: Row) -> Text:
    """A reading on one line."""
    raw, value = number_text(row.raw, row.raw_unit), number_text(row.value, row.unit)
    text = Text(f"{clock_text(row.time)} {row.channel}  {raw}  {value}  ")
    text.append_text(_quality(row))
    return text.append(f"  {row.words}" if row.words else "")


def print_rows(rows: Sequence[Row], console: Console, now: datetime | None) -> None:
    """A table, or on a narrow terminal a few lines for each channel; ages against ``now`` where it is given.

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


def channels_of(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The last readings in a daemon's status by channel: its sensors', then those it forwards."""
    own, forwarded = status.get("channels") or {}, status.get("forwarded_channels") or {}
    return dict([*sorted(own.items()), *sorted(forwarded.items())])


def channel_table(channels: Mapping[str, Mapping[str, Any]], now: datetime | None = None) -> Table:
    """Each channel's last reading; ``age`` against ``now``, left out where that is None (replayed time)."""
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("channel", no_wrap=True, ratio=3)
    table.add_column("value", justify="right", no_wrap=True)
    for name in ("unit", "quality", "time"):
        table.add_column(name, no_wrap=True)
    if now is not None:
        table.add_column("age", justify="right", no_wrap=True)
    table.add_column("reasons", no_wrap=True, ratio=2, overflow="ellipsis")
    for name, last in channels.items():
        value, time = last.get("value"), last.get("time")
        cells: list[str | Text] = [
            name,
            "–" if value is None else f"{value:.3f}",
            str(last.get("unit") or ""),
            quality_text(last.get("quality", 2)),
            clock_text(time),
        ]
        if now is not None:
            cells.append(age_text(time, now))
        source = () if last.get("source") is None else (last["source"],)
        table.add_row(*cells, " ".join((*source, *(last.get("reasons") or ()))))
    return table


def _quality(row: Row) -> Text:
    return Text("–") if row.pending else quality_text(row.quality)
