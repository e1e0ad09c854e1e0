"""Renders the daemon's status in Prometheus' text format (version 0.0.4), by prometheus_client. Pure.

Names are base units with their suffix; a counter begins at 0 with each start of the daemon. What is unknown
is left out, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from cloud.wire.reading_records import SYNCED
from gateway.ports import REFUSALS
from gateway.status.status import UNSURE, Channel, DownlinkStatus, MqttProxyStatus, RelayStatus, Status

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# fieldgate_KEY_total, by the status's key.
_COUNTERS: Final = {
    "sampled": "Readings sampled.",
    "confirmed": "Records confirmed by Kafka.",
    "bytes_sent": "Bytes sent to Kafka, without what TLS and TCP add.",
    "spilled": "Records stored in the outbox.",
    "drained": "Records of the outbox confirmed by Kafka.",
    "dead_letters": "Messages refused and published as dead letters.",
    "broker_dropped": "Messages dropped by the local broker, of all its clients.",
    "sampler_restarts": "Restarts of samplers after a failure.",
    "under_voltage": "Times that the supply of the Raspberry Pi was too low.",
    "throttled": "Times that the processor of the Raspberry Pi was slowed down.",
}
_GAUGES: Final = {
    "in_flight": ("fieldgate_in_flight_records", "Records sent to Kafka and not yet confirmed."),
    "held": ("fieldgate_held_records", "Records held until the clock is synchronised."),
    "outbox_records": ("fieldgate_outbox_records", "Records in the outbox."),
    "outbox_bytes": ("fieldgate_outbox_bytes", "Size of the outbox in bytes."),
    "outbox_max_bytes": ("fieldgate_outbox_max_bytes", "Largest size of the outbox in bytes."),
    "outbox_memory_records": ("fieldgate_outbox_memory_records", "Records in memory because the disk fails."),
    "kafka_confirmed_ago_s": (
        "fieldgate_kafka_confirmed_age_seconds",
        "Time since Kafka confirmed a record.",
    ),
    "samplers_abandoned": ("fieldgate_samplers_abandoned", "Samplers abandoned because their driver hangs."),
    "uptime_s": ("fieldgate_uptime_seconds", "Time since the daemon's start in seconds."),
    "mqtt_connected": ("fieldgate_broker_connected", "1 while connected to the broker."),
    "id_taken": ("fieldgate_id_taken", "1 while another gateway with this id is seen."),
}
_MACHINE: Final = {
    "disk_free_bytes": ("fieldgate_disk_free_bytes", "Free space of the outbox's file system in bytes."),
    "cpu_celsius": ("fieldgate_cpu_temperature_celsius", "CPU temperature in degrees Celsius."),
    "load": ("fieldgate_load1", "Load average over one minute."),
}
_HTTP: Final = {
    "readings": "Posted readings that were accepted.",
    "refused": "Posted readings that were refused.",
}
_PROXY: Final = {
    "messages": "Messages that devices have published to the gateway itself.",
    "acknowledged": "Messages of theirs that are durable, and acknowledged.",
    "repeats": "Messages sent again that were recognised.",
}
_UPLINKS: Final = ("healthy", "draining", "spilling", "metered")


def render(status: Status, resident: int | None = None) -> bytes:
    """Returns the exposition of one status; ``resident`` is the process's memory in bytes."""
    return generate_latest(_Snapshot(status, resident))


class _Snapshot(Collector):
    """Collects the metrics of one status."""

    def __init__(self, status: Status, resident: int | None) -> None:
        self._status = status
        self._resident = resident

    def collect(self) -> Iterator[Metric]:
        """Yields all families."""
        status = self._status
        build = {"version": status.machine.version, "gateway": status.gateway}
        yield _gauge("fieldgate_build_info", "Installed version; always 1.", (build, 1))
        for key, text in _COUNTERS.items():
            if (value := getattr(status, key)) is not None:
                yield CounterMetricFamily(f"fieldgate_{key}", text, value)
        for source, gauges in ((status, _GAUGES), (status.machine, _MACHINE)):
            for key, (name, text) in gauges.items():
                if (value := getattr(source, key)) is not None:
                    yield _gauge(name, text, ({}, value))
        if self._resident is not None:
            text = "Resident memory size in bytes."
            yield _gauge("process_resident_memory_bytes", text, ({}, self._resident))
        synced = status.clock == SYNCED
        yield _gauge("fieldgate_clock_synced", "1 once the clock is synchronised.", ({}, synced))
        problems = len(status.config.problems)
        yield _gauge("fieldgate_config_problems", "Errors of the config that is in force.", ({}, problems))
        parked = (({"topic": topic}, each.for_s) for topic, each in status.parked.items())
        yield _gauge("fieldgate_topic_parked_seconds", "How long a topic has rejected records.", *parked)
        refusals = (({"reason": each}, status.kafka_refusal == each) for each in REFUSALS)
        yield _gauge("fieldgate_kafka_refuses", "1 for what Kafka refuses us for, else 0.", *refusals)
        uplinks = (({"state": state}, status.uplink == state) for state in _UPLINKS)
        yield _gauge("fieldgate_uplink", "1 for the state of the uplink, else 0.", *uplinks)
        yield _counter("fieldgate_commands", "Commands answered.", "result", status.commands.results)
        for key, text in _HTTP.items():
            yield CounterMetricFamily(f"fieldgate_http_{key}", text, getattr(status.http, key))
        yield from _proxy(status.mqtt_proxy)
        yield from _downlinks(status.downlinks.topics)
        yield from _relays(status.relays)
        yield from _readings(status.channels)


