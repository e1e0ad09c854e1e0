"""``fieldgate simulate`` into a real Kafka, and the accounts of what is there."""

from __future__ import annotations

from tests.support.accounts import read_accounts
from tests.support.commands import called


def test_a_small_fleet_is_in_kafka_and_accounted_for(provisioned: str) -> None:
    given = ("--gateways", "2", "--days", "0.25", "--period", "900", "--until", "2026-11-20T12:00:00Z")
    for _ in range(2):
        done = called("simulate", "--bootstrap-servers", provisioned, *given)
        assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("records of 2 masts are in Kafka\n")
    accounts = read_accounts(provisioned).of("sim-01")
    assert all(each.balanced and not each.pending for each in accounts)
    stored = sum(each.stored for each in accounts)
    assert sum(each.sampled for each in accounts) == stored > 200
    # The same seed makes the same identities.
    assert sum(each.repeats for each in accounts) == stored
