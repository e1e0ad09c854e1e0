"""The way of a reading from its sampler into the forwarder's inbox."""

from __future__ import annotations

from collections.abc import Callable

from cloud.wire.reading_records import Reading
from gateway.forwarding.inbox import Inbox
from gateway.mqtt.kafka_records import KafkaRecords
from gateway.mqtt.topics import Topics
from gateway.sampling.last_readings import LastReadings


def own_readings(
    topics: Topics, records: KafkaRecords, inbox: Inbox, last: LastReadings
) -> Callable[[Reading, str], None]:
    """What samplers' threads call with each reading: the forwarder publishes it and sends it to Kafka."""

    def enter(reading: Reading, sensor: str) -> None:
        topic = topics.reading.format(sensor=sensor, quantity=reading.quantity)
        inbox.sampled(records.own(reading, topic), topic)
        last.note(reading)

    return enter
