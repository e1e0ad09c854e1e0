"""When a topic that takes nothing is tried again."""

from __future__ import annotations

from gateway.forwarding.kafka_health import TopicBackoff


def test_a_parked_topic_is_probed_once_after_its_pause_and_others_flow() -> None:
    parking = TopicBackoff()
    parking.park("mqtt.co2", 100.0, "UNKNOWN_TOPIC_OR_PART")
    assert parking.may_send("mqtt.wind_speed", 100.0)
    assert not parking.may_send("mqtt.co2", 100.9)
    assert parking.may_send("mqtt.co2", 101.0)
    assert not parking.may_send("mqtt.co2", 101.0)


def test_the_pause_doubles_up_to_a_minute() -> None:
    parking = TopicBackoff()
    now_s, pauses = 0.0, []
    for _ in range(8):
        parking.park("mqtt.co2", now_s, "still missing")
        pauses.append(parking.again_s() - now_s)
        now_s = parking.again_s()
        assert parking.may_send("mqtt.co2", now_s)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_only_a_failed_probe_makes_the_pause_longer() -> None:
    parking = TopicBackoff()
    # A hundred records were under way when the first was refused.
    for _ in range(100):
        parking.park("mqtt.co2", 100.0, "missing")
    assert parking.again_s() == 101.0
    assert parking.may_send("mqtt.co2", 101.0)
    parking.park("mqtt.co2", 101.5, "still missing")
    parking.park("mqtt.co2", 101.5, "still missing")
    assert parking.again_s() == 103.5


def test_a_delivery_ends_the_parking() -> None:
    parking = TopicBackoff()
    parking.park("mqtt.co2", 0.0, "missing")
    assert list(parking.topics) == ["mqtt.co2"]
    parking.delivered("mqtt.co2")
    assert list(parking.topics) == []
    assert parking.may_send("mqtt.co2", 0.0)
    assert parking.again_s() == float("inf")
    parking.delivered("mqtt.co2")
    assert parking.freed == 1
