"""What the address of a mast's page says, and the statistics it wants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cloud.dashboard.frame import address, end_ms, moment, time_ms
from cloud.errors import CloudError
from cloud.lake.mast import DAY_MS, MOST_CHANNELS, masts, read_mast
from cloud.lake.numbers import View
from cloud.lake.reader import LakeReader, Span

_LISTED: Final = 20


@dataclass(frozen=True)
class Request:
    """What the page's address says; empty texts and None are left to the page."""

    gateway: str
    channel: str | None = None
    begin: str | None = None
    end: str | None = None
    interval_s: int | None = None
    is_clean: bool = False

    def address(self, path: str, **other: object) -> str:
        """The same view at another path, or with other values."""
        query = {"channel": self.channel, "from_": self.begin, "to": self.end, "interval": self.interval_s,
                 "marks": "without" if self.is_clean else None}  # fmt: skip
        return address(path, **(query | other))


def open_view(reader: LakeReader, request: Request) -> View:
    """The statistics that an address asks for. Raises Missing, CloudError."""
    mast = read_mast(reader, request.gateway, most=MOST_CHANNELS, wanted=request.channel)
    channel = mast.named(request.channel)
    if channel is None:
        known = masts(reader)
        there = ", ".join(known[:_LISTED]) + (", …" if len(known) > _LISTED else "")
        raise CloudError(
            f"No statistics of {request.gateway} in the lake: fieldgate jobs run statistics makes them of "
            f"its readings, fieldgate import of other loggers' files. The lake has {there or 'no mast yet'}."
        )
    lengths = mast.intervals_s
    interval_s = next((each for each in (request.interval_s, 600) if each in lengths), lengths[0])
    end = min(end_ms(request.end) or mast.end_ms, mast.end_ms)
    asked = time_ms(request.begin)
    begin = end - 7 * DAY_MS if asked is None else asked
    if begin >= end:
        raise CloudError(f"Nothing from {moment(begin)} to {moment(end)}: the mast's statistics are from "
                         f"{moment(mast.begin_ms)} to {moment(mast.end_ms)}.")  # fmt: skip
    span = Span(request.gateway, interval_s, max(begin, mast.begin_ms), end, request.is_clean, mast.chosen)
    return View(mast, reader, span, channel)
