"""Defines the gateway's status: the daemon builds it, ``/api/status`` serves it and commands read it.

The daemon builds it anew at each request. What is wrong is judged once, then (``gateway.status.findings``),
and stands in ``findings``: every reader shows the same words and remedies.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from cloud.wire.reading_records import Reading, format_time
from gateway.system.host import Machine

UNSURE: Final = ("unknown", "stale")
"""States of an interlock without a good reading, so far or for too long: its relay is in the safe state."""
Severity = Literal["ok", "warning", "error"]


class Finding(msgspec.Struct, frozen=True):
    """States what was found of one thing, and the remedy where there is one."""

    area: str
    severity: Severity
    what: str
    remedy: str | None = None


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """A channel's last reading."""

    time: str
    period_ms: int
    value: float | None
    unit: str
    raw: float | None
    raw_unit: str | None
    quality: int
    reasons: tuple[str, ...]
    seq: int

    @classmethod
    def of(cls, reading: Reading) -> Channel:
        """Takes the fields of a reading."""
        return cls(
            time=format_time(reading.time_us), period_ms=reading.period_ms, value=reading.value,
            unit=reading.unit, raw=reading.raw, raw_unit=reading.raw_unit, quality=reading.quality,
            reasons=reading.reasons, seq=reading.seq,
        )  # fmt: skip


class OwnChannel(Channel, frozen=True, kw_only=True):
    """The last reading of a channel of this gateway, and how many there were since the daemon's start."""

    valid: int
    """Readings that were good or not evaluated."""
    forwarded: int
    dropped: int


class Interlock(msgspec.Struct, frozen=True):
    """A rule of a relay, and whether it holds now."""

    when: str
    then: str
    state: Literal["unknown", "clear", "held", "stale"]


class RelayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A relay; ``problem`` is why it can't be switched."""

    state: str
    why: str
    problem: str | None
    switches: int
    interlocks: tuple[Interlock, ...]


class ParkedStatus(msgspec.Struct, frozen=True):
    """Seconds for which a Kafka topic has rejected records, and its latest reason."""

    for_s: int
    problem: str


class CommandsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Commands from Kafka: what is allowed, why none can be read, results by outcome or reason."""

    allow: tuple[str, ...]
    problem: str | None
    results: dict[str, int]


class DownlinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one Kafka topic for the local broker; ``lag`` is how many are still to be read."""

    received: int
    published: int
    refused: dict[str, int]
    lag: int | None


class DownlinksStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All downlinks; ``problem`` is why none can be read."""

    problem: str | None
    topics: dict[str, DownlinkStatus]


class HttpStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Readings that devices post; ``port`` is None where nothing listens."""

    port: int | None
    requests: int
    readings: int
    refused: int
    unauthorized: int
    pressure: int


class MqttProxyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Devices that publish to the gateway itself; ``port`` is None where nothing listens."""

    port: int | None
    clients: int
    connects: int
    messages: int
    acknowledged: int
    repeats: int
    unauthorized: int
    pressure: int
    subscriptions_refused: int
    refused: dict[str, int]


class ConfigStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The config in force: since when, its errors, and why the file as it is now was refused."""

    loaded_at: str
    error: str | None
    problems: tuple[str, ...]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about the running daemon. Counts are since its start."""

    gateway: str
    run: str
    run_proves_itself: bool
    state: Literal["sampling", "ended", "stopping"]
    now: str
    """The readings' clock, RFC 3339."""
    uptime_s: int
    main_loop_ago_s: float
    stuck: tuple[str, ...]
    """The parts that the watchdog finds stuck."""
    config: ConfigStatus
    machine: Machine

    clock: Literal["synced", "unsynced"]
    clock_given: bool
    clock_may_be_given: bool
    own_time: bool
    """Whether the board has a time of its own, as a replayed one has."""
    held: int
    """Records that wait for the clock."""
    repaired: int
    unsynced: int

    mqtt_connected: bool
    mqtt_taken_over: bool
    broker_dropped: int | None
    """Messages that the local broker has dropped, of all its clients; None where it doesn't publish that."""
    ignored: dict[str, int]
    """Messages that are not forwarded, by reason."""
    received: int
    dead_letters: int
    late_echoes: int

    uplink: str
    """The forwarder's state: healthy, draining, spilling, metered."""
    kafka_problem: str | None
    kafka_refusal: str | None
    """One of ``gateway.ports.REFUSALS``."""
    kafka_late_s: float | None
    kafka_confirmed_ago_s: float | None
    parked: dict[str, ParkedStatus]
    """The Kafka topics that reject records."""
    in_flight: int
    confirmed: int
    bytes_sent: int | None
    """Bytes sent to Kafka, a minute ago at most; None before the first count."""
    spilled: int
    drained: int

    outbox_records: int
    outbox_bytes: int
    outbox_max_bytes: int
    outbox_days_left: float | None
    outbox_problem: str | None
    outbox_memory_records: int
    outbox_memory_bytes: int
    dropped: dict[str, int]
    """Records that the outbox has dropped, by reason."""

    sampled: int
    channels: dict[str, OwnChannel]
    forwarded_channels: dict[str, Channel]
    """Channels of other devices, those read last; another gateway's with ``gateway/`` before it."""
    troubles: dict[str, str]
    """Why the last read of a sensor failed, by its name."""
    sensors_hung: tuple[str, ...]
    hang_restart_wait_s: int
    sensor_retries: dict[str, int]
    sampler_restarts: int
    samplers_abandoned: int
    spinnable: tuple[str, ...]
    """The sensors that count pulses."""
    site_moved_m: int | None
    supply_troubles: tuple[str, ...]
    under_voltage: int | None
    throttled: int | None

    relays: dict[str, RelayStatus]
    commands: CommandsStatus
    downlinks: DownlinksStatus
    http: HttpStatus
    mqtt_proxy: MqttProxyStatus

    findings: tuple[Finding, ...] = ()
    closes_in_s: int | None = None
    """Seconds until the page that serves this closes."""

    @property
    def id_taken(self) -> bool:
        """Returns True if another gateway with this id is seen, on the broker or among Kafka's readers."""
        return self.mqtt_taken_over or "another gateway with this id" in (self.commands.problem or "")

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """Returns the findings that an operator has to look at."""
        return tuple(each for each in self.findings if each.severity != "ok")
