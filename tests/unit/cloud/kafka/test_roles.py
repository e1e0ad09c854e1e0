"""A gateway's permissions in Kafka follow its config."""

from __future__ import annotations

from cloud.kafka import roles
from cloud.kafka.roles import Permission


def test_a_gateway_reads_its_downlinks_topics_with_a_group_of_its_own() -> None:
    more = roles.gateway((), "mast-07", ["settings"]) - roles.gateway((), "mast-07")
    assert more == {Permission("topic", "settings", "READ"), Permission("group", "fieldgate-mast-07", "READ")}
