"""Where a reading goes when its sampler has made it."""

from __future__ import annotations

from collections.abc import Callable

from cloud.wire.reading_records import Reading
from gateway.forwarding.inbox import Inbox
from gateway.mqtt.intake import Intake
from gateway.mqtt.topics import Topics
from gateway.sampling.last_readings import LastReadings


def publisher(
    topics: Topics, intake: Intake, inbox: Inbox, last: LastReadings
) -> Callable[[Reading, str], None]:
    """Enters readings for Kafka and for the local broker; samplers' threads call it."""

    def publish(reading: Reading, sensor: str) -> None:
        topic = topics.reading.format(sensor=sensor, quantity=reading.quantity)
        inbox.sampled(intake.own(reading, topic), topic)
        last.note(reading)

    return publish
