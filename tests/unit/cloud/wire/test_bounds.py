"""Numbers beyond all bounds are refused wherever they stand; on the bounds they are taken."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from cloud.wire.bounds import MAX_COUNT, MAX_NUMBER
from cloud.wire.channel_records import parse_channel
from cloud.wire.fields import InvalidFields
from cloud.wire.reading_records import parse_dead_letter, parse_reading
from cloud.wire.run_records import RunRecord
from cloud.wire.site_records import parse_site
from cloud.wire.status_records import parse_status

READING = {
    "v": 1, "gateway": "m", "channel": "cup.wind_speed", "quantity": "wind_speed", "unit": "m/s",
    "time": "2026-05-28T20:27:00.000Z", "period_ms": 1000, "value": 7.2, "raw": 9.0, "raw_unit": "Hz",
    "quality": 1, "reasons": [], "run": "r1", "seq": 1, "clock": "synced", "cal": "5d1c0a7e",
}  # fmt: skip
CHANNEL = {
    "v": 1, "gateway": "m", "channel": "cup.wind_speed", "cal": "5d1c0a7e", "revision": 1, "in_force": True,
    "valid_from": None, "valid_to": None, "periods": [[None, None]], "sensor": "cup",
    "quantity": "wind_speed", "unit": "m/s", "kind": "linear", "driver": "hall-anemometer", "interval_s": 1.0,
    "range": [0.0, 75.0],
}  # fmt: skip
RUN = {"gateway": "m", "run": "r1", "state": "running", "last_seq": {"cup.wind_speed": 20}}
SITE = {
    "v": 1, "gateway": "m", "valid_from": "2026-05-28T20:27:00Z", "revision": 1,
    "latitude": 1, "longitude": 2,
}  # fmt: skip
STATUS = {"v": 1, "gateway": "m", "state": "online", "run": "r1"}
LETTER = {
    "v": 1, "gateway": "m", "reason": "NOT_JSON", "detail": "", "source": "", "payload": "", "sha256": "",
    "received_at": "2026-05-28T20:27:00Z", "payload_bytes": 1, "run": "r1", "seq": 1,
}  # fmt: skip


def dropped(text: str, count: int = 1) -> list[dict[str, Any]]:
    return [{"reason": "OUTBOX_FULL", "count": count, "ranges": [text]}]


@pytest.mark.parametrize(
    ("parse", "given", "beyond", "within"),
    [
        (parse_reading, READING, {"value": 1.1e24}, {"value": MAX_NUMBER}),
        (parse_reading, READING, {"raw": -1.7e308}, {"raw": -MAX_NUMBER}),
        (parse_reading, READING, {"seq": MAX_COUNT + 1}, {"seq": MAX_COUNT}),
        (parse_reading, READING, {"seq": (1 << 63) - 1}, {"seq": 1}),
        (parse_reading, READING, {"period_ms": 1 << 31}, {"period_ms": (1 << 31) - 1}),
        (parse_reading, READING, {"altitude_m": 1e9}, {"altitude_m": 8848.0}),
        (parse_reading, READING, {"clock": "unsynced", "boot": "b", "mono_ms": 1 << 53},
         {"clock": "unsynced", "boot": "b", "mono_ms": 1 << 40}),
        (parse_channel, CHANNEL, {"interval_s": 3e6}, {"interval_s": 86_400}),
        (parse_channel, CHANNEL, {"interval_s": 1e-300}, {"interval_s": 0.001}),
        (parse_channel, CHANNEL, {"height_m": 1e200}, {"height_m": 100.0}),
        (parse_channel, CHANNEL, {"boom_deg": 1e200}, {"boom_deg": 360.0}),
        (parse_channel, CHANNEL, {"slope": 1e200}, {"slope": 0.765}),
        (parse_channel, CHANNEL, {"range": [0.0, 1e200]}, {"range": [0.0, 1e9]}),
        (parse_channel, CHANNEL, {"accuracy": 1e200}, {"accuracy": 0.1}),
        (parse_channel, CHANNEL, {"settings": {"n": 1e200}}, {"settings": {"n": 4_294_967_295}}),
        (parse_channel, CHANNEL, {"reported": {"n": 1 << 100}}, {"reported": {"serial": 1 << 60}}),
        (parse_channel, CHANNEL, {"expires": "0001-01-01"}, {"expires": "2099-12-31"}),
        (RunRecord.from_json, RUN, {"last_seq": {"a.b": (1 << 63) - 1}}, {"last_seq": {"a.b": MAX_COUNT}}),
        (RunRecord.from_json, RUN, {"in_flight": 1 << 62}, {"in_flight": 3}),
        (RunRecord.from_json, RUN, {"dropped": dropped("r1 a.b 9999999999999999999-5")},
         {"dropped": dropped("r1 a.b 5-9")}),
        (RunRecord.from_json, RUN, {"dropped": dropped("r1 a.b 9-5")}, {"dropped": dropped("r1 a.b 5-5")}),
        (RunRecord.from_json, RUN, {"dropped": dropped("r1 a.b 5-9", 1 << 62)},
         {"dropped": dropped("r1 a.b 5-9")}),
        (RunRecord.from_json, RUN, {"unfinished": [{"run": "r0", "end": "killed", "lost_at_most_s": 1e200}]},
         {"unfinished": [{"run": "r0", "end": "killed", "lost_at_most_s": 2.0}]}),
        (RunRecord.from_json, RUN, {"revision": 1 << 60}, {"revision": 7}),
        (parse_site, SITE, {"revision": 1 << 60}, {"revision": 7}),
        (parse_status, STATUS, {"revision": 1 << 60}, {"revision": 7}),
    ],
)  # fmt: skip
def test_beyond_the_bounds_it_is_refused(
    parse: Callable[[bytes], Any], given: dict[str, Any], beyond: dict[str, Any], within: dict[str, Any]
) -> None:
    with pytest.raises(InvalidFields) as refused:
        parse(json.dumps(given | beyond).encode())
    assert refused.value.reason == "OUT_OF_RANGE"
    assert parse(json.dumps(given | within).encode())


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "1899-12-31T23:59:59Z", "2200-01-01T00:00:00Z"])
def test_years_that_no_table_can_have_are_refused(time: str) -> None:
    for parse, given in (
        (parse_reading, READING | {"time": time, "clock": "unsynced", "boot": "b", "mono_ms": 1}),
        (RunRecord.from_json, RUN | {"started": time}),
        (parse_site, SITE | {"valid_from": time}),
        (parse_status, STATUS | {"time": time}),
        (parse_channel, CHANNEL | {"valid_from": time, "periods": [[time, None]]}),
    ):
        with pytest.raises(InvalidFields) as refused:
            parse(json.dumps(given).encode())
        assert refused.value.reason == "BAD_TIME"


def test_a_dead_letter_counts_no_more_than_any_file_has() -> None:
    with pytest.raises(InvalidFields):
        parse_dead_letter(json.dumps(LETTER | {"payload_bytes": 1 << 60}).encode())
    assert parse_dead_letter(json.dumps(LETTER).encode()).payload_bytes == 1


def test_what_jobs_do_with_the_largest_stays_a_number() -> None:
    assert math.isfinite(MAX_NUMBER**4 * 2.0**63)
    # The shortest entry of ``last_seq`` in a record of one MiB has 26 bytes.
    assert MAX_COUNT * ((1 << 20) // 26) < 1 << 63
