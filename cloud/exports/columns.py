"""What an export has: which columns, of which time, and how it is written when that is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cloud.lake.columns import meanings
from cloud.masts.mast import Channel, Mast, utc_offset

_FIGURES: Final = {
    "direction": ("avg", "sd", "count"), "accumulated": ("sum", "count"), "state": ("avg", "count"),
}  # fmt: skip
_OTHERS: Final = ("avg", "sd", "min", "max", "count")
_WIND: Final = ("avg", "sd", "min", "max", "gust", "count")


@dataclass(frozen=True)
class Column:
    """A channel's figure, named as the table's column; of readings ``value``."""

    channel: Channel
    figure: str

    @property
    def name(self) -> str:
        """In every file: ``CHANNEL_FIGURE``, of readings the channel's name."""
        return self.channel.name if self.figure == "value" else f"{self.channel.name}_{self.figure}"

    @property
    def unit(self) -> str:
        """Empty of numbers of samples."""
        if self.figure == "count":
            return ""
        return "1" if self.channel.kind == "state" and self.figure == "avg" else self.channel.unit

    @property
    def meaning(self) -> str:
        """In words."""
        return meanings()["readings" if self.figure == "value" else "statistics", self.figure][1]


@dataclass(frozen=True)
class Export:
    """What is written: milliseconds since 1970 from and to, exclusive; ``interval_s`` None is readings.

    ``clean`` is without what the cleaning log marks, ``every`` with values that aren't valid. Times are
    written ``offset_min`` minutes ahead of UTC.
    """

    mast: Mast
    columns: tuple[Column, ...]
    interval_s: int | None
    begin_ms: int
    end_ms: int
    offset_min: int = 0
    clean: bool = True
    every: bool = False

    @property
    def offset(self) -> str:
        """Such as UTC+05:45."""
        return f"UTC{utc_offset(self.offset_min)}"

    @property
    def time(self) -> str:
        """What the column of times has: the beginning of each row's period."""
        return "time" if self.interval_s is None else "interval_start"

    def moment(self, time_us: int) -> datetime:
        """As it is written, without a zone."""
        return datetime.fromtimestamp(0, UTC).replace(tzinfo=None) + timedelta(
            minutes=self.offset_min, microseconds=time_us
        )

    def stamp(self, time_us: int) -> str:
        """As text; all of a file are as long, or pandas takes them for words."""
        parts = "microseconds" if self.interval_s is None else "seconds"
        return self.moment(time_us).isoformat(" ", timespec=parts)


def columns_of(mast: Mast, *, readings: bool) -> tuple[Column, ...]:
    """A mast's columns: what the kind of each channel has."""
    return tuple(_columns(mast, readings=readings))


def _columns(mast: Mast, *, readings: bool) -> Iterator[Column]:
    for channel in mast.channels:
        linear = _WIND if channel.quantity == "wind_speed" else _OTHERS
        figures = ("value",) if readings else _FIGURES.get(channel.kind, linear)
        yield from (Column(channel, figure) for figure in figures)
