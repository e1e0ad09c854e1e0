"""The daemon's status as Prometheus' text format (version 0.0.4), by prometheus_client. Pure.

Names are base units with their suffix; a counter begins at 0 with each start of the daemon. What is unknown
is left out, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from gateway.ports import REFUSALS

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# fieldgate_KEY_total, by the status's key.
_COUNTERS: Final = {
    "sampled": "Readings sampled.",
    "confirmed": "Records confirmed by Kafka.",
    "spilled": "Records stored in the outbox.",
    "drained": "Records of the outbox confirmed by Kafka.",
    "dead_letters": "Messages refused and published as dead letters.",
    "broker_dropped": "Messages dropped by the local broker, of all its clients.",
    "sampler_restarts": "Restarts of samplers after a failure.",
    "under_voltage": "Times that the supply of the Raspberry Pi was too low.",
    "throttled": "Times that the processor of the Raspberry Pi was slowed down.",
}
_GAUGES: Final = {
    "fieldgate_in_flight_records": ("in_flight", "Records sent to Kafka and not yet confirmed."),
    "fieldgate_held_records": ("held", "Records held until the clock is synchronised."),
    "fieldgate_outbox_records": ("outbox_records", "Records in the outbox."),
    "fieldgate_outbox_bytes": ("outbox_bytes", "Size of the outbox in bytes."),
    "fieldgate_outbox_max_bytes": ("outbox_max_bytes", "Largest size of the outbox in bytes."),
    "fieldgate_outbox_memory_records": ("outbox_memory_records", "Records in memory because the disk fails."),
    "fieldgate_kafka_confirmed_age_seconds": (
        "kafka_confirmed_ago_s",
        "Time since Kafka confirmed a record.",
    ),
    "fieldgate_samplers_abandoned": ("samplers_abandoned", "Samplers abandoned because their driver hangs."),
    "fieldgate_uptime_seconds": ("uptime_s", "Time since the daemon's start in seconds."),
    "fieldgate_disk_free_bytes": ("disk_free_bytes", "Free space of the outbox's file system in bytes."),
    "fieldgate_cpu_temperature_celsius": ("cpu_celsius", "CPU temperature in degrees Celsius."),
    "fieldgate_load1": ("load", "Load average over one minute."),
    "process_resident_memory_bytes": ("resident", "Resident memory size in bytes."),
}
_POSTED: Final = {"readings": "accepted", "refused": "refused"}
_PROXY: Final = {
    "messages": "Messages that devices have published to the gateway itself.",
    "acknowledged": "Messages of theirs that are durable, and acknowledged.",
    "repeats": "Messages sent again that were recognised.",
}
_UPLINKS: Final = ("healthy", "draining", "spilling", "metered")


def render(status: Mapping[str, Any], resident: int | None = None) -> bytes:
    """The exposition of one status; ``resident`` is the process's memory in bytes."""
    return generate_latest(_Snapshot(status, resident))


class _Snapshot(Collector):
    """The metrics of one status."""

    def __init__(self, status: Mapping[str, Any], resident: int | None) -> None:
        self._machine: Mapping[str, Any] = status.get("machine") or {}
        self._status: Mapping[str, Any] = {**self._machine, **status, "resident": resident}

    def collect(self) -> Iterator[Metric]:
        """All families."""
        status = self._status
        build = {"version": self._machine.get("version", "unknown"), "gateway": status.get("gateway", "")}
        yield _gauge("fieldgate_build_info", "Installed version; always 1.", (build, 1))
        for key, text in _COUNTERS.items():
            if (value := status.get(key)) is not None:
                yield CounterMetricFamily(f"fieldgate_{key}", text, value)
        for name, (key, text) in _GAUGES.items():
            if (value := status.get(key)) is not None:
                yield _gauge(name, text, ({}, value))
        synced, connected = status.get("clock") == "synced", bool(status.get("mqtt_connected"))
        yield _gauge("fieldgate_clock_synced", "1 once the clock is synchronised.", ({}, synced))
        yield _gauge("fieldgate_broker_connected", "1 while connected to the broker.", ({}, connected))
        fenced = "another gateway with this id" in str((status.get("commands") or {}).get("problem"))
        taken = fenced or bool(status.get("mqtt_taken_over"))
        yield _gauge("fieldgate_id_taken", "1 while another gateway with this id is seen.", ({}, taken))
        problems = len((status.get("config") or {}).get("problems") or ())
        yield _gauge("fieldgate_config_problems", "Errors of the config that is in force.", ({}, problems))
        parked = (({"topic": topic}, each["for_s"]) for topic, each in (status.get("parked") or {}).items())
        yield _gauge("fieldgate_topic_parked_seconds", "How long a topic has taken nothing.", *parked)
        refusals = (({"reason": each}, status.get("kafka_refusal") == each) for each in REFUSALS)
        yield _gauge("fieldgate_kafka_refuses", "1 for what Kafka refuses us for, else 0.", *refusals)
        uplinks = (({"state": state}, status.get("uplink") == state) for state in _UPLINKS)
        yield _gauge("fieldgate_uplink", "1 for the state of the uplink, else 0.", *uplinks)
        commands = CounterMetricFamily("fieldgate_commands", "Commands answered.", labels=["result"])
        for result, count in ((status.get("commands") or {}).get("results") or {}).items():
            commands.add_metric([result], count)
        yield commands
        for key in ("readings", "refused"):
            name, text = f"fieldgate_http_{key}", f"Posted readings that were {_POSTED[key]}."
            yield CounterMetricFamily(name, text, (status.get("http") or {}).get(key, 0))
        yield from _proxy(status.get("mqtt_proxy") or {})
        yield from _downlinks((status.get("downlinks") or {}).get("topics") or {})
        yield from _relays(status.get("relays") or {})
        yield from _readings(status.get("channels") or {})


