"""``fieldgate doctor`` examines if this machine is ready for a config; for people, or as JSON.

Nothing is created, sent or locked. It needs no more rights than the daemon has. Sensors are read only where
no daemon has them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

import msgspec
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from rich.filesize import decimal

from buffer.errors import OutboxError
from buffer.files import free_bytes, misowned_files
from buffer.reader import OutboxReader, files_of, user_of
from cloud.command_line import FAILED, OK, add_config, add_json, add_timeout, without_logs
from cloud.errors import CloudError
from cloud.kafka.cluster_check import NoAnswer, describe_cluster
from cloud.kafka.provision import TOPICS
from cloud.registry import PROVISION, NotRegistered, Registry, RegistryError
from cloud.wire.avro_readings import SUBJECT
from drivers.interface import Board, DriverError
from gateway.clock.system_clock import kernel_synchronised
from gateway.commands.doctor import machine
from gateway.commands.doctor.machine import Host
from gateway.commands.findings import print_findings, terminal
from gateway.commands.reading_rows import Row, number_text, reason_words, row_of_reading, rows_of_status
from gateway.config import Config, check
from gateway.config.kafka import open_templates, wanted_topics
from gateway.forwarding import capacity
from gateway.forwarding.reading_format import access_of
from gateway.sampling.one_shot import OneShotRead
from gateway.sampling.sampler import open_fitted_board
from gateway.status.client import NoStatus, daemon_status
from gateway.status.findings import CLOCK_REMEDY, FEW_DAYS, MORE_ROOM, RESTART, disk_low, slow_uplink
from gateway.status.status import Finding, Status

_SENSORS_S: Final = 20.0
_EXAMINED: Final = frozenset({"config", "disk", "heat", "power", "sensor"})
"""The areas that are examined on the machine itself: what the daemon has found there is the same."""
_MONTH_S: Final = 30 * 86_400

# TCP payload both ways for a reading, measured (docs/performance.md): live by readings a second, metered by
# readings a batch. Between the points by the logarithm.
_LIVE_BYTES: Final = ((2.0, 533.0), (12.0, 428.0))
_BATCH_BYTES: Final = ((12.0, 145.0), (60.0, 84.0), (720.0, 19.0))
_MQTT_TIMEOUT_S: Final = 3.0
_SETTINGS: Final = {"Retain not supported": "retain_available true", "QoS not supported": "max_qos 2"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the config, and how long to wait for Kafka."""
    add_config(parser)
    add_json(parser, "findings as JSON")
    add_timeout(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints each finding; returns 0, or 1 where one is an error."""
    # What goes wrong stands in the findings.
    without_logs("gateway", "drivers")
    found = examine(arguments.config, arguments.timeout)
    if arguments.json:
        findings = list(found)
        failed = any(finding.severity == "error" for finding in findings)
        print(json.dumps({"ok": not failed, "findings": msgspec.to_builtins(findings)}, indent=2))
        return FAILED if failed else OK
    return print_findings(found, *terminal())


def examine(path: Path, timeout_s: float, host: Host | None = None) -> Iterator[Finding]:
    """Yields everything as it is found. ``timeout_s`` is for Kafka's response."""
    config, problems = check(path)
    for problem in problems:
        yield Finding("config", "error" if problem.severity == "error" else "warning", str(problem))
    if config is None:
        return
    rate = capacity.readings_per_s(config)
    if not config.problems:
        yield Finding("config", "ok", f"{path}: {capacity.channels(config)} channels, {rate:.3g} readings/s")
    key = config.gateway.identity_key
    how = "don't prove themselves: there is no" if key is None else "prove themselves by"
    yield Finding("identity", "ok", f"its runs {how} gateway.identity_key")
    yield from outbox(config)
    status: Status | NoStatus | None
    try:
        status = daemon_status(config)
    except NoStatus as error:
        status = error
    yield from hardware(config, host or Host(), status=status)
    yield broker(config)
    yield from kafka(config, timeout_s)
    yield from registry(config, timeout_s)
    found = status.findings if isinstance(status, Status) else ()
    # A clock that the daemon trusts in any case is the kernel's to judge.
    judged = {each.area for each in found if each.area != "clock" or config.clock.trust == "kernel"}
    yield from (each for each in found if each.area in judged - _EXAMINED)
    if "clock" not in judged:
        yield clock(config)
    yield volume(config)


def hardware(
    config: Config,
    host: Host,
    open_board: Callable[[Config], Board] = open_fitted_board,
    status: Status | NoStatus | None = None,
) -> Iterator[Finding]:
    """Examines board, pins, buses and sensors; where the daemon runs, the sensors by its status."""
    wired = machine.needs(config.sensors)
    explained: set[str] = set()
    if config.board.kind == "raspberry-pi":
        yield from machine.pi(host)
        if host.is_pi:
            counting = getattr(config.board.options, "counting", "kernel")
            switches = bool(config.actuators)
            found = list(machine.devices(host, wired, counting=counting, relays=switches))
            yield from found
            if any(each.area == "i2c" and each.severity == "error" for each in found):
                explained = wired.on_bus
        else:
            explained = wired.on_bus | wired.on_pins
    if not (config.sensors or config.actuators):
        return
    if isinstance(status, NoStatus):
        yield Finding("sensor", "warning", f"not examined: {status}")
        return
    if status is not None:
        yield from _from_daemon(config, status)
        return
    try:
        board = open_board(config)
    except DriverError as error:
        yield Finding("board", "error", str(error))
        return
    with closing(board):
        if wired.on_bus - explained:
            try:
                found, silent = machine.i2c_bus(board.i2c(), wired)
            except DriverError as error:
                found, silent = [Finding("i2c", "error", str(error))], wired.on_bus
            yield from found
            explained |= silent
        yield from _from_board(config, board, explained)
        if config.board.kind != "raspberry-pi" or host.is_pi:
            yield from machine.relay_pins(config.actuators, board)


def _from_daemon(config: Config, status: Status) -> Iterator[Finding]:
    """Examines the daemon's last readings, and if they are proven."""
    if config.gateway.identity_key is not None and not status.run_proves_itself:
        found = "the running daemon's run began before this gateway.identity_key, and isn't proven by it"
        yield Finding("identity", "warning", found, RESTART)
    for sensor in config.sensors:
        rows = rows_of_status(status, [sensor])
        if any(row.pending for row in rows):
            yield Finding("sensor", "warning", f"{sensor.name}: {rows[0].words}")
        else:
            yield _finding(sensor.name, rows)


def _from_board(config: Config, board: Board, explained: Collection[str]) -> Iterator[Finding]:
    """Reads each sensor but those ``explained``: its readings, and its driver's diagnosis of the wiring."""
    wanted = [sensor for sensor in config.sensors if sensor.name not in explained]
    for result in OneShotRead(config.gateway.id, wanted, board).run(_SENSORS_S):
        rows = [row_of_reading(reading, result.sensor, result.trouble) for reading in result.readings]
        if rows:
            finding = _finding(result.sensor, rows)
            # The diagnosis has the same at greater length.
            if finding.severity != "error" or not result.diagnosis:
                yield finding
        else:
            yield Finding("sensor", "error", f"{result.sensor}: {result.trouble}")
        failed = any(row.failed for row in rows)
        for sentence in result.diagnosis:
            yield Finding("sensor", "error" if failed else "warning", f"{result.sensor}: {sentence}")


def _finding(sensor: str, rows: list[Row]) -> Finding:
    trouble = next((row.trouble for row in rows if row.trouble), None)
    if trouble is not None:
        return Finding("sensor", "error", f"{sensor}: {trouble}")
    values = ", ".join(number_text(row.value, row.unit) for row in rows)
    reasons = dict.fromkeys(reason for row in rows for reason in row.reasons)
    if not reasons:
        return Finding("sensor", "ok", f"{sensor}: {values}")
    words = "; ".join(map(reason_words, reasons))
    failed = any(row.failed for row in rows)
    return Finding("sensor", "error" if failed else "warning", f"{sensor}: {values}: {words}")


def clock(config: Config) -> Finding:
    """Examines if the time can be trusted, by the kernel."""
    if config.board.kind in ("simulated", "replay"):
        return Finding("clock", "ok", f"the {config.board.kind} board has its own")
    if kernel_synchronised():
        return Finding("clock", "ok", "synchronised, by the kernel")
    waits = config.clock.trust == "kernel"
    then = ": readings wait in the outbox" if waits else ', and trusted: clock.trust = "always"'
    return Finding("clock", "warning", f"not synchronised{then}", CLOCK_REMEDY)


def outbox(config: Config) -> Iterator[Finding]:
    """Examines the outbox's files, who uses them, and how long they last without Kafka."""
    path = config.outbox.path
    directory = path.parent
    there = next(place for place in (directory, *directory.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        yield Finding(
            "outbox", "error", f"{there} can't be written by this user",
            f"make {directory}, writable for the daemon's user, or set outbox.path; or run this as that user",
        )  # fmt: skip
        return
    user = user_of(path)
    use = f"in use by process {user}" if user is not None else "not in use"
    if path.exists():
        if misowned := misowned_files(path):
            found, _, command = misowned.partition(": ")
            yield Finding("outbox", "error", f"{found}: the service can't write it", command)
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
            "see gateway.events for what was lost; delete them when they are no longer needed: the daemon"
            " does so where readings need their room",
        )  # fmt: skip
    yield _capacity(config, files.total, free_bytes(there))


def _capacity(config: Config, used: int, free: int) -> Finding:
    limits = config.outbox
    for low in disk_low(free, limits.min_free_disk):
        return low
    room = capacity.room_bytes(config, used, free)
    per_reading = capacity.bytes_per_reading(config)
    days = capacity.days(room, config, per_reading)
    if days == float("inf"):
        found = f"{decimal(free)} free; no sensors, so only other devices fill the outbox"
        return Finding("disk", "ok", found)
    room_text = f"{decimal(room)} of room, {per_reading:.0f} bytes a reading"
    found = f"holds {days:.1f} days without Kafka ({room_text})"
    if days < FEW_DAYS:
        return Finding("disk", "warning", found, MORE_ROOM)
    if used + free - limits.min_free_disk < limits.max_bytes:
        found += f"; the disk has no room for outbox.max_bytes, {decimal(limits.max_bytes)}"
        return Finding("disk", "warning", found, "free the disk, or lower outbox.max_bytes")
    return Finding("disk", "ok", found)


def volume(config: Config) -> Finding:
    """Estimates the megabytes a month."""
    rate, readers = capacity.readings_per_s(config), capacity.reader_bytes(config)
    waiting = "".join(f"; {decimal(round(size))} to wait for {name}" for name, size in readers.items())
    if not rate:
        return Finding("volume", "ok", f"no sensors of its own{waiting}")
    metered = config.uplink.mode == "metered"
    points, at = (_BATCH_BYTES, rate * config.uplink.batch_s) if metered else (_LIVE_BYTES, rate)
    each = capacity.between(points, at)
    month = rate * each * _MONTH_S + sum(readers.values())
    how = f"batches of {config.uplink.batch_s:g} s" if metered else "live"
    found = f"about {decimal(round(month))} a month ({how}, {each:.0f} bytes a reading both ways{waiting})"
    return Finding("volume", "ok", found)


def broker(config: Config) -> Finding:
    """Examines if Mosquitto accepts the gateway, with a last will like the daemon's: retained, at QoS 1."""
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
    """Returns a broker's answer to a CONNECT, None without one in time. Raises OSError."""
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
    """Examines if the cluster answers and has the topics."""
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
        yield Finding("kafka", "error", str(error), "correct [kafka.properties]")
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
        took = f"a request takes {cluster.round_trip_s * 1000:.0f} ms"
        yield slow_uplink(took, cluster.round_trip_s)
    yield from topic_findings(config, cluster.topics)


def topic_findings(config: Config, present: Collection[str]) -> Iterator[Finding]:
    """Yields which of the topics that are needed are missing."""
    wanted = {config.kafka.prefix + each for each in wanted_topics(config)}
    missing = sorted(wanted - set(present))
    if missing:
        remedy = f"fieldgate provision topics --bootstrap-servers {config.kafka.bootstrap_servers}"
        remedy += " -c CONFIG" if not TOPICS.keys() >= set(missing) else ""
        yield Finding("topics", "error", f"missing: {', '.join(missing)}", remedy)
    else:
        templates = "".join(f"; not known before messages come: {each}" for each in open_templates(config))
        yield Finding("topics", "ok", f"all {len(wanted)} are there{templates}")


def registry(config: Config, timeout_s: float) -> Iterator[Finding]:
    """Examines what the registry answers; nothing is registered."""
    access = access_of(config.kafka)
    if access is None:
        return
    asked, number = Registry(access, timeout_s), None
    begin_s = time.monotonic()
    try:
        with suppress(NotRegistered):
            number = asked.own_id()
        took_ms = 1000 * (time.monotonic() - begin_s)
        refused = asked.incompatibility() if number is None else None
    except RegistryError as error:
        yield Finding(
            "registry", "error", str(error),
            "see kafka.schema_registry_url and its _ca, _username, _password; without the schema's id "
            "readings leave as JSON meanwhile",
        )  # fmt: skip
        return
    login = "" if access.username is None else f", and takes the login of {access.username}"
    yield Finding("registry", "ok", f"{access.url} answers in {took_ms:.0f} ms{login}")
    if number is not None:
        yield Finding("schema", "ok", f"{SUBJECT} has this version's: id {number}")
    elif refused is None:
        found = f"{SUBJECT} hasn't this version's, so readings leave as JSON; it can be registered"
        yield Finding("schema", "error", found, PROVISION)
    else:
        yield Finding(
            "schema", "error", f"{SUBJECT} takes none that is compatible with this version's: {refused}",
            "another registry or subject rule on the cloud side, or kafka.format = \"json\"",
        )  # fmt: skip
