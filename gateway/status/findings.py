"""Judges the daemon's health by its status, in words and remedies; nothing else does. Pure.

``doctor``, ``commission``, ``status``, the status page, the daily report and the support bundle show these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from cloud.values import duration_text
from cloud.wire.reading_records import DEAD_LETTER_TOPIC, SYNCED
from gateway.config import Config
from gateway.config.outputs import condition
from gateway.status.status import UNSURE, Finding, Status

RESTART: Final = "sudo systemctl restart fieldgate"
RELOAD: Final = "sudo systemctl reload fieldgate"
FEW_DAYS: Final = 7.0
"""Room for fewer days is worth a warning."""
MORE_ROOM: Final = "a larger outbox.max_bytes, or a larger disk"
KEEP_TIME: Final = "see timedatectl, chronyc tracking; a mast without a time server needs GPS or a clock chip"
CLOCK_REMEDY: Final = f"{KEEP_TIME}, or until the next boot your phone's time: sudo fieldgate phone"

_STALLED_S: Final = 15.0
"""The main loop is stalled after so long without a turn; it has one each second."""
_NEARLY_FULL: Final = 0.8
_LIVE_CONFIRMED_S: Final = 90.0
"""Something is confirmed each minute at the least, the run's record; over a metered uplink, once a batch."""
_HOT_C: Final = 80.0
_KEPT: Final = "readings are kept in the outbox meanwhile"
_REMEDIES: Final = {
    "login": "its user and password: fieldgate provision gateway --rotate makes another one",
    "certificate": "a certificate that is valid for the name in bootstrap_servers: the broker's, or ours",
    "protocol": "correct security.protocol in [kafka.properties], or the port",
    "config": "correct [kafka.properties], or the files it names",
    "permission": "fieldgate provision gateway gives it: docs/secure-cluster.md",
    "topic": "its operator makes it: fieldgate provision topics --bootstrap-servers HOST:PORT",
    "quota": "a higher rate in [users] of cloud.toml, or fewer readings",
    "replicas": "brokers of the cluster are down, or the topic has fewer replicas than min.insync.replicas",
    "unreachable": "name, port, firewall",
}


def find(status: Status, config: Config) -> Iterator[Finding]:
    """Yields one finding at least for each part of the daemon; ``config`` is the one in force."""
    yield from _daemon(status)
    yield from _machine(status, config)
    yield _clock(status, config)
    yield from _broker(status)
    yield from _kafka(status, config)
    yield from _outbox(status)
    if status.sensors_hung:
        remedy = "its wiring and supply; the daemon restarts by itself after ten minutes"
        yield Finding("sensor", "error", f"hangs: {', '.join(status.sensors_hung)}", remedy)
    if status.site_moved_m is not None:
        found = f"the mast was moved: by GPS it is {status.site_moved_m:,} m from its place in the config"
        remedy = "find out who moved it; if it stays, give [site] the new position and its day as valid_from"
        yield Finding("site", "warning", found, remedy)
    yield from _relays(status)
    yield from _traffic(status, config)


def stalled(status: Status) -> list[str]:
    """Returns what a restart may cure, so neither a lost uplink nor a dead sensor."""
    found = []
    if status.main_loop_ago_s > _STALLED_S:
        found.append(f"main loop stalled for {status.main_loop_ago_s:.0f} s")
    return found + [f"{part} stalled" for part in status.stuck]


def disk_low(free_bytes: int, min_free_disk: int) -> Iterator[Finding]:
    """Yields an error where the disk has no room for readings."""
    if free_bytes <= min_free_disk:
        found = f"{free_bytes / 1e6:,.0f} MB free, outbox.min_free_disk is {min_free_disk / 1e6:,.0f} MB"
        remedy = (
            "free the disk, or lower outbox.min_free_disk: in an outage memory alone keeps what is new, and "
            "the oldest is dropped once half of it is full"
        )
        yield Finding("disk", "error", found, remedy)


def heat(celsius: float | None, *, slowed: bool) -> Iterator[Finding]:
    """Yields a warning where the processor is too hot, or slowed down."""
    if slowed or (celsius is not None and celsius >= _HOT_C):
        temperature = "too hot, or too weak a supply" if celsius is None else f"at {celsius:.0f} °C"
        found = f"the processor is {temperature}" + (" and slowed down" if slowed else "")
        yield Finding("heat", "warning", found, "shade or vent the box; from 80 °C on the Pi slows down")


