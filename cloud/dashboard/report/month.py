"""A month of a site's own time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cloud.errors import CloudError
from cloud.lake.mast import DAY_MS, utc_offset


@dataclass(frozen=True)
class Month:
    """A calendar month; local time is ``offset_min`` minutes ahead of UTC. Moments are milliseconds, UTC."""

    year: int
    month: int
    offset_min: int = 0

    @staticmethod
    def read(text: str) -> Month:
        """Reads a text such as 2026-11. Raises CloudError."""
        found = re.fullmatch(r"(\d{4})-(\d{2})", text, re.ASCII)
        if found is None or not (1970 < int(found[1]) < 9999 and 1 <= int(found[2]) <= 12):
            raise CloudError(f"--month {text[:40]} is no month such as 2026-11")
        return Month(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.year}-{self.month:02d}"

    @property
    def title(self) -> str:
        """Such as November 2026."""
        return f"{datetime(self.year, self.month, 1, tzinfo=UTC):%B %Y}"

    @property
    def begin_ms(self) -> int:
        """Its first moment."""
        return self._first_ms(self.year, self.month)

    @property
    def end_ms(self) -> int:
        """The next month's first moment."""
        return self._first_ms(self.year + self.month // 12, self.month % 12 + 1)

    @property
    def days(self) -> int:
        """How many it has."""
        return (self.end_ms - self.begin_ms) // DAY_MS

    @property
    def offset(self) -> str:
        """Such as UTC+05:45."""
        return f"UTC{utc_offset(self.offset_min)}"

    def local(self, moment_ms: int | None) -> str:
        """Local time by the minute; empty for none."""
        if moment_ms is None:
            return ""
        at = datetime.fromtimestamp(moment_ms // 1000, UTC) + timedelta(minutes=self.offset_min)
        return f"{at:%Y-%m-%d %H:%M}"

    def _first_ms(self, year: int, month: int) -> int:
        return int(datetime(year, month, 1, tzinfo=UTC).timestamp() * 1000) - 60_000 * self.offset_min


def intervals_in(begin_ms: int, end_ms: int, interval_s: int) -> int:
    """How many intervals begin in a time; they do at whole multiples of their length in UTC."""
    step = 1000 * interval_s
    return max(0, -(-end_ms // step) + -begin_ms // step)
