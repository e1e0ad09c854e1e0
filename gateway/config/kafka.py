"""librdkafka's properties in the ``[kafka]`` section, by dotted name; and what topics a config sends to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cloud.toml_problems import KeyPath, is_secret, nearest, quote
from cloud.toml_source import leaves
from cloud.wire.channel_records import CHANNELS_TOPIC
from cloud.wire.quantities import QUANTITIES
from cloud.wire.reading_records import (
    COMMAND_RESULTS_TOPIC,
    DEAD_LETTER_TOPIC,
    EVENTS_TOPIC,
    RAW_TOPIC,
    READING_TOPIC_PREFIX,
    RUNS_TOPIC,
    STATUS_TOPIC,
    reading_topic,
)
from cloud.wire.site_records import SITES_TOPIC
from gateway.config.bridges.model import ForwardConfig
from gateway.config.model import Config
from gateway.config.named_files import KINDS, is_reference, opens, read_secret, resolve
from gateway.config.source import Source
from gateway.config.values import LEGAL_TOPIC, PLACEHOLDER, is_kafka_topic

_DURABILITY = "is the gateway's to set, else a reading could be lost or stored twice: delete this line"
_PARTITIONER = "is the gateway's to set (murmur2_random, as Java has it): delete this line"
_SERVERS = "belongs in kafka.bootstrap_servers"
_TRANSACTIONS = "makes Kafka take nothing, for the gateway sends no transactions: delete this line"
_UNKNOWN: Final = "No such configuration property"
_OFTEN_USED: Final = (
    "batch.size", "client.dns.lookup", "compression.level", "compression.type", "debug", "linger.ms",
    "log.connection.close", "message.timeout.ms", "queue.buffering.max.kbytes",
    "reconnect.backoff.max.ms", "request.timeout.ms", "sasl.mechanism", "sasl.password", "sasl.username",
    "security.protocol", "socket.keepalive.enable", "socket.timeout.ms", "ssl.ca.location",
    "ssl.certificate.location", "ssl.endpoint.identification.algorithm", "ssl.key.location",
    "ssl.key.password", "statistics.interval.ms",
)  # fmt: skip
"""An unknown name is compared with these: librdkafka doesn't list its names."""
REFUSED: Final[Mapping[str, str]] = {
    "acks": _DURABILITY,
    "request.required.acks": _DURABILITY,
    "enable.idempotence": _DURABILITY,
    "enable.gapless.guarantee": _DURABILITY,
    "transactional.id": _TRANSACTIONS,
    "partitioner": _PARTITIONER,
    "bootstrap.servers": _SERVERS,
    "metadata.broker.list": _SERVERS,
}
"""Properties of librdkafka that aren't the operator's to set, and why."""
_REGISTRY: Final = "schema_registry_"
_LOGIN: Final = ("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password")


def prepare(source: Source, raw: dict[str, Any]) -> None:
    """Flatten ``properties``, so that dotted and quoted keys are equal."""
    _check_format(source, raw)
    properties = raw.get("properties")
    if isinstance(properties, dict) and properties:
        raw["properties"] = _flatten(source, properties)


def _check_format(source: Source, raw: dict[str, Any]) -> None:
    """Avro needs a registry, and a registry Avro; what it logs in with is read."""
    registry = [key for key in raw if key.startswith(_REGISTRY)]
    if raw.get("format") == "avro" and f"{_REGISTRY}url" not in raw:
        source.error(
            ("kafka", "format"), f"needs {_REGISTRY}url, the registry that has the schema", starts=True
        )
    elif registry and raw.get("format", "json") == "json":
        source.warn(("kafka", registry[0]), 'has no effect without format = "avro"')
    for one, other in (("username", "password"), ("password", "username")):
        if _REGISTRY + one in raw and _REGISTRY + other not in raw:
            source.error(("kafka", _REGISTRY + one), f"needs {_REGISTRY}{other} too", starts=True)
    if f"{_REGISTRY}password" in raw and str(raw.get(f"{_REGISTRY}url")).startswith("http:"):
        source.warn(("kafka", f"{_REGISTRY}url"), "sends the password in the clear: better https")
    resolve(source, ("kafka", f"{_REGISTRY}password"), raw)


