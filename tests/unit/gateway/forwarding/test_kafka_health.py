"""How long Kafka may take, and when a topic that takes nothing is tried again."""

from __future__ import annotations

import pytest

from gateway.forwarding.state import KafkaHealth, Pace


def test_a_parked_topic_is_probed_once_after_its_pause_and_others_flow() -> None:
    kafka = KafkaHealth(Pace(1.0))
    kafka.park("mqtt.co2", 100.0, "UNKNOWN_TOPIC_OR_PART")
    assert kafka.may_send("mqtt.wind_speed", 100.0)
    assert not kafka.may_send("mqtt.co2", 100.9)
    assert kafka.may_send("mqtt.co2", 101.0)
    assert not kafka.may_send("mqtt.co2", 101.0)


def test_the_pause_doubles_up_to_a_minute() -> None:
    kafka = KafkaHealth(Pace(1.0))
    now_s, pauses = 0.0, []
    for _ in range(8):
        kafka.park("mqtt.co2", now_s, "still missing")
        pauses.append(kafka.next_probe_s() - now_s)
        now_s = kafka.next_probe_s()
        assert kafka.may_send("mqtt.co2", now_s)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_only_a_failed_probe_makes_the_pause_longer() -> None:
    kafka = KafkaHealth(Pace(1.0))
    # A hundred records were under way when the first was refused.
    for _ in range(100):
        kafka.park("mqtt.co2", 100.0, "missing")
    assert kafka.next_probe_s() == 101.0
    assert kafka.may_send("mqtt.co2", 101.0)
    kafka.park("mqtt.co2", 101.5, "still missing")
    kafka.park("mqtt.co2", 101.5, "still missing")
    assert kafka.next_probe_s() == 103.5


def test_a_delivery_ends_the_parking() -> None:
    kafka = KafkaHealth(Pace(1.0))
    kafka.park("mqtt.co2", 0.0, "missing")
    assert list(kafka.parked_topics) == ["mqtt.co2"]
    kafka.confirmed("mqtt.co2", 0.0, 0.0)
    assert list(kafka.parked_topics) == []
    assert kafka.may_send("mqtt.co2", 0.0)
    assert kafka.next_probe_s() == float("inf")
    kafka.confirmed("mqtt.co2", 0.0, 0.0)
    assert kafka.freed == 1


def test_since_when_a_topic_is_parked_and_its_latest_reason() -> None:
    kafka = KafkaHealth(Pace(1.0))
    kafka.park("mqtt.co2", 100.0, "no delivery report while others came")
    assert kafka.may_send("mqtt.co2", 101.0)
    kafka.park("mqtt.co2", 101.5, "TOPIC_AUTHORIZATION_FAILED")
    assert kafka.parked() == {"mqtt.co2": (100.0, "TOPIC_AUTHORIZATION_FAILED")}


def test_a_confirmation_that_comes_too_late_to_wait_for_is_known_by_its_latency() -> None:
    kafka, metered = KafkaHealth(Pace(1.0)), KafkaHealth(Pace(1.0, 60.0))
    assert not kafka.confirmed("mqtt.co2", 100.0, 100.8)
    assert kafka.late_s == pytest.approx(0.8)
    assert kafka.confirmed("mqtt.co2", 101.0, 101.4)
    assert kafka.late_s is None
    # There each reading is stored in any case.
    assert not metered.confirmed("mqtt.co2", 100.0, 140.0)
    assert metered.late_s is None


def test_live_waits_for_kafka_half_the_interval_and_in_an_outage_nearly_all_of_it() -> None:
    pace = Pace(2.0)
    assert (pace.store_after_s(answering=True), pace.store_after_s(answering=False)) == (1.0, 1.8)
    assert pace.silent_after_s == 1.0
    assert not pace.metered


def test_metered_stores_everything_once_per_interval_and_is_patient_with_kafka() -> None:
    pace = Pace(2.0, 60.0)
    assert (pace.store_after_s(answering=True), pace.store_after_s(answering=False)) == (1.8, 1.8)
    assert pace.silent_after_s == 30.0
    assert pace.metered
