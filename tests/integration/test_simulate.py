"""``fieldgate simulate`` into a real Kafka, and the accounts of what is there."""

from __future__ import annotations

import json

from tests.support.servers import fieldgate


def test_a_small_fleet_is_in_kafka_and_accounted_for(provisioned: str) -> None:
    given = ("--gateways", "2", "--days", "0.25", "--period", "900", "--until", "2026-11-20T12:00:00Z")
    for _ in range(2):
        done = fieldgate("simulate", "--bootstrap-servers", provisioned, *given)
        assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("records of 2 masts are in Kafka\n")
    accounts = fieldgate("status", "--bootstrap-servers", provisioned, "--gateway", "sim-01", "--json")
    assert accounts.returncode == 0, accounts.stderr + accounts.stdout
    total = json.loads(accounts.stdout)["total"]
    assert total["sampled"] == total["in_kafka"] > 200
    # The same seed makes the same identities.
    assert total["repeats"] == total["in_kafka"]
    assert (total["unaccounted"], total["pending"], total["never_sampled"]) == (0, 0, 0)
