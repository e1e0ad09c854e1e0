"""How loggers write times: each text of a format has one meaning, or none."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cloud.importing.times import reader


@pytest.mark.parametrize(
    ("how", "text", "wanted"),
    [
        ("%Y-%m-%d %H%M", "2024-03-01 100", "2024-03-01 01:00"),
        ("%Y-%m-%d %H%M", "2024-03-01 0", "2024-03-01 00:00"),
        ("%Y-%m-%d %H%M%S", "2024-03-01 10000", "2024-03-01 01:00"),
        ("%Y-%m-%d %H%M", "2024-02-29 2400", "2024-03-01 00:00"),
        ("%Y %j %H%M", "2024 366 2400", "2025-01-01 00:00"),
        ("%d/%m/%Y %H:%M:%S", "31/12/2023 24:00:00", "2024-01-01 00:00"),
        ("%Y%m%d%H%M", "202403010100", "2024-03-01 01:00"),
        ("%m/%d/%y %I:%M %p", "3/1/24 12:00 AM", "2024-03-01 00:00"),
        ("%m/%d/%y %I:%M %p", "3/1/24 1:00 pm", "2024-03-01 13:00"),
        ("%d-%b-%Y %H:%M", "01-Mar-2024 01:00", "2024-03-01 01:00"),
        ("%Y-%m-%d %H:%M:%S.%f", "2024-03-01 01:00:00.0", "2024-03-01 01:00"),
        ("%Y-%m-%dT%H:%M%z", "2024-03-01T02:00+0100", "2024-03-01 01:00"),
        (None, "2024-02-29 24:00", "2024-03-01 00:00"),
        (None, "2024-02-29T24:00:00", "2024-03-01 00:00"),
    ],
)
def test_a_time_has_one_meaning(how: str | None, text: str, wanted: str) -> None:
    found = reader(how)(text)
    in_utc = found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    assert in_utc == datetime.fromisoformat(f"{wanted}+00:00")


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("%Y%m%d%H%M", "20243010100"),
        ("%Y-%m-%d %H.%M", "2024-03-01 1.3"),
        ("%Y-%m-%d %H%M", "2024-03-01 2430"),
        ("%Y %j", "2023 366"),
        ("%Y %j", "2024 0"),
        ("%m/%d/%y %I:%M %p", "3/1/24 13:00 PM"),
        (None, "2024-02-29 24:10"),
    ],
)
def test_what_may_mean_two_times_is_none(how: str | None, text: str) -> None:
    parse = reader(how)
    with pytest.raises(ValueError, match=r"."):
        parse(text)


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("%Y-%m-%d %H:%M %p", "has %p, which is of hours up to 12: write %I in place of %H, or leave %p out"),
        ("%Y-%m-%d %I:%M", "has %I, hours up to 12, without %p: write %H where they go up to 23 or 24"),
        ("%Y-%m-%d %Q", "has %Q, which is none of %m %d %H"),
        ("%-d.%m.%Y", "has %-, which is none of"),
        ("%Y-%m-%d %", "has %, which is none of"),
        ("%d.%m. %H:%M", "has no year"),
        ("%Y-%m %H:%M", "has no day of the year"),
        ("%Y-%m-%d %H:%M:%M", "has %M twice"),
        ("%Y-%j-%d", "says one thing twice"),
        ("%Y-%m-%d %H:%M:%S%f", "write %S.%f"),
        ("%Y-%m-%d :%M", "without the hour"),
    ],
)
def test_a_format_with_two_meanings_is_refused_with_what_to_write(how: str, wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        reader(how)
