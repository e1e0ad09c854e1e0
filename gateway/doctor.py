"""``fieldgate doctor``: looks at this machine with the eyes of a config, and says what to do.

Looks only: nothing is created, sent or locked. It needs no more rights than the daemon has.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Final, Literal

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from rich.console import Console
from rich.text import Text

from buffer.errors import OutboxError
from buffer.files import free_bytes
from buffer.reader import OutboxReader, files_of, user_of
from cloud.channel_records import CHANNELS_TOPIC
from cloud.errors import CloudError
from cloud.inspection import NoAnswer, look_at
from cloud.provision import TOPICS
from cloud.schema import DEAD_LETTER_TOPIC, EVENTS_TOPIC, RAW_TOPIC, RUNS_TOPIC, reading_topic
from drivers.registry import driver_type
from gateway import capacity
from gateway.clock import kernel_synchronised
from gateway.config import Config, check

State = Literal["ok", "warning", "error"]

_COLOURS: Final = {"ok": "green", "warning": "yellow", "error": "red"}
_FEW_DAYS: Final = 7.0
_MONTH_S: Final = 30 * 86_400
_MQTT_TIMEOUT_S: Final = 3.0

# TCP payload both ways for a reading, measured (docs/performance.md): live by readings a second, metered by
# readings a batch. Between the points by the logarithm.
_LIVE_BYTES: Final = ((2.0, 533.0), (12.0, 428.0))
_BATCH_BYTES: Final = ((12.0, 145.0), (60.0, 84.0), (720.0, 19.0))


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, what was found, and what to do about it where something is."""

    subject: str
    state: State
    found: str
    remedy: str | None = None


def examine(path: Path, timeout_s: float) -> Iterator[Finding]:
    """Everything, one after the other, as it is found."""
    config, problems = check(path)
    for problem in problems:
        yield Finding("config", "error" if problem.severity == "error" else "warning", str(problem))
    if config is None:
        return
    rate = capacity.readings_per_s(config)
    yield Finding("config", "ok", f"{path}: {capacity.channels(config)} channels, {rate:.3g} readings/s")
    yield from _outbox(config)
    yield _broker(config)
    yield from _kafka(config, timeout_s)
    yield _clock(config)
    yield _volume(config)


