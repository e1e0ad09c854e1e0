"""Where a reading goes when its sampler has made it."""

from __future__ import annotations

from cloud.wire.reading_records import Reading
from gateway.forwarding.inbox import Inbox
from gateway.mqtt.intake import Intake
from gateway.mqtt.session import MqttSession
from gateway.mqtt.topics import Topics
from gateway.sampling.last_readings import LastReadings


class Publisher:
    """Enters readings for Kafka and publishes them on the local broker; called by samplers' threads."""

    def __init__(
        self, topics: Topics, intake: Intake, inbox: Inbox, session: MqttSession, last: LastReadings
    ) -> None:
        self._topics = topics
        self._intake = intake
        self._inbox = inbox
        self._session = session
        self._last = last

    def publish(self, reading: Reading, sensor: str) -> None:
        """The ledger first: what the broker loses, the ledger still has."""
        topic = self._topics.reading.format(sensor=sensor, quantity=reading.quantity)
        record = self._intake.own(reading, topic)
        self._inbox.sampled(record)
        self._session.publish(topic, record.value)
        self._last.note(reading)