def weak_supply(when: str, *, now: bool) -> Finding:
    """Returns the finding that the supply of a Raspberry Pi is too low, or was."""
    remedy = "a stronger 5 V supply, shorter and thicker wires: the Pi resets, and cards lose data"
    return Finding("power", "error" if now else "warning", f"the supply {when}", remedy)


def slow_uplink(what: str, confirm_s: float) -> Finding:
    """Returns the finding that Kafka confirms so late that each reading is stored before."""
    found = f"{what}: over half of outbox.commit_interval_s, so each reading is written to the card first"
    remedy = f"outbox.commit_interval_s above {confirm_s * 2:.1f}, as far as a power cut may cost"
    return Finding("kafka", "warning", found, remedy)


def counts_text(counts: Mapping[str, int]) -> str:
    """Formats counts as in ``done 3, EXPIRED 1``."""
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _daemon(status: Status) -> Iterator[Finding]:
    found = stalled(status)
    for each in found:
        yield Finding("daemon", "error", each, f"systemd restarts it; else: {RESTART}")
    if not found:
        uptime = duration_text(status.uptime_s)
        yield Finding("daemon", "ok", f"runs, version {status.machine.version}, for {uptime}")
    remedy = f"correct it; then {RELOAD}, or {RESTART} where it takes a restart"
    for problem in status.config.problems:
        yield Finding("config", "error", problem, remedy)
    if status.config.error is not None:
        found_text = f"the file as it is now was refused, the one before goes on:\n{status.config.error}"
        yield Finding("config", "error", found_text, remedy)


def _machine(status: Status, config: Config) -> Iterator[Finding]:
    machine = status.machine
    if machine.disk_free_bytes is not None:
        yield from disk_low(machine.disk_free_bytes, config.outbox.min_free_disk)
    yield from heat(machine.cpu_celsius, slowed="throttled" in status.supply_troubles)
    if "under_voltage" in status.supply_troubles:
        yield weak_supply("is below 4.63 V, or was within ten minutes", now=True)


def _clock(status: Status, config: Config) -> Finding:
    if status.own_time:
        return Finding("clock", "ok", f"the {config.board.kind} board has its own")
    if status.clock == SYNCED:
        trusted = 'taken as right: clock.trust = "always"'
        return Finding("clock", "ok", "synchronised" if config.clock.trust == "kernel" else trusted)
    if status.clock_given and not status.held:
        return Finding("clock", "warning", "as a phone or GPS gave it, until the next boot", KEEP_TIME)
    waiting = f"not synchronised: {status.held:,} readings wait in the outbox"
    return Finding("clock", "warning", waiting, CLOCK_REMEDY)


def _broker(status: Status) -> Iterator[Finding]:
    if status.mqtt_connected:
        unknown = "; whether it drops messages is unknown" if status.broker_dropped is None else ""
        yield Finding("mqtt", "ok", f"the local broker is connected{unknown}")
    else:
        remedy = "systemctl status mosquitto; mqtt.host, mqtt.port and the password in [mqtt]"
        yield Finding("mqtt", "error", "no connection to the local broker", remedy)
    if status.mqtt_taken_over:
        found = "another gateway with this id takes its MQTT session again and again: a cloned SD card?"
        remedy = "another gateway.id there, or stop the second daemon here"
        yield Finding("mqtt", "error", found, remedy)
    if status.broker_dropped:
        found = f"the local broker has dropped {status.broker_dropped:,} messages, of all its clients"
        yield Finding("mqtt", "warning", found, "raise max_queued_messages in mosquitto.conf")
    if status.dead_letters:
        found = (
            f"{status.dead_letters:,} messages since the daemon's start weren't forwarded, "
            f"and are in {DEAD_LETTER_TOPIC}"
        )
        remedy = "event=message.refused in its log has topics and reasons"
        yield Finding("mqtt", "warning", found, remedy)


def _kafka(status: Status, config: Config) -> Iterator[Finding]:
    kind, problem = status.kafka_refusal, status.kafka_problem
    for topic, each in status.parked.items():
        found = f"rejects records for {topic}, for {duration_text(each.for_s)}: {each.problem}"
        forbidden = "permission" if "AUTHORIZATION" in each.problem else "topic"
        remedy = _REMEDIES[kind if kind in ("config", "replicas") else forbidden]
        yield Finding("kafka", "error", found, f"{remedy}; {_KEPT}")
    if problem and all(problem != each.problem for each in status.parked.values()):
        remedy = f"{_REMEDIES[kind or 'unreachable']}; {_KEPT}"
        yield Finding("kafka", "warning" if kind == "quota" else "error", problem, remedy)
    elif not status.parked:
        yield _confirmed(status, config)
    if status.kafka_late_s is not None:
        yield slow_uplink(f"it confirms after {status.kafka_late_s:g} s", status.kafka_late_s)