def _outbox(config: Config) -> Iterator[Finding]:
    path = config.outbox.path
    directory = path.parent
    there = next(place for place in (directory, *directory.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        yield Finding(
            "outbox", "error", f"{there} can't be written by this user",
            f"make {directory}, writable for the daemon's user, or set outbox.path; or ask as that user",
        )  # fmt: skip
        return
    user = user_of(path)
    use = f"in use by process {user}" if user is not None else "not in use"
    if path.exists():
        try:
            with OutboxReader(path) as reader:
                newest, oldest = reader.newest(), next(reader.blocks(), None)
        except OutboxError as error:
            yield Finding("outbox", "error", str(error), "the daemon recovers a damaged one at its start")
            return
        waiting = 0 if newest is None or oldest is None else newest.last - oldest.first + 1
        yield Finding("outbox", "ok", f"{path}: {waiting:,} records at most are waiting, {use}")
    else:
        yield Finding("outbox", "ok", f"{path}: not there yet, the daemon makes it")
    files = files_of(path)
    if files.aside:
        size = sum(files.aside.values())
        yield Finding(
            "outbox", "warning", f"{len(files.aside)} damaged files set aside, {size:,} bytes",
            "see gateway.events for what was lost; delete them when nobody wants to look",
        )  # fmt: skip
    yield _capacity(config, files.total, free_bytes(there))


def _capacity(config: Config, used: int, free: int) -> Finding:
    room = capacity.room_bytes(config, used, free)
    per_reading = capacity.bytes_per_reading(config)
    days = capacity.days(room, config, per_reading)
    if free <= config.outbox.min_free_disk:
        least = _size(config.outbox.min_free_disk)
        return Finding(
            "disk", "error", f"{_size(free)} free, outbox.min_free_disk is {least}",
            "free the disk, or lower outbox.min_free_disk: in an outage the oldest would be dropped at once",
        )  # fmt: skip
    if days == float("inf"):
        return Finding("disk", "ok", f"{_size(free)} free; no sensors, so only other devices fill the outbox")
    found = f"holds {days:.1f} days without Kafka ({_size(room)} of room, {per_reading:.0f} bytes a reading)"
    if days < _FEW_DAYS:
        return Finding("disk", "warning", found, "a larger outbox.max_bytes, or a larger disk")
    if used + free - config.outbox.min_free_disk < config.outbox.max_bytes:
        cap = f"; the disk has no room for outbox.max_bytes, {_size(config.outbox.max_bytes)}"
        return Finding("disk", "warning", found + cap, "free the disk, or lower outbox.max_bytes")
    return Finding("disk", "ok", found)


def _broker(config: Config) -> Finding:
    address = f"{config.mqtt.host}:{config.mqtt.port}"
    answered = threading.Event()
    refusals: list[str] = []

    def connected(_client: object, _data: object, _flags: object, reason: object, _more: object) -> None:
        if str(reason) != "Success":
            refusals.append(str(reason))
        answered.set()

    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.connect_timeout = _MQTT_TIMEOUT_S
    client.on_connect = connected
    begin_s = time.monotonic()
    try:
        client.connect(config.mqtt.host, config.mqtt.port)
    except OSError as error:
        return Finding(
            "mqtt", "error", f"{address}: {error}", "start Mosquitto there: systemctl status mosquitto"
        )
    client.loop_start()
    there = answered.wait(_MQTT_TIMEOUT_S)
    took_s = time.monotonic() - begin_s
    client.disconnect()
    client.loop_stop()
    if refusals:
        return Finding("mqtt", "error", f"{address} refuses: {refusals[0]}", "see the broker's log")
    if not there:
        return Finding(
            "mqtt", "error", f"{address} accepts and doesn't speak MQTT 5", "see mqtt.host and mqtt.port"
        )
    return Finding("mqtt", "ok", f"{address} answers in {took_s * 1000:.0f} ms")


def _kafka(config: Config, timeout_s: float) -> Iterator[Finding]:
    servers = config.kafka.bootstrap_servers
    try:
        cluster = look_at(servers, config.kafka.properties, timeout_s)
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
    yield Finding(
        "kafka", "ok", f"{servers} answers in {cluster.took_s * 1000:.0f} ms, {cluster.brokers} brokers"
    )
    yield from topic_findings(config, cluster.topics)


def topic_findings(config: Config, present: Collection[str]) -> Iterator[Finding]:
    """Which of the topics that are needed are missing."""
    wanted = wanted_topics(config)
    missing = sorted(wanted - set(present))
    ours = [topic for topic in missing if topic in TOPICS]
    others = [topic for topic in missing if topic not in TOPICS]
    if ours:
        remedy = f"fieldgate provision topics --bootstrap-servers {config.kafka.bootstrap_servers}"
        yield Finding("topics", "error", f"missing: {', '.join(ours)}", remedy)
    if others:
        yield Finding("topics", "error", f"missing: {', '.join(others)}", "create them, or see kafka.topic")
    if not missing:
        yield Finding("topics", "ok", f"all {len(wanted)} are there")


def wanted_topics(config: Config) -> set[str]:
    """Every topic this config sends to."""
    quantities = {
        channel.quantity
        for sensor in config.sensors
        for channel in driver_type(sensor.driver).channels_of(sensor.options)
    }
    for forward in config.forwards:
        quantities.update(part.quantity for part in forward.readings or ())
        if forward.quantity is not None:
            quantities.add(forward.quantity)
    topics = {reading_topic(config.kafka.topic, quantity) for quantity in quantities}
    raw = {RAW_TOPIC} if any(forward.payload == "raw" for forward in config.forwards) else set()
    return topics | raw | {RUNS_TOPIC, EVENTS_TOPIC, CHANNELS_TOPIC, DEAD_LETTER_TOPIC}


def _clock(config: Config) -> Finding:
    if config.board.kind in ("simulated", "replay"):
        return Finding("clock", "ok", f"the {config.board.kind} board has its own")
    if kernel_synchronised():
        return Finding("clock", "ok", "the kernel says that it is synchronised")
    remedy = "see timedatectl, chronyc tracking; a mast without network needs GPS or a clock chip"
    if config.clock.trust == "kernel":
        return Finding("clock", "warning", "not synchronised: readings wait in the outbox", remedy)
    return Finding("clock", "warning", 'not synchronised, and trusted: clock.trust = "always"', remedy)


def _volume(config: Config) -> Finding:
    rate = capacity.readings_per_s(config)
    if not rate:
        return Finding("volume", "ok", "no sensors of its own")
    metered = config.uplink.mode == "metered"
    each = between(_BATCH_BYTES, rate * config.uplink.batch_s) if metered else between(_LIVE_BYTES, rate)
    month = rate * each * _MONTH_S
    how = f"batches of {config.uplink.batch_s:g} s" if metered else "live"
    found = f"about {_size(month)} a month ({how}, {each:.0f} bytes a reading both ways)"
    return Finding("volume", "ok", found)


def between(points: tuple[tuple[float, float], ...], at: float) -> float:
    """The value at a place between measured points, by the logarithm of the place; the ends' beyond them."""
    for (left, before), (right, after) in pairwise(points):
        if at <= left:
            return before
        if at < right:
            return before + (after - before) * log(at / left) / log(right / left)
    return points[-1][1]


def _size(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


def run(path: Path, *, json_output: bool, timeout_s: float) -> int:
    """Print each finding: 0, or 1 where one is an error. ``timeout_s`` is for Kafka's answer."""
    findings = []
    console = Console(soft_wrap=True, highlight=False)
    for finding in examine(path, timeout_s):
        findings.append(finding)
        if not json_output:
            console.print(Text(f"{finding.state:<8}", style=_COLOURS[finding.state]), end="")
            console.print(Text(f"{finding.subject:<8}{finding.found}"))
            if finding.remedy is not None:
                console.print(Text(f"{'':<16}{finding.remedy}", style="bold"))
    failed = any(finding.state == "error" for finding in findings)
    if json_output:
        answer = {"ok": not failed, "findings": [asdict(finding) for finding in findings]}
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    return 1 if failed else 0
