"""The record of a mast's site: what is written comes back, and nothing is guessed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from cloud.wire.fields import InvalidFields
from cloud.wire.site_records import SITES_TOPIC, SiteRecord, encode_site, parse_site
from spark_jobs.platform.settings import TOPIC_PATTERN

RECORD = SiteRecord(
    gateway="mast-07",
    valid_from_us=1_774_000_800_000_000,
    revision=7,
    latitude=27.7,
    longitude=85.5,
    elevation_m=2100.0,
    utc_offset_min=345,
    name="Ridge",
    owner="Wind & Söhne",
)


def test_a_record_on_the_wire() -> None:
    assert json.loads(encode_site(RECORD)) == {
        "v": 1, "gateway": "mast-07", "valid_from": "2026-03-20T10:00:00.000Z", "revision": 7,
        "name": "Ridge", "owner": "Wind & Söhne", "latitude": 27.7, "longitude": 85.5,
        "elevation_m": 2100.0, "utc_offset_min": 345,
    }  # fmt: skip
    assert RECORD.key == b"mast-07/2026-03-20T10:00:00.000Z"


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        replace(RECORD, extra={"later": [1, {"a": None}]}),
        replace(RECORD, elevation_m=None, utc_offset_min=None, name=None, owner=None),
    ],
)
def test_what_is_written_comes_back(record: SiteRecord) -> None:
    assert parse_site(encode_site(record)) == record


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"latitude": 90.1}, "OUT_OF_RANGE"),
        ({"longitude": None}, "MISSING_FIELD"),
        ({"utc_offset_min": 900}, "OUT_OF_RANGE"),
        ({"utc_offset_min": "+05:45"}, "WRONG_TYPE"),
        ({"valid_from": "2026-03-20"}, "BAD_TIME"),
        ({"valid_from": None}, "MISSING_FIELD"),
        ({"revision": 0}, "OUT_OF_RANGE"),
        ({"gateway": "Mast 07"}, "BAD_NAME"),
        ({"name": "a\nb"}, "BAD_NAME"),
        ({"owner": "x" * 129}, "BAD_NAME"),
        ({"v": 2}, "OUT_OF_RANGE"),
    ],
)
def test_what_is_no_record_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidFields) as refused:
        parse_site(json.dumps(json.loads(encode_site(RECORD)) | change).encode())
    assert refused.value.reason == reason


def test_readers_of_readings_never_see_the_topic() -> None:
    """An old pipeline has the same pattern, and names the topics of other records."""
    assert re.fullmatch(TOPIC_PATTERN, SITES_TOPIC) is None
