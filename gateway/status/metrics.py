"""The daemon's status as Prometheus' text format (version 0.0.4). Pure.

Names are base units with their suffix; a counter begins at 0 with each start of the daemon. What is unknown
is left out, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_COUNTERS: Final[Mapping[str, tuple[str, str]]] = {
    "sampled": ("fieldgate_sampled_total", "Readings sampled since the start."),
    "confirmed": ("fieldgate_confirmed_total", "Records that Kafka has confirmed."),
    "spilled": ("fieldgate_spilled_total", "Records that went to the outbox."),
    "drained": ("fieldgate_drained_total", "Records of the outbox that Kafka has confirmed."),
    "dead_letters": ("fieldgate_dead_letters_total", "Messages that were refused, with their reason."),
    "broker_dropped": ("fieldgate_broker_dropped_total", "Messages the local broker dropped, whoever's."),
    "sampler_restarts": ("fieldgate_sampler_restarts_total", "Samplers started again after a failure."),
}
_GAUGES: Final[Mapping[str, tuple[str, str]]] = {
    "in_flight": ("fieldgate_in_flight_records", "Records on their way to Kafka."),
    "held": ("fieldgate_held_records", "Records that wait for the clock to be set."),
    "outbox_records": ("fieldgate_outbox_records", "Records in the outbox."),
    "outbox_bytes": ("fieldgate_outbox_bytes", "Size of the outbox."),
    "outbox_max_bytes": ("fieldgate_outbox_max_bytes", "What the outbox may grow to."),
    "outbox_memory_records": (
        "fieldgate_outbox_memory_records",
        "Records kept in memory, for the disk fails.",
    ),
    "kafka_confirmed_ago_s": ("fieldgate_kafka_confirmed_age_seconds", "Since Kafka confirmed anything."),
    "samplers_abandoned": ("fieldgate_samplers_abandoned", "Samplers whose driver hangs."),
    "uptime_s": ("fieldgate_uptime_seconds", "Since the daemon's start."),
}
_VITALS: Final[Mapping[str, tuple[str, str]]] = {
    "disk_free_bytes": ("fieldgate_disk_free_bytes", "Free on the outbox's file system."),
    "cpu_celsius": ("fieldgate_cpu_temperature_celsius", "Of the processor."),
    "load": ("fieldgate_load1", "Load average over one minute."),
}
_UPLINKS: Final = ("healthy", "draining", "spilling", "metered")


def render(status: Mapping[str, Any], resident: int | None = None) -> str:
    """The exposition of one status; ``resident`` is the process's memory in bytes."""
    return "\n".join([*_lines(status, resident), ""])


def _lines(status: Mapping[str, Any], resident: int | None) -> Iterator[str]:
    machine = status.get("machine") or {}
    yield from _head("fieldgate_build_info", "gauge", "Which version runs; always 1.")
    labels = {"version": machine.get("version", "unknown"), "gateway": status.get("gateway", "")}
    yield _sample("fieldgate_build_info", labels, 1)
    for kind, names in (("counter", _COUNTERS), ("gauge", _GAUGES)):
        for key, (name, told) in names.items():
            yield from _one(name, kind, told, status.get(key))
    for key, (name, told) in _VITALS.items():
        yield from _one(name, "gauge", told, machine.get(key))
    yield from _one("process_resident_memory_bytes", "gauge", "Of the daemon.", resident)
    synced, connected = status.get("clock") == "synced", bool(status.get("mqtt_connected"))
    yield from _one("fieldgate_clock_synced", "gauge", "1 once the time is known.", synced)
    yield from _one("fieldgate_broker_connected", "gauge", "1 with the local broker there.", connected)
    yield from _head("fieldgate_uplink", "gauge", "1 for the state the uplink is in.")
    for state in _UPLINKS:
        yield _sample("fieldgate_uplink", {"state": state}, status.get("uplink") == state)
    yield from _channels(status.get("channels") or {})


def _channels(channels: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The last reading of each channel. A missing value has no sample, its quality does."""
    ordered = [(name, channels[name]) for name in sorted(channels)]
    yield from _head("fieldgate_reading_value", "gauge", "Last value, in the channel's unit.")
    for name, last in ordered:
        if last.get("value") is not None:
            labels = {"channel": name, "unit": last.get("unit")}
            yield _sample("fieldgate_reading_value", labels, last["value"])
    yield from _head("fieldgate_reading_quality", "gauge", "QARTOD flag of the last reading, 1 to 9.")
    for name, last in ordered:
        yield _sample("fieldgate_reading_quality", {"channel": name}, last.get("quality", 2))
    yield from _head("fieldgate_reading_timestamp_seconds", "gauge", "Event time of the last reading.")
    for name, last in ordered:
        moment = datetime.fromisoformat(str(last["time"])).timestamp()
        yield _sample("fieldgate_reading_timestamp_seconds", {"channel": name}, moment)


def _one(name: str, kind: str, told: str, value: float | None) -> Iterator[str]:
    if value is not None:
        yield from _head(name, kind, told)
        yield _sample(name, {}, value)


def _head(name: str, kind: str, told: str) -> Iterator[str]:
    yield f"# HELP {name} {told}"
    yield f"# TYPE {name} {kind}"


def _sample(name: str, labels: Mapping[str, object], value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels.items())
    number = float(value)
    shown = repr(int(number)) if number.is_integer() and math.fabs(number) < 2**53 else repr(number)
    return f"{name}{{{inside}}} {shown}" if inside else f"{name} {shown}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