def _flatten(source: Source, properties: Mapping[str, Any]) -> dict[str, str]:
    """The properties by dotted name, as librdkafka takes them.

    The daemon starts with any error here: sampling and the outbox don't depend on the uplink's settings. What
    is wrong stays in, so that no producer is made with half of what was meant.
    """
    # Imported here: it loads librdkafka, and most configs have no properties.
    from cloud.kafka.cluster_check import NAMES_A_FILE, property_problem

    flat: dict[str, str] = {}
    refused: list[KeyPath] = []
    absent, files = False, True
    paths: dict[str, KeyPath] = {}

    def refuse(path: KeyPath, message: str, suggestion: str | None = None) -> None:
        source.error(path, message, suggestion, starts=True)
        refused.append(path)

    for path, value in leaves(properties, ("kafka", "properties"), KINDS):
        name = ".".join(str(part) for part in path[2:])
        paths.setdefault(name, path)
        if name in REFUSED:
            refuse(path, REFUSED[name])
        elif name in flat:
            refuse(path, f"{name} is given twice, dotted and quoted")
            flat[name] += f" or {value}"
        elif is_reference(value):
            secret = read_secret(source, path, value)
            if secret is not None:
                flat[name] = secret
            absent = absent or secret is None
            if property_problem(name, secret or "x") is not None:
                refuse(path, f"is no property of librdkafka that takes this: {quote(name)}")
        elif isinstance(value, str | int | float):
            flat[name] = str(value).lower() if isinstance(value, bool) else str(value)
            problem = property_problem(name, flat[name])
            if problem is not None and problem.startswith(_UNKNOWN):
                refuse(path, f"is no property of librdkafka: {quote(name)}", nearest(name, _OFTEN_USED))
            elif problem is not None:
                shown = f"librdkafka doesn't take this value for {name}" if is_secret(name) else problem
                refuse(path, shown)
            elif is_secret(name):
                source.warn_of_readers(path, source.path)
            elif name.endswith(NAMES_A_FILE) and flat[name] not in ("", "probe"):
                files = opens(source, path, Path(flat[name])) and files
        else:
            given = "what stands there" if is_secret(name) else quote(value)
            refuse(path, f"must be a string, a number, true or false, not {given}")
            flat[name] = str(value)
    if flat and not absent and not refused:
        problem = _together_problem(source, flat, files=files)
        if problem is not None:
            # Likely a login that lacks its half, or a key of another certificate.
            message = f"librdkafka doesn't take these together: {problem}"
            source.error(("kafka", "properties"), message, starts=True)
    protocol = flat.get("security.protocol", "plaintext").upper()
    login = next((name for name in _LOGIN if name in paths), None)
    if login is not None and not protocol.startswith("SASL_"):
        # librdkafka leaves the login out, without a word.
        message = f"logs nobody in with security.protocol {protocol}: that must be SASL_SSL or SASL_PLAINTEXT"
        source.error(paths[login], message, starts=True)
    return flat


def _together_problem(source: Source, properties: Mapping[str, str], *, files: bool) -> str | None:
    from cloud.kafka.cluster_check import together_problem
    from cloud.kafka.librdkafka import METERED_PROPERTIES

    problem = together_problem(properties, files=files)
    uplink = source.raw.get("uplink")
    if problem is None and isinstance(uplink, Mapping) and uplink.get("mode") == "metered":
        # Stored readings have a producer of their own.
        problem = together_problem({**METERED_PROPERTIES, **properties})
    return problem


def topic_problem(template: str, readings: str, *, raw: bool) -> str | None:
    """Why a forward may not send to a topic, which may have {quantity}; None where it may.

    ``readings`` is the template of the readings' topics; ``raw`` messages are no readings.
    """
    names = _of_all(template)
    if not all(map(is_kafka_topic, names)):
        return LEGAL_TOPIC
    if any(name.startswith(("gateway.", "__")) for name in names):
        return 'must not begin with "gateway." or "__": those are the gateway\'s and Kafka\'s own'
    of_readings = names & _of_all(readings) or template.startswith(READING_TOPIC_PREFIX)
    if raw and of_readings and template != RAW_TOPIC:
        return "is a topic of readings, where jobs would refuse raw messages: choose another name"
    if not raw and RAW_TOPIC in names:
        return f"must not be {RAW_TOPIC}, which is for raw messages: choose another name"
    return None


def wanted_topics(config: Config) -> set[str]:
    """Every topic this config sends to, as far as it determines them."""
    quantities = {channel.quantity for sensor in config.sensors for channel in sensor.channels}
    topics = {RUNS_TOPIC, STATUS_TOPIC, EVENTS_TOPIC, CHANNELS_TOPIC, DEAD_LETTER_TOPIC}
    topics |= {reading_topic(config.kafka.topic, quantity) for quantity in quantities}
    topics |= {COMMAND_RESULTS_TOPIC} if config.commands.allow else set()
    topics |= {SITES_TOPIC} if config.site.position is not None else set()
    for forward in config.forwards:
        template = forward.topic or (RAW_TOPIC if forward.payload == "raw" else config.kafka.topic)
        if PLACEHOLDER.search(template) is None:
            topics |= {reading_topic(template, quantity) for quantity in _quantities(forward, template)}
    return topics


def open_templates(config: Config) -> list[str]:
    """The forwards' topics that depend on what devices publish."""
    return [each.topic for each in config.forwards if each.topic and PLACEHOLDER.search(each.topic)]


def check_lengths(source: Source, config: Config) -> None:
    """Refuse a prefix with which a topic is longer than Kafka's names may be."""
    topics = wanted_topics(config).union(each.topic for each in config.downlinks)
    longest = max(topics, key=len)
    if not is_kafka_topic(config.kafka.prefix + longest):
        source.error(("kafka", "prefix"), f"makes {longest} longer than the 249 characters of Kafka's names")


def destinations(config: Config | None) -> tuple[set[str], tuple[str, ...]]:
    """Where readings and messages go by this config: topics, and how others begin; without one the usual."""
    if config is None:
        return set(), (READING_TOPIC_PREFIX,)
    begins = (template.partition("{")[0] for template in open_templates(config))
    return wanted_topics(config), (READING_TOPIC_PREFIX, *begins)


def _quantities(forward: ForwardConfig, template: str) -> set[str]:
    """The quantities that a forward sends to the topics of a template, as far as they are known."""
    known = {part.quantity for part in forward.readings or (forward,) if part.quantity}
    return known or (set() if "{quantity}" in template else {""})


def _of_all(template: str) -> set[str]:
    return {reading_topic(template, quantity) for quantity in QUANTITIES}