def _proxy(proxy: Mapping[str, Any]) -> Iterator[Metric]:
    """What devices publish to the gateway itself."""
    yield _gauge("fieldgate_mqtt_proxy_clients", "Devices connected by MQTT.", ({}, proxy.get("clients", 0)))
    for key, text in _PROXY.items():
        yield CounterMetricFamily(f"fieldgate_mqtt_proxy_{key}", text, proxy.get(key, 0))
    refused = CounterMetricFamily(
        "fieldgate_mqtt_proxy_refused", "Connections of devices that were ended.", labels=["reason"]
    )
    for reason, count in (proxy.get("refused") or {}).items():
        refused.add_metric([reason], count)
    yield refused


def _downlinks(topics: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    """The records that come from Kafka to the local broker."""
    published = CounterMetricFamily(
        "fieldgate_downlink_published", "Records of a Kafka topic published locally.", labels=["topic"]
    )
    refused = CounterMetricFamily(
        "fieldgate_downlink_refused", "Records that can't be published.", labels=["topic"]
    )
    for topic, each in topics.items():
        published.add_metric([topic], each["published"])
        refused.add_metric([topic], sum(each["refused"].values()))
    yield published
    yield refused
    lags = (({"topic": name}, each["lag"]) for name, each in topics.items() if each["lag"] is not None)
    yield _gauge("fieldgate_downlink_lag_records", "Records of a Kafka topic still to be read.", *lags)


def _relays(relays: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    """The relays and their interlocks. A relay whose pin can't be claimed has no state."""
    known = (
        ({"relay": name}, each["state"] == "on")
        for name, each in relays.items()
        if each["state"] != "unknown"
    )
    yield _gauge("fieldgate_relay_on", "1 while the relay is on, else 0.", *known)
    switches = CounterMetricFamily(
        "fieldgate_relay_switches", "Times that it was switched.", labels=["relay"]
    )
    for name, each in relays.items():
        switches.add_metric([name], each["switches"])
    yield switches
    # Two of the same text would be refused by whoever scrapes.
    rules = {
        (rule["when"], rule["then"]): rule["state"] for each in relays.values() for rule in each["interlocks"]
    }
    for name, wanted, text in (
        ("held", ("held",), "1 while the interlock decides the relay's state, else 0."),
        ("unsure", ("unknown", "stale"), "1 without a good reading: the relay is in its safe state; else 0."),
    ):
        states = (({"when": when, "then": then}, state in wanted) for (when, then), state in rules.items())
        yield _gauge(f"fieldgate_interlock_{name}", text, *states)


def _readings(channels: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    """The last reading of each channel. A missing value has no sample, its quality does."""
    last = [({"channel": name}, channels[name]) for name in sorted(channels)]
    yield _gauge(
        "fieldgate_reading_value",
        "Value of the last reading, in the channel's unit.",
        *(
            ({**channel, "unit": str(each.get("unit"))}, each["value"])
            for channel, each in last
            if each.get("value") is not None
        ),
    )
    yield _gauge(
        "fieldgate_reading_quality",
        "QARTOD flag of the last reading: 1 good, 2 not evaluated, 3 suspect, 4 fail, 9 missing.",
        *((channel, each.get("quality", 2)) for channel, each in last),
    )
    yield _gauge(
        "fieldgate_reading_timestamp_seconds",
        "Event time of the last reading in seconds since 1970.",
        *((channel, datetime.fromisoformat(str(each["time"])).timestamp()) for channel, each in last),
    )


def _gauge(name: str, text: str, *samples: tuple[dict[str, str], float]) -> Metric:
    family = Metric(name, text, "gauge")
    for labels, value in samples:
        family.add_sample(name, labels, value)
    return family
