"""Where a reading goes when its sampler has made it."""

from __future__ import annotations

from collections.abc import Callable

from cloud.wire.reading_records import Reading
from gateway.forwarding.inbox import Inbox
from gateway.mqtt.intake import Intake
from gateway.mqtt.session import MqttSession
from gateway.mqtt.topics import Topics
from gateway.sampling.last_readings import LastReadings


def publisher(
    topics: Topics, intake: Intake, inbox: Inbox, session: MqttSession, last: LastReadings
) -> Callable[[Reading, str], None]:
    """Enters readings for Kafka and publishes them on the local broker; samplers' threads call it."""

    def publish(reading: Reading, sensor: str) -> None:
        topic = topics.reading.format(sensor=sensor, quantity=reading.quantity)
        record = intake.own(reading, topic)
        # The ledger first: what the broker loses, the ledger still has.
        inbox.sampled(record)
        session.publish(topic, record.value)
        last.note(reading)

    return publish
