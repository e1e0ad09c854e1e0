"""What passes between Kafka and the mast, by the running daemon: a connection of ours can't show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cloud.values import duration_text
from cloud.wire.reading_records import DEAD_LETTER_TOPIC
from gateway.commands.doctor.findings import TAKEN_OVER, Finding
from gateway.config import Config

_REMEDIES: Final = {
    "login": "its user and password: fieldgate provision gateway --rotate makes another one",
    "certificate": "a certificate that is valid for the name in bootstrap_servers: the broker's, or ours",
    "protocol": "correct security.protocol in [kafka.properties], or the port",
    "config": "correct [kafka.properties], or the files it names",
    "permission": "fieldgate provision gateway gives it: docs/secure-cluster.md",
    "topic": "fieldgate provision topics",
    "quota": "a higher rate in [users] of cloud.toml, or fewer readings",
    "replicas": "brokers of the cluster are down, or the topic has fewer replicas than min.insync.replicas",
    "unreachable": "name, port, firewall",
}
_KEPT: Final = "readings are kept in the outbox meanwhile"


def findings(config: Config, status: Mapping[str, Any]) -> Iterator[Finding]:
    """Of Kafka's refusals, commands, downlinks and posted readings; ``status`` is the daemon's."""
    yield from _refusals(status)
    if status.get("mqtt_taken_over"):
        yield Finding("mqtt", "error", TAKEN_OVER, "another gateway.id there, or stop the second daemon here")
    if count := status.get("dead_letters"):
        found = f"{count} messages since the daemon's start weren't forwarded, and are in {DEAD_LETTER_TOPIC}"
        yield Finding("letters", "warning", found, "event=message.refused in its log has topics and reasons")
    commands, downlinks = status.get("commands") or {}, status.get("downlinks") or {}
    if commands.get("problem"):
        yield Finding("command", "error", f"can't be read: {commands['problem']}")
    elif commands.get("allow"):
        yield Finding("command", "ok", f"read; {counts_text(commands['results']) or 'none yet'}")
    if downlinks.get("problem"):
        yield Finding("downlink", "error", f"can't be read: {downlinks['problem']}")
    for topic, each in (downlinks.get("topics") or {}).items():
        yield Finding("downlink", "warning" if each["refused"] else "ok", downlink_text(topic, each))
    http = status.get("http") or {}
    if http.get("port") is not None:
        state = "warning" if http["refused"] or http["unauthorized"] else "ok"
        yield Finding("http", state, http_text(http))  # type: ignore[arg-type] # one of both
    elif config.http.address is not None:
        found = f"the daemon doesn't listen on {config.http.listen}"
        yield Finding("http", "error", found, "event=http.unavailable in its log has the reason; then reload")


def _refusals(status: Mapping[str, Any]) -> Iterator[Finding]:
    kind, problem = status.get("kafka_refusal"), status.get("kafka_problem")
    parked = status.get("parked") or {}
    if problem and all(problem != each["problem"] for each in parked.values()):
        state = "warning" if kind == "quota" else "error"
        remedy = f"{_REMEDIES.get(kind or '', 'name, port, firewall')}; {_KEPT}"
        yield Finding("kafka", state, f"the daemon: {problem}", remedy)  # type: ignore[arg-type] # one of both
    for topic, each in parked.items():
        found = f"takes nothing for {topic}, for {duration_text(each['for_s'])}: {each['problem']}"
        forbidden = "permission" if "AUTHORIZATION" in each["problem"] else "topic"
        remedy = _REMEDIES[kind if kind in ("config", "replicas") else forbidden]
        yield Finding("kafka", "error", found, f"{remedy}; {_KEPT}")


def downlink_text(topic: str, counts: Mapping[str, Any]) -> str:
    """One downlink's figures."""
    lag = "?" if counts["lag"] is None else counts["lag"]
    refused = f", refused {counts_text(counts['refused'])}" if counts["refused"] else ""
    return f"{topic}: received {counts['received']}, published {counts['published']}, waiting {lag}{refused}"


def http_text(counts: Mapping[str, Any]) -> str:
    """What was posted since the daemon's start."""
    names = ("requests", "readings", "refused", "unauthorized")
    return f"port {counts['port']}: " + ", ".join(f"{name} {counts[name]}" for name in names)


def counts_text(counts: Mapping[str, int]) -> str:
    """``done 3, EXPIRED 1``."""
    return ", ".join(f"{name} {count}" for name, count in counts.items())
