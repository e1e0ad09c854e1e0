"""How far each run of the gateway got, as the gateway itself says: its retained run record on Mosquitto.

A record comes every second and at the stop. The latest of each run is kept in memory and in a file, so that
runs of a demo that is resumed are known too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from paho.mqtt.client import Client, ConnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from cloud.wire.fields import UNDECODABLE
from cloud.wire.run_records import RunRecord
from gateway.system.atomic_file import write_atomic

log = logging.getLogger(__name__)


class RunRecords:
    """Collects run records; readable from any thread."""

    def __init__(self, host: str, port: int, topic: str, file: Path) -> None:
        self._address = (host, port)
        self._topic = topic
        self._file = file
        self._lock = threading.Lock()
        self._records = _load(file)
        self._latest: str | None = None
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message

    def start(self) -> None:
        """Connect now or as soon as the broker is there."""
        self._client.connect_async(*self._address)
        self._client.loop_start()

    def stop(self) -> None:
        """Disconnect."""
        self._client.disconnect()
        self._client.loop_stop()

    def all(self) -> dict[str, RunRecord]:
        """The latest record of each run, by run."""
        with self._lock:
            return dict(self._records)

    @property
    def current(self) -> RunRecord | None:
        """The run that spoke last since we started."""
        with self._lock:
            return None if self._latest is None else self._records[self._latest]

    def _on_connect(
        self, client: Client, _data: Any, _flags: ConnectFlags, _reason: ReasonCode, _more: Properties | None
    ) -> None:
        client.subscribe(self._topic, qos=1)

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        try:
            record = RunRecord.from_json(bytes(message.payload))
        except ValueError as error:
            # Anyone may publish on the broker; a forged topic must not end the demo.
            log.warning("event=demo.bad_run_record error=%s", error)
            return
        with self._lock:
            self._records[record.run] = record
            self._latest = record.run
            _store(self._file, self._records)


def _load(file: Path) -> dict[str, RunRecord]:
    try:
        return {record.run: record for record in msgspec.json.decode(file.read_bytes(), type=list[RunRecord])}
    except FileNotFoundError:
        return {}
    except UNDECODABLE as error:
        log.warning("event=demo.runs_unreadable path=%s error=%s", file, error)
        return {}


def _store(file: Path, records: Mapping[str, RunRecord]) -> None:
    write_atomic(file, msgspec.json.encode(list(records.values())).decode())
