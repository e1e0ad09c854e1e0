"""The bridge that one writes by hand: paho to confluent-kafka, PUBACK once Kafka has confirmed.

    python -m tests.bench.handmade MQTT_PORT KAFKA TOPIC CLIENT_ID FILTER

The measure for the gateway, which does the same and keeps a ledger, an outbox and identities besides.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

PRODUCER: Final = {"enable.idempotence": True, "compression.type": "zstd", "linger.ms": 5}


def bridge(port: int, kafka: str, topic: str, client_id: str, topic_filter: str) -> None:
    producer = Producer({"bootstrap.servers": kafka} | PRODUCER)
    client = Client(CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=False, manual_ack=True)

    def send(_client: Client, _userdata: Any, message: MQTTMessage) -> None:
        def confirmed(error: KafkaError | None, _message: Message, mid: int = message.mid) -> None:
            if error is None:
                client.ack(mid, 1)

        while True:
            try:
                return producer.produce(topic, bytes(message.payload), on_delivery=confirmed)
            except BufferError:
                producer.poll(0.1)

    def poll() -> None:
        while True:
            producer.poll(0.2)

    def connected(*_: Any) -> None:
        client.subscribe(topic_filter, qos=1)

    client.on_message, client.on_connect = send, connected
    threading.Thread(target=poll, daemon=True).start()
    client.connect("127.0.0.1", port)
    client.loop_forever(retry_first_connection=True)


if __name__ == "__main__":
    bridge(int(sys.argv[1]), *sys.argv[2:])
