"""The local broker, Kafka and its topics."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from queue import Empty, SimpleQueue
from typing import Final

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from cloud.errors import CloudError
from cloud.kafka.cluster_check import NoAnswer, describe_cluster
from cloud.kafka.provision import TOPICS
from gateway.commands.doctor.findings import SLOW_UPLINK, Finding
from gateway.config import Config
from gateway.config.kafka import open_templates, wanted_topics

_MQTT_TIMEOUT_S: Final = 3.0
_SETTINGS: Final = {"Retain not supported": "retain_available true", "QoS not supported": "max_qos 2"}


def broker(config: Config) -> Finding:
    """Whether Mosquitto accepts the gateway, with a last will such as the daemon's: retained, at QoS 1."""
    address = f"{config.mqtt.host}:{config.mqtt.port}"
    begin_s = time.monotonic()
    try:
        reason = _greeting(config, MQTTProtocolVersion.MQTTv311)
        took_s = time.monotonic() - begin_s
        if reason == "Success":
            return Finding("mqtt", "ok", f"{address} answers in {took_s * 1000:.0f} ms")
        # A broker says in MQTT 5 alone that it doesn't take a will.
        refused = _greeting(config, MQTTProtocolVersion.MQTTv5)
    except OSError as error:
        remedy = "start Mosquitto there: systemctl status mosquitto"
        return Finding("mqtt", "error", f"{address}: {error}", remedy)
    if refused in _SETTINGS:
        remedy = f"{_SETTINGS[refused]} in its mosquitto.conf: the daemon's last will is retained, at QoS 1"
        return Finding("mqtt", "error", f"{address} refuses the daemon: {refused}", remedy)
    if reason is None:
        found = f"{address} accepts the connection, and is no MQTT broker"
        return Finding("mqtt", "error", found, "see mqtt.host and mqtt.port")
    return Finding("mqtt", "error", f"{address} refuses: {reason}", "see the broker's log")


def _greeting(config: Config, protocol: MQTTProtocolVersion) -> str | None:
    """What a broker answers to a CONNECT; None: nothing in time. Raises OSError."""
    reasons: SimpleQueue[str | None] = SimpleQueue()
    client = Client(CallbackAPIVersion.VERSION2, protocol=protocol)
    client.connect_timeout = _MQTT_TIMEOUT_S
    if config.mqtt.login is not None:
        client.username_pw_set(*config.mqtt.login)
    # Empty: where it is published after all, it removes what is there.
    client.will_set(f"{config.mqtt.topic_root}/{config.gateway.id}/doctor", b"", qos=1, retain=True)
    client.on_connect = lambda _client, _data, _flags, reason, _more: reasons.put(str(reason))
    client.on_disconnect = lambda *_: reasons.put(None)
    client.connect(config.mqtt.host, config.mqtt.port)
    client.loop_start()
    try:
        return reasons.get(timeout=_MQTT_TIMEOUT_S)
    except Empty:
        return None
    finally:
        client.disconnect()
        client.loop_stop()


def kafka(config: Config, timeout_s: float) -> Iterator[Finding]:
    """Whether the cluster answers and has the topics."""
    servers = config.kafka.bootstrap_servers
    try:
        cluster = describe_cluster(servers, config.kafka.properties, timeout_s)
    except NoAnswer as error:
        yield Finding(
            "kafka", "error", f"{servers}: {error}",
            "name, port, firewall, kafka.properties (security.protocol, certificates); "
            "readings wait in the outbox meanwhile",
        )  # fmt: skip
        return
    except CloudError as error:
        yield Finding("kafka", "error", f"kafka.properties: {error}", "correct [kafka.properties]")
        return
    found = f"{servers} answers in {cluster.took_s * 1000:.0f} ms, {cluster.brokers} brokers"
    yield Finding("kafka", "ok", found)
    for server, problem in cluster.unreachable.items():
        yield Finding(
            "kafka", "error", f"it sends its clients to {server}, which isn't reached from here: {problem}",
            "advertised.listeners of that broker must have a name and port that this machine reaches",
        )  # fmt: skip
    if cluster.unreachable:
        return
    if config.uplink.mode == "live" and cluster.round_trip_s > config.outbox.commit_interval_s / 2:
        found = f"a request takes {cluster.round_trip_s * 1000:.0f} ms: {SLOW_UPLINK}"
        remedy = (
            f"outbox.commit_interval_s above {cluster.round_trip_s * 2:.1f}, as far as a power cut may cost"
        )
        yield Finding("kafka", "warning", found, remedy)
    yield from topic_findings(config, cluster.topics)


def topic_findings(config: Config, present: Collection[str]) -> Iterator[Finding]:
    """Which of the topics that are needed are missing."""
    wanted = {config.kafka.prefix + each for each in wanted_topics(config)}
    missing = sorted(wanted - set(present))
    if missing:
        remedy = f"fieldgate provision topics --bootstrap-servers {config.kafka.bootstrap_servers}"
        remedy += " -c CONFIG" if not TOPICS.keys() >= set(missing) else ""
        yield Finding("topics", "error", f"missing: {', '.join(missing)}", remedy)
    else:
        templates = "".join(f"; not known before messages come: {each}" for each in open_templates(config))
        yield Finding("topics", "ok", f"all {len(wanted)} are there{templates}")