def _confirmed(status: Status, config: Config) -> Finding:
    limit_s = _LIVE_CONFIRMED_S + (2 * config.uplink.batch_s if config.uplink.mode == "metered" else 0.0)
    ago_s = status.kafka_confirmed_ago_s
    remedy = f"{_REMEDIES['unreachable']}; {_KEPT}"
    if ago_s is None:
        found = f"{config.kafka.bootstrap_servers} has confirmed nothing so far"
        return Finding("kafka", "warning", found, remedy)
    found = f"last confirmation {duration_text(ago_s)} ago"
    return Finding("kafka", "warning", found, remedy) if ago_s > limit_s else Finding("kafka", "ok", found)


def _outbox(status: Status) -> Iterator[Finding]:
    if status.outbox_problem is not None:
        records, size = status.outbox_memory_records, status.outbox_memory_bytes
        found = (
            f"can't be written, {records:,} of its records are in memory only ({size:,} bytes): "
            f"{status.outbox_problem}"
        )
        remedy = "free or replace the disk; a restart of the daemon before that loses what is in memory"
        yield Finding("outbox", "error", found, remedy)
    share, days = status.outbox_bytes / status.outbox_max_bytes, status.outbox_days_left
    found = f"{status.outbox_records:,} records wait, {share:.0%} full"
    if days is not None:
        found += f", room for {days:.1f} days without Kafka"
    if share > _NEARLY_FULL or (days is not None and days < FEW_DAYS):
        yield Finding("outbox", "warning", found, MORE_ROOM)
    else:
        yield Finding("outbox", "ok", found)
    if lost := sum(status.dropped.values()):
        reasons = counts_text(status.dropped)
        found = f"{lost:,} records were dropped since the daemon's start: {reasons}"
        yield Finding("outbox", "warning", found, f"{MORE_ROOM}; gateway.events names each")


def _relays(status: Status) -> Iterator[Finding]:
    for name, relay in status.relays.items():
        if relay.problem is not None:
            remedy = "the daemon tries again each second"
            yield Finding("relay", "error", f"{name}: {relay.problem}", remedy)
            continue
        unsure = [rule.when for rule in relay.interlocks if rule.state in UNSURE]
        found = f"{name}: {relay.state} ({relay.why})"
        if unsure:
            channels = ", ".join(dict.fromkeys(condition(when).channel for when in unsure))
            remedy = f"safe until there is a good reading of {channels}"
            yield Finding("relay", "warning", found, remedy)
        else:
            yield Finding("relay", "ok", found)


def _traffic(status: Status, config: Config) -> Iterator[Finding]:
    """Judges what passes between Kafka, devices and the mast beside readings."""
    commands, http = status.commands, status.http
    if commands.problem is not None:
        yield Finding("command", "error", f"can't be read: {commands.problem}")
    elif commands.allow:
        yield Finding("command", "ok", f"read; {counts_text(commands.results) or 'none yet'}")
    yield from _downlinks(status)
    if http.port is not None:
        names = ("requests", "readings", "refused", "unauthorized")
        found = f"port {http.port}: " + ", ".join(f"{name} {getattr(http, name)}" for name in names)
        yield Finding("http", "warning" if http.refused or http.unauthorized else "ok", found)
    elif config.http.address is not None:
        remedy = "event=http.unavailable in its log has the reason; then reload"
        yield Finding("http", "error", f"the daemon doesn't listen on {config.http.listen}", remedy)


def _downlinks(status: Status) -> Iterable[Finding]:
    if status.downlinks.problem is not None:
        yield Finding("downlink", "error", f"can't be read: {status.downlinks.problem}")
    for topic, each in status.downlinks.topics.items():
        waiting = "?" if each.lag is None else each.lag
        refused = f", refused {counts_text(each.refused)}" if each.refused else ""
        found = f"{topic}: received {each.received}, published {each.published}, waiting {waiting}{refused}"
        yield Finding("downlink", "warning" if each.refused else "ok", found)