def _proxy(proxy: MqttProxyStatus) -> Iterator[Metric]:
    """Counts what devices publish to the gateway itself."""
    yield _gauge("fieldgate_mqtt_proxy_clients", "Devices connected by MQTT.", ({}, proxy.clients))
    for key, text in _PROXY.items():
        yield CounterMetricFamily(f"fieldgate_mqtt_proxy_{key}", text, getattr(proxy, key))
    text = "Connections of devices that were ended."
    yield _counter("fieldgate_mqtt_proxy_refused", text, "reason", proxy.refused)


def _downlinks(topics: Mapping[str, DownlinkStatus]) -> Iterator[Metric]:
    """Counts the records that come from Kafka to the local broker."""
    published = {topic: each.published for topic, each in topics.items()}
    text = "Records of a Kafka topic published locally."
    yield _counter("fieldgate_downlink_published", text, "topic", published)
    refused = {topic: sum(each.refused.values()) for topic, each in topics.items()}
    yield _counter("fieldgate_downlink_refused", "Records that can't be published.", "topic", refused)
    lags = (({"topic": topic}, each.lag) for topic, each in topics.items() if each.lag is not None)
    yield _gauge("fieldgate_downlink_lag_records", "Records of a Kafka topic still to be read.", *lags)


def _relays(relays: Mapping[str, RelayStatus]) -> Iterator[Metric]:
    """Shows relays and their interlocks. A relay whose pin can't be claimed has no state."""
    known = (
        ({"relay": name}, each.state == "on") for name, each in relays.items() if each.state != "unknown"
    )
    yield _gauge("fieldgate_relay_on", "1 while the relay is on, else 0.", *known)
    switches = {name: each.switches for name, each in relays.items()}
    yield _counter("fieldgate_relay_switches", "Times that it was switched.", "relay", switches)
    # Two of the same text would be refused by whoever scrapes.
    rules = {(rule.when, rule.then): rule.state for each in relays.values() for rule in each.interlocks}
    for name, wanted, text in (
        ("held", ("held",), "1 while the interlock decides the relay's state, else 0."),
        ("unsure", UNSURE, "1 without a good reading: the relay is in its safe state; else 0."),
    ):
        states = (({"when": when, "then": then}, state in wanted) for (when, then), state in rules.items())
        yield _gauge(f"fieldgate_interlock_{name}", text, *states)


def _readings(channels: Mapping[str, Channel]) -> Iterator[Metric]:
    """Shows the last reading of each channel. A missing value has no sample, its quality does."""
    last = [({"channel": name}, channels[name]) for name in sorted(channels)]
    yield _gauge(
        "fieldgate_reading_value",
        "Value of the last reading, in the channel's unit.",
        *(({**channel, "unit": each.unit}, each.value) for channel, each in last if each.value is not None),
    )
    yield _gauge(
        "fieldgate_reading_quality",
        "QARTOD flag of the last reading: 1 good, 2 not evaluated, 3 suspect, 4 fail, 9 missing.",
        *((channel, each.quality) for channel, each in last),
    )
    yield _gauge(
        "fieldgate_reading_timestamp_seconds",
        "Event time of the last reading in seconds since 1970.",
        *((channel, datetime.fromisoformat(each.time).timestamp()) for channel, each in last),
    )


def _counter(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def _gauge(name: str, text: str, *samples: tuple[dict[str, str], float]) -> Metric:
    family = Metric(name, text, "gauge")
    for labels, value in samples:
        family.add_sample(name, labels, value)
    return family
