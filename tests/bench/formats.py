"""What readings weigh in Kafka as JSON and as Avro, and what the one costs to become the other.

    .venv/bin/python -m tests.bench.formats

Ten batches of 60 s from 12 channels at 1 Hz (six cups, four voltages, two temperatures; random walks in the
steps that their converters have), through the producer of a metered uplink, to a real broker; the bytes are
those of its log, keys and headers included.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cloud.kafka.librdkafka import METERED_PROPERTIES
from cloud.kafka.producer import KafkaSink
from cloud.kafka.provision import provision_topics
from cloud.local.kafka_broker import LocalBroker
from cloud.wire.avro_readings import SCHEMA, from_avro, head, to_avro
from cloud.wire.fields import format_time
from cloud.wire.reading_records import Reading, encode_reading, reading_key
from gateway.ports import Record
from tests.support.servers import eventually

_START_US: Final = 1_795_246_500_000_000
_BATCHES: Final = 10
_BATCH_S: Final = 60
_CHANNELS: Final = (
    *(
        (f"cup-{height}m-{side}.wind_speed", "m/s", "Hz", 0.765, 1.0, 9)
        for height in (20, 30, 50)
        for side in "ab"
    ),
    *((f"mast-v{number}.voltage", "V", "V", 1.0, 0.000125, 19_000) for number in range(4)),
    *((f"air-{height}m.temperature", "Cel", "Cel", 1.0, 0.0625, 180) for height in (2, 50)),
)
_QUANTITIES: Final = ("wind_speed", "voltage", "temperature")


def batches() -> Iterator[list[Record]]:
    """The records of each batch as the gateway has them, in the order of their times."""
    rng = random.Random(18)
    steps = [channel[-1] for channel in _CHANNELS]
    for batch in range(_BATCHES):
        records = []
        for second in range(batch * _BATCH_S, (batch + 1) * _BATCH_S):
            for number, (channel, unit, raw_unit, slope, step, _) in enumerate(_CHANNELS):
                steps[number] = max(steps[number] + rng.choice((-1, 0, 0, 1)), 0)
                raw = steps[number] * step
                reading = Reading(
                    gateway="mast-07", channel=channel, quantity=channel.partition(".")[2], unit=unit,
                    time_us=_START_US + second * 1_000_000, period_ms=1000, value=slope * raw + 0.35, raw=raw,
                    raw_unit=raw_unit, quality=1, reasons=(), run="9f3c21ab04de", seq=second + 1,
                    clock="synced", cal=f"5d1c0a7{number:x}",
                )  # fmt: skip
                sensor = channel.replace(".", "/")
                received = format_time(reading.time_us + 1_003_000).encode()
                headers = (
                    ("mqtt-topic", f"fieldgate/mast-07/{sensor}".encode()), ("received-at", received),
                )  # fmt: skip
                topic, key = f"mqtt.{reading.quantity}", reading_key("mast-07", channel)
                records.append(Record(topic, key, encode_reading(reading), headers))
        yield records


def _send(servers: str, kind: str, compression: str, value_of: Callable[[Any], bytes]) -> None:
    """All batches, to topics that begin with ``kind``."""
    properties = {**METERED_PROPERTIES, "compression.type": compression}
    with closing(KafkaSink[int](servers, "backlog", properties, value_of)) as sink:
        for records in batches():
            for number, record in enumerate(records):
                assert sink.send(replace(record, topic=record.topic.replace("mqtt", kind)), number)

            def confirmed(sink: KafkaSink[int] = sink) -> bool:
                sink.poll(0.1)
                return sink.open == 0

            eventually(confirmed)


def _weight(logs: Path, kind: str) -> float:
    """Bytes a reading in the broker's log."""
    files = [path for path in logs.rglob("*.log") if path.parent.name.startswith(f"{kind}.")]
    return sum(path.stat().st_size for path in files) / (_BATCHES * _BATCH_S * len(_CHANNELS))


def _cost_us(make: Callable[[bytes], object], values: Sequence[bytes]) -> float:
    best = float("inf")
    for _ in range(7):
        began = time.process_time()
        for value in values:
            make(value)
        best = min(best, time.process_time() - began)
    return best / len(values) * 1e6


def main() -> None:
    """Print the figures as a table."""
    begin, known = head(7), {7: SCHEMA}

    def as_avro(record: Any) -> bytes:
        return to_avro(record.value, begin) or b""

    def as_json(record: Any) -> bytes:
        value: bytes = record.value
        return value

    formats = {"JSON": as_json, "Avro": as_avro}
    kinds = {name: {each: f"{name}-{each}".lower() for each in ("none", "zstd")} for name in formats}
    topics = {
        f"{kind}.{quantity}" for each in kinds.values() for kind in each.values() for quantity in _QUANTITIES
    }
    with tempfile.TemporaryDirectory() as directory, LocalBroker(Path(directory)) as broker:
        provision_topics(broker.bootstrap_servers, partitions=1, replication=1, others=topics)
        print("| | uncompressed | zstd |\n|---|---|---|")  # noqa: T201
        for name, value_of in formats.items():
            for compression, kind in kinds[name].items():
                _send(broker.bootstrap_servers, kind, compression, value_of)
            plain, packed = (_weight(Path(directory), kind) for kind in kinds[name].values())
            print(f"| {name} | {plain:.0f} | {packed:.1f} |", flush=True)  # noqa: T201
    values = [record.value for records in batches() for record in records]
    avro = [to_avro(value, begin) or b"" for value in values]
    print(f"JSON to Avro {_cost_us(lambda value: to_avro(value, begin), values):.1f} us a reading")  # noqa: T201
    print(f"Avro to JSON {_cost_us(lambda value: from_avro(value, known), avro):.1f} us a reading")  # noqa: T201


if __name__ == "__main__":
    main()
