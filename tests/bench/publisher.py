"""Publishes messages with QoS 1, paced or as fast as it goes, and prints one line of JSON at the end.

    python -m tests.bench.publisher PORT PREFIX COUNT RATE SIZE TOPICS

RATE is messages per second in all, 0 for as fast as it goes; the topics are PREFIX/0, PREFIX/1 … A
payload of SIZE bytes is its number from 0, the time (ns since 1970), and digits that compress to a half
at best. The line has ``acked``, ``seconds`` and ``cpu_s`` of the publishing, and percentiles of ms until
the PUBACK.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from typing import Any, Final

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from tests.bench.figures import spread

_ACKED_WITHIN_S: Final = 60.0
_MOST_WAITING: Final = 2_000
"""Without a pace: published and not acknowledged yet."""


def publish(port: int, prefix: str, count: int, rate: float, size: int, topics: int) -> dict[str, Any]:
    waiting: deque[float] = deque()
    puback_ms: list[float] = []
    client = Client(CallbackAPIVersion.VERSION2, client_id=f"publisher-{os.getpid()}", clean_session=False)
    client.max_inflight_messages_set(1_000)
    client.max_queued_messages_set(0)
    client.reconnect_delay_set(1, 1)
    # Mosquitto acknowledges in the order of publishing.
    client.on_publish = lambda *_: puback_ms.append(1000 * (time.perf_counter() - waiting.popleft()))
    client.connect("127.0.0.1", port)
    client.loop_start()
    digits = os.urandom(1 << 20).hex()
    begin_s, cpu_s = time.perf_counter(), time.process_time()
    for number in range(count):
        if rate:
            time.sleep(max(0.0, begin_s + number / rate - time.perf_counter()))
        while not rate and len(waiting) > _MOST_WAITING:
            time.sleep(0.001)
        head = f"{number} {time.time_ns()} "
        at = number * 7919 % (len(digits) - size)
        waiting.append(time.perf_counter())
        client.publish(f"{prefix}/{number % topics}", head + digits[at : at + size - len(head)], qos=1)
    seconds, cpu_s = time.perf_counter() - begin_s, time.process_time() - cpu_s
    end_s = time.perf_counter() + _ACKED_WITHIN_S
    while len(puback_ms) < count and time.perf_counter() < end_s:
        time.sleep(0.01)
    client.disconnect()
    client.loop_stop()
    return {"acked": len(puback_ms), "seconds": seconds, "cpu_s": cpu_s, **spread("produce", puback_ms)}


if __name__ == "__main__":
    _port, _prefix, _count, _rate, _size, _topics = sys.argv[1:]
    answer = publish(int(_port), _prefix, int(_count), float(_rate), int(_size), int(_topics))
    sys.stdout.write(json.dumps(answer))
