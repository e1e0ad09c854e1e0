"""A simulated mast with every fault, through real drivers and samplers: what is flagged, and what isn't."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.quality_days import mast_config, sample
from tests.unit.gateway.quality.accounts import DAY_UNITS, HOUR_S, false_flags, faulty, table

SHORT_UNIT_S = 240
SHORT_RULES = "[quality.wind_speed]\ndrift_window_s = 3600"
TWO_FLAGS = 2


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """A checksum error a minute is no news here."""
    caplog.set_level("ERROR")


@pytest.mark.timeout(3600)
def test_every_fault_is_flagged_and_little_else(tmp_path: Path, full: bool) -> None:
    unit_s = HOUR_S if full else SHORT_UNIT_S
    drift_window_s = 43_200 if full else 3600
    # In the middle of the day at 85.5° east in the short version.
    start = "2026-01-15T00:00:00Z" if full else "2026-01-15T05:00:00Z"
    result = faulty(tmp_path, start, 1, unit_s, "" if full else SHORT_RULES)
    print(table(result))  # noqa: T201 - shown with -s, and where it fails
    stuck, icing, drift, small, large, open_baro, open_sun, baro, sun, dht = result.accounts.values()

    # Five minutes at rest, flagged two later, and what is left of the minute it began in.
    assert stuck.injected == 3 * unit_s
    assert stuck.throughout_s is not None
    assert stuck.throughout_s <= 480
    assert "STUCK_VALUE" in stuck.reasons
    assert stuck.on_twin == 0

    # Flagged at the latest some minutes after it stands.
    assert icing.throughout_s is not None
    assert icing.throughout_s <= 2 * unit_s + 480
    assert "STUCK_VALUE" in icing.reasons

    assert drift.throughout_s is not None
    assert drift.after_s == drift.throughout_s
    assert drift.throughout_s <= 0.75 * drift_window_s + 1200
    assert drift.reasons == {"PAIR_DISAGREES"}
    assert drift.on_twin == drift.flagged

    for spike in (small, large, baro, sun):
        assert (spike.injected, spike.flagged) == (6, 6)
    assert "SPIKE" in small.reasons
    assert "STEP_TOO_HIGH" not in small.reasons
    assert {"SPIKE", "STEP_TOO_HIGH"} <= large.reasons

    assert open_baro.flagged == open_baro.injected == unit_s
    assert open_baro.after_s == 0
    # It measures the pins to ground every ten seconds.
    assert open_sun.flagged >= open_sun.injected - 10

    reads = DAY_UNITS * unit_s // 2
    assert 0.04 * reads < dht.injected / 2 < 0.06 * reads
    assert dht.flagged == dht.injected
    assert dht.reasons == {"CHECKSUM"}

    for one in result.accounts.values():
        assert one.trailing <= TWO_FLAGS
    assert result.false_share <= 0.001
    assert max(result.false.values()) <= TWO_FLAGS


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("start", "seed"), [("2026-04-10", 3), ("2026-06-15", 2)])
def test_a_clean_day_has_no_more_than_a_false_flag_in_a_thousand(
    tmp_path: Path, full: bool, start: str, seed: int
) -> None:
    if not full:
        pytest.skip("only with --full: the day of faults has hours without any")
    config = mast_config(tmp_path, f"{start}T05:00:00Z", seed)
    for channel, (flagged, of) in false_flags(sample(config, 24 * HOUR_S)).items():
        assert flagged <= of / 1000, channel
