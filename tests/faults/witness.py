"""Watches a gateway on its local broker all through a test: by it a killed run's last state is known."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

from paho.mqtt.client import Client, ConnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from cloud.wire.run_records import RunRecord
from tests.faults.kafka import Identity
from tests.support.servers import unique_name


@dataclass
class Seen:
    """What was seen of one run: its latest record, and the readings it published, by when (monotonic)."""

    record: RunRecord | None = None
    published: dict[tuple[str, int], float] = field(default_factory=dict)

    def last_seq(self) -> dict[str, int]:
        """The highest seq of each channel that the run is known to have drawn."""
        last: dict[str, int] = dict(self.record.last_seq if self.record else {})
        for channel, seq in self.published:
            last[channel] = max(seq, last.get(channel, 0))
        return last


class Listening(Protocol):
    """A Mosquitto, wherever it runs."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class Witness:
    """A subscriber of run records and, where ``readings`` is set, of all readings. Reconnects by itself."""

    def __init__(
        self, mosquitto: Listening, gateway: str, *, readings: bool = False, keepalive_s: int = 60
    ) -> None:
        self.runs: dict[str, Seen] = {}
        self._gateway = gateway
        self._lock = threading.Lock()
        self._subscribed = threading.Event()
        self._filters = [f"fieldgate/{gateway}/run"] + ([f"fieldgate/{gateway}/+/+"] if readings else [])
        self._client = Client(CallbackAPIVersion.VERSION2, unique_name("witness"))
        self._client.reconnect_delay_set(1, 1)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_disconnect = lambda *_: self._subscribed.clear()
        self._client.on_message = self._on_message
        self._address = (mosquitto.host, mosquitto.port, keepalive_s)

    def __enter__(self) -> Self:
        self._client.connect(*self._address)
        self._client.loop_start()
        self.watch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def watch(self) -> None:
        """Wait until it sees everything: after a restart of the broker it takes a second to come back."""
        assert self._subscribed.wait(60), "the witness could not subscribe"

    def state(self, run: str) -> str | None:
        """The state in a run's latest record."""
        with self._lock:
            seen = self.runs.get(run)
            return None if seen is None or seen.record is None else seen.record.state

    def sampled(self) -> set[Identity]:
        """Every reading that is known to have been sampled; seq is dense."""
        with self._lock:
            return {
                (self._gateway, channel, run, seq)
                for run, seen in self.runs.items()
                for channel, last in seen.last_seq().items()
                for seq in range(1, last + 1)
            }

    def drops(self) -> dict[str, int]:
        """How many records the run records announce as dropped, by reason."""
        counts: Counter[str] = Counter()
        for record in self._records():
            counts.update(record.dropped_records)
        return +counts

    def dropped(self) -> set[Identity]:
        """What the run records announce as dropped."""
        return {
            (drop.gateway, drop.channel, drop.run, seq)
            for record in self._records()
            for drop in record.dropped
            for seq in range(drop.first, drop.last + 1)
        }

    def _records(self) -> list[RunRecord]:
        with self._lock:
            return [seen.record for seen in self.runs.values() if seen.record is not None]

    def _on_connect(
        self, client: Client, _data: Any, _flags: ConnectFlags, _reason: ReasonCode, _more: Properties | None
    ) -> None:
        client.subscribe([(topic_filter, 1) for topic_filter in self._filters])

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        now_s = time.monotonic()
        fields = json.loads(message.payload)
        with self._lock:
            seen = self.runs.setdefault(fields["run"], Seen())
            if "last_seq" in fields:
                seen.record = RunRecord.from_json(bytes(message.payload))
            else:
                seen.published.setdefault((fields["channel"], fields["seq"]), now_s)
