"""Decides what a message from the broker is: a reading, an echo of our own, a dead letter. Makes its record.

Here are also the gateway's own topics, what it subscribes to, and which ``[[forward]]`` a topic belongs to.

Other devices' numbers become readings here: at their first receipt they get this gateway's id, this run, and
a number that is drawn only once everything else is decided, so that each number is a record's.

Samplers' threads make the records of own readings; the forwarder's thread owns everything else.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec
from paho.mqtt.matcher import MQTTMatcher

from cloud.wire import reading_records as wire
from cloud.wire.quantities import QUANTITIES, Quantities, kind_field
from cloud.wire.reading_records import RAW_TOPIC
from drivers.interface import Channel
from drivers.running_total import Total, added
from gateway.clock.hold import RECEIVED_AT, mark_unsynced
from gateway.config import Config
from gateway.config.bridges.model import RAW_QUANTITY, ForwardConfig, channel_name, singles
from gateway.config.kafka import topic_problem
from gateway.config.values import EACH, filled, matched, path_levels
from gateway.mqtt.payload import (
    NO_BATCH,
    AbsentValue,
    Change,
    apply,
    compiled,
    hides,
    items,
    measure,
    parse,
    transform,
    unwanted,
)
from gateway.ports import Clock, Record
from gateway.quality.qartod import range_reasons, worst_flag
from gateway.sequences import Sequences


@dataclass(frozen=True, slots=True)
class Topics:
    """The gateway's own topics on the local broker; ``reading`` is a template, ``readings`` a filter."""

    status: str
    run: str
    reading: str
    readings: str
    command_result: str

    @classmethod
    def of(cls, config: Config) -> Topics:
        """The topics under ``{topic_root}/{gateway}``."""
        root = f"{config.mqtt.topic_root}/{config.gateway.id}"
        return cls(
            f"{root}/status",
            f"{root}/run",
            root + "/{sensor}/{quantity}",
            f"{root}/+/+",
            f"{root}/command-result",
        )


def routes(config: Config) -> list[ForwardConfig]:
    """What is forwarded: the gateway's own readings, and the other devices' messages."""
    return [ForwardConfig(Topics.of(config).readings), *config.forwards]


def filters(config: Config) -> list[str]:
    """What is subscribed to."""
    return [forward.filter for forward in routes(config)]


_CACHED_TOPICS: Final = 1024
# A topic may have 64 KiB: longer ones than these are looked up each time, and a channel's source is the
# beginning of one and its hash, which bounds both in bytes.
_MAX_CACHED_CHARS: Final = 256


@dataclass(frozen=True, slots=True)
class Route:
    """How messages of one topic are forwarded.

    ``source`` is the MQTT topic. ``channel`` is ``{name}.{quantity}``, None where the topic gives no name.
    ``topic`` is Kafka's, with {quantity} for readings; ``topic_problem`` is why it can't be one. ``key`` is
    None where it is the reading's. ``changes`` are the steps, ``extra`` the fields that they set in readings
    made here; ``hides``: some of the message must not leave. ``batch``: a message has an array of readings.
    ``sender`` is the level of the topic that the filter's first wildcard stands for: brokers give each device
    topics of its own by it. ``parts`` are the routes of several readings.
    """

    forward: ForwardConfig
    source: str
    name: str | None
    channel: str | None
    topic: str
    topic_problem: str | None
    key: bytes | None
    changes: tuple[Change, ...]
    extra: Mapping[str, Any] | None
    hides: bool
    batch: bool
    sender: str | None
    parts: tuple[Route, ...] = ()


class Routes:
    """Finds a topic's forward. The filters don't overlap: ``check`` refuses that.

    ``readings`` is the template of the readings' topics in Kafka.
    """

    def __init__(self, forwards: Iterable[ForwardConfig], readings: str = "mqtt.{quantity}") -> None:
        self._readings = readings
        self._matcher = MQTTMatcher()  # type: ignore[no-untyped-call]
        for forward in forwards:
            self._matcher[forward.filter] = forward
        self._cached = lru_cache(_CACHED_TOPICS)(self._look_up)

    def find(self, topic: str) -> Route | None:
        """The route of a topic, None where no filter matches it."""
        return self._cached(topic) if len(topic) <= _MAX_CACHED_CHARS else self._look_up(topic)

    def _look_up(self, topic: str) -> Route | None:
        forward = next(self._matcher.iter_match(topic), None)  # type: ignore[no-untyped-call]
        if forward is None:
            return None
        parts = tuple(self._route(single, topic) for single in singles(forward))
        return self._route(forward, topic, parts)

    def _route(self, forward: ForwardConfig, topic: str, parts: tuple[Route, ...] = ()) -> Route:
        wild = matched(forward.filter, topic)

        def fill(template: str) -> str:
            return filled(template, wild).replace("{topic}", topic)

        raw, decoded = forward.payload == "raw", forward.payload in ("number", "json")
        kafka_topic, problem = RAW_TOPIC if raw else self._readings, None
        if forward.topic is not None:
            kafka_topic = filled(forward.topic, wild, slash=".")
            problem = topic_problem(kafka_topic, self._readings, raw=raw)
        extra: dict[str, Any] = {}
        if decoded:
            apply(compiled((step for step in forward.steps if step.set), fill), extra)
        name, quantity = channel_name(forward, topic), RAW_QUANTITY if raw else forward.quantity
        return Route(
            forward=forward,
            source=_source(topic),
            name=name,
            channel=None if name is None or quantity is None else f"{name}.{quantity}",
            topic=kafka_topic,
            topic_problem=problem,
            key=fill(forward.key or "{topic}").encode() if forward.key or raw else None,
            changes=compiled((step for step in forward.steps if not (decoded and step.set)), fill),
            extra=extra or None,
            hides=hides(forward.steps),
            batch=EACH in path_levels(forward.path or ""),
            sender=wild[0].partition("/")[0] if wild else None,
            parts=parts,
        )


def _source(topic: str) -> str:
    """A topic as it is kept for each channel."""
    if len(topic) <= _MAX_CACHED_CHARS:
        return topic
    return f"{topic[:_MAX_CACHED_CHARS]}… (SHA-256 {hashlib.sha256(topic.encode()).hexdigest()})"


log = logging.getLogger(__name__)

_MQTT_TOPIC: Final = "mqtt-topic"

Headers = tuple[tuple[str, bytes], ...]


class KafkaRecords:
    """The records of one run of ``gateway``; ``clock`` gives the time of receipt."""

    def __init__(self, gateway: str, run: str, topic: str, clock: Clock) -> None:
        self.topic = topic
        """The template of the Kafka topics that own readings go to."""
        self._key_prefix = f"{gateway}/".encode()
        self._gateway = gateway
        self._run = run
        self._clock = clock
        self._received = (0, (RECEIVED_AT, b""))
        self._dead_letters = 0
        # The first refusal of each kind is logged as a warning: a long backlog has many.
        self._reported: set[tuple[str, str]] = set()

    def own(self, reading: wire.Reading, mqtt_topic: str) -> Record:
        """A reading sampled here. Any thread may call this."""
        value = wire.encode_reading(reading)
        return self.reading(reading, value, mqtt_topic, mark_unsynced(reading), self.topic)

    def reading(
        self,
        reading: wire.Reading,
        value: bytes,
        mqtt_topic: str,
        unrepaired: Headers,
        topic: str,
        key: bytes | None = None,
    ) -> Record:
        """A reading with its JSON; ``topic`` is a template, ``unrepaired``: it waits for the clock."""
        key = wire.reading_key(reading.gateway, reading.channel) if key is None else key
        topic = wire.reading_topic(topic, reading.quantity)
        return Record(topic, key, value, (*self._headers(mqtt_topic), *unrepaired))

    def is_own(self, record: Record) -> bool:
        """Whether a reading was sampled here: its MQTT topic ends like its key. Forwards may make any key."""
        key, headers = record.key, record.headers
        return (
            key.startswith(self._key_prefix)
            and bool(headers)
            and headers[0][0] == _MQTT_TOPIC
            and headers[0][1].endswith(b"/" + key.replace(b".", b"/"))
        )

    def raw(
        self,
        payload: bytes,
        mqtt_topic: str,
        topic: str,
        key: bytes,
        channel: str,
        seq: int,
        *,
        retained: bool,
    ) -> Record:
        """A message as it came, with its identity in headers."""
        headers = (
            *self._headers(mqtt_topic),
            ("gateway", self._gateway.encode()),
            ("channel", channel.encode()),
            ("run", self._run.encode()),
            ("seq", str(seq).encode()),
            *((("retained", b"1"),) if retained else ()),
        )
        return Record(topic, key, payload, headers)

    def dead_letter(
        self, reason: str, detail: str, mqtt_topic: str, payload: bytes, *, hidden: bool = False
    ) -> Record:
        """What can't be forwarded; the bytes of one that may hold what a step hides stay here."""
        self._dead_letters += 1
        now_us = self._clock.now_ns() // 1000
        made = wire.dead_letter(
            self._gateway, self._run, self._dead_letters, reason, detail, mqtt_topic, now_us, payload
        )
        if hidden:
            made = msgspec.structs.replace(made, payload=b"")
        value = wire.encode_dead_letter(made)
        return Record(wire.DEAD_LETTER_TOPIC, self._gateway.encode(), value, self._headers(mqtt_topic))

    def refused(self, record: Record, problem: str) -> Record | None:
        """The dead letter of a record that Kafka will never take; None where it is one already.

        That one waits until the topic or the client takes messages of its size.
        """
        if record.topic == wire.DEAD_LETTER_TOPIC:
            return None
        source = dict(record.headers).get(_MQTT_TOPIC, b"").decode(errors="replace")
        fault = (record.topic, problem)
        level = logging.DEBUG if fault in self._reported else logging.WARNING
        self._reported.add(fault)
        text = "event=message.refused topic=%s reason=REFUSED_BY_KAFKA kafka_topic=%s error=%s"
        log.log(level, text, source, *fault)
        return self.dead_letter("REFUSED_BY_KAFKA", problem, source, record.value)

    def damaged_row(self, stored: bytes, problem: str) -> Record:
        """The dead letter of an outbox row that is not a record."""
        return self.dead_letter("BAD_OUTBOX_ROW", problem, "", stored)

    def _headers(self, mqtt_topic: str) -> Headers:
        now_ms = self._clock.now_ns() // 1_000_000
        received_ms, received_at = self._received
        if now_ms != received_ms:
            # Many come within one millisecond. Put in place at once: samplers' threads take it too.
            received_at = (RECEIVED_AT, wire.format_time(now_ms * 1000).encode())
            self._received = (now_ms, received_at)
        return ((_MQTT_TOPIC, mqtt_topic.encode()), received_at)


_MAX_CHANNELS: Final = 256
"""Other devices' channels in one run: the run record names each, and a topic is quickly made up."""
_MAX_TOPICS: Final = 256
"""Kafka topics of forwards in one run, for the same reasons."""

RETAINED, DROP_IF, ABSENT, NO_FORWARD = "RETAINED", "DROP_IF", "ABSENT", "NO_FORWARD"
FILTERED, FIRST_TOTAL = "FILTERED", "FIRST_TOTAL"
_EVERYTHING: Final = (ForwardConfig("#"),)


@dataclass(slots=True)
class _Claim:
    """The one source of a channel, topic and path, and its last running total."""

    source: str
    path: str | None
    total: Total | None = None
    held: bool = True
    """False once the forwards are others, with which the source doesn't make this channel: others may."""


class Intake:
    """Turns messages into Kafka records.

    ``clock`` is this machine's: the time of receipt, whatever time an emulated mast lives in. ``forwards``
    include the gateway's own topics. ``boot`` is the kernel's id of this boot; ``forwarded`` receives each
    reading of another device.
    """

    def __init__(
        self,
        gateway: str,
        issued: Sequences,
        topic: str,
        clock: Clock,
        forwards: Iterable[ForwardConfig] = _EVERYTHING,
        boot: str = "unknown",
        forwarded: Callable[[wire.Reading], None] = lambda reading: None,
    ) -> None:
        self.run = issued.run
        self.records = KafkaRecords(gateway, issued.run, topic, clock)
        """Of own readings too, and of what Kafka or the outbox refuses."""
        self.quantities: Quantities = QUANTITIES
        """What readings may be of; the daemon puts the config's here."""
        self.sensors: Collection[str] = ()
        """Names of its own sensors, which no other device's channel may take; set by the daemon too."""
        self.own_topic = ""
        """The template of its own readings' topics on the local broker; set by the daemon too."""
        self._gateway = gateway
        self._forwarded = forwarded
        self._issued = issued
        self._clock = clock
        self._boot = boot
        # Templates of Kafka topics, and whether raw messages go there.
        self._topics: dict[str, bool] = {}
        # The topic that claimed each channel.
        self._claims: dict[str, _Claim] = {}
        self.apply(topic, forwards)
        # Apart from the readings': raw messages are in no table of readings.
        self._issued_raw = Sequences()
        self._ignored = dict.fromkeys((RETAINED, DROP_IF, ABSENT, NO_FORWARD, FILTERED, FIRST_TOTAL), 0)

    def apply(self, topic: str, forwards: Iterable[ForwardConfig]) -> None:
        """Take a config's topic and forwards from the next message on."""
        self.records.topic = topic
        self._topics[topic] = False
        self._routes = Routes(forwards, topic)
        for channel, claim in self._claims.items():
            route = self._routes.find(claim.source)
            claim.held = route is not None and channel in {each.channel for each in route.parts or (route,)}

    @property
    def ignored(self) -> dict[str, int]:
        """Messages, or readings of them, not forwarded on purpose, by reason. Any thread may read it."""
        return dict(self._ignored)

    @property
    def last_raw_seq(self) -> dict[str, int]:
        """The highest number given to a raw message, by channel, of all topics. Any thread may read it."""
        return self._issued_raw.snapshot()

    @property
    def reading_topics(self) -> list[str]:
        """The topics of this run's readings that don't begin like all readings'. Any thread may read it."""
        templates = [template for template, raw in self._topics.copy().items() if not raw]
        names = {
            wire.reading_topic(template, quantity) for template in templates for quantity in self.quantities
        }
        return sorted(name for name in names if not name.startswith(wire.READING_TOPIC_PREFIX))

    def may_echo(self, mqtt_topic: str) -> bool:
        """Whether a message of this topic can be one of our own readings that comes back."""
        route = self._routes.find(mqtt_topic)
        return route is not None and route.forward.payload == "reading"

    def accept(
        self, mqtt_topic: str, payload: bytes, *, retained: bool = False, direct: bool = False
    ) -> Sequence[Record] | None:
        """What to send for a message: readings, a dead letter, nothing; None for an echo of this run's.

        ``retained``: the broker kept the message for new subscribers, so its age is unknown. ``direct``: a
        device has published it to the gateway itself, so it is no reading of ours; and it is acknowledged, so
        what no forward wants is kept too.
        """
        route = self._routes.find(mqtt_topic)
        if route is None and direct:
            return (self._refuse(NO_FORWARD, "no forward's filter matches", mqtt_topic, payload),)
        if route is None:
            # The broker's session remembers the subscriptions of an earlier config.
            return self._ignore(NO_FORWARD, mqtt_topic)
        hidden = route.hides
        try:
            if len(payload) > wire.MAX_PAYLOAD_BYTES:
                raise wire.InvalidReading("TOO_LARGE", f"{len(payload)} bytes")
            if route.changes and route.forward.payload in ("raw", "reading"):
                changed = transform(route.changes, payload)
                if changed is None:
                    return self._ignore(FILTERED, mqtt_topic)
                payload, hidden = changed, False
            if route.forward.payload == "reading":
                return self._reading(mqtt_topic, payload, route, direct=direct)
            if route.forward.payload == "raw":
                return (self._raw(mqtt_topic, payload, route, retained=retained),)
            if retained and route.forward.time_path is None:
                # As old as it may be, it would be stamped with now.
                return self._ignore(RETAINED, mqtt_topic)
            return self._readings(mqtt_topic, payload, route)
        except wire.InvalidReading as problem:
            return (self._refuse(problem.reason, problem.detail, mqtt_topic, payload, hidden=hidden),)

    def _reading(
        self, mqtt_topic: str, payload: bytes, route: Route, *, direct: bool
    ) -> Sequence[Record] | None:
        received_us = self._now_us() if self._clock.synced else None
        reading = wire.parse_reading(payload, received_us, unrepaired=True)
        self.check_sender(reading, None if direct else mqtt_topic)
        if reading.gateway != self._gateway and route.sender not in (None, reading.gateway):
            raise wire.InvalidReading(
                "FOREIGN", f"the topic is {route.sender}'s, gateway is {reading.gateway}"
            )
        unrepaired = mark_unsynced(reading) if reading.gateway == self._gateway else ()
        if reading.mono_ms is not None and not unrepaired:
            # Its time is its own affair: it isn't repaired here.
            reading = wire.parse_reading(payload, received_us)
        if (reading.gateway, reading.run) == (self._gateway, self.run):
            if reading.seq <= self._issued.last(reading.channel):
                return None
            raise wire.InvalidReading("FORGED", f"seq {reading.seq} was never issued")
        if reading.quantity not in self.quantities:
            raise wire.InvalidReading("UNKNOWN_QUANTITY", f"no topic for {reading.quantity}")
        self._check_topic(route)
        record = self.records.reading(reading, payload, mqtt_topic, unrepaired, route.topic, route.key)
        if reading.gateway == self._gateway:
            # Of an earlier run, whose end the broker's session has outlived.
            return (record.replayed(),)
        self._forwarded(reading)
        return (record,)

    def check_sender(self, reading: wire.Reading, mqtt_topic: str | None) -> None:
        """Raises InvalidReading for one of this gateway's name that hasn't come back by its own topic.

        ``mqtt_topic``: the local broker's; None where a device has handed the reading to the gateway itself.
        """
        if reading.gateway != self._gateway:
            return
        sensor = reading.channel.removesuffix(f".{reading.quantity}")
        if mqtt_topic != self.own_topic.format(sensor=sensor, quantity=reading.quantity):
            raise wire.InvalidReading("FORGED", f"{self._gateway} is this gateway: its readings are its own")

    def _raw(self, mqtt_topic: str, payload: bytes, route: Route, *, retained: bool) -> Record:
        if route.forward.topic is not None:
            self._check_topic(route)
        channel = route.channel or f"{RAW_QUANTITY}.{RAW_QUANTITY}"
        seq = self._issued_raw.draw(channel)
        key = route.key or b""
        return self.records.raw(payload, mqtt_topic, route.topic, key, channel, seq, retained=retained)

    def _readings(self, mqtt_topic: str, payload: bytes, route: Route) -> Sequence[Record]:
        """One reading for each part; those that can't be made become one dead letter, the others go on."""
        parsed = parse(payload, route.forward)
        if route.changes and not apply(route.changes, parsed):
            return self._ignore(FILTERED, mqtt_topic)
        self._check_topic(route)
        made: list[Record] = []
        problems: list[wire.InvalidReading] = []
        for part in route.parts or (route,):
            places: Sequence[int | None] = NO_BATCH
            if part.batch:
                try:
                    places = items(parsed, part.forward)
                except wire.InvalidReading as problem:
                    problems.append(problem)
                    continue
            for item in places:
                try:
                    made += self._measured(mqtt_topic, parsed, part, item)
                except wire.InvalidReading as problem:
                    problems.append(problem)
        if problems:
            reason = problems[0].reason
            # The same trouble with the time comes once for each part.
            details = dict.fromkeys(each.detail if each.reason == reason else str(each) for each in problems)
            made.append(self._refuse(reason, "; ".join(details), mqtt_topic, payload))
        return tuple(made)

    def _measured(self, mqtt_topic: str, parsed: object, route: Route, item: int | None) -> Sequence[Record]:
        forward = route.forward
        quantity = self.quantities[forward.quantity or ""]
        try:
            measured = measure(parsed, forward, item, state=quantity.kind == "state")
        except AbsentValue:
            return self._ignore(ABSENT, mqtt_topic)
        value, now_us, time_us = measured.value, self._now_us(), measured.time_us
        too_early = self._clock.synced and time_us is not None and time_us > now_us + wire.MAX_AHEAD_US
        if forward.counter_end is not None:
            claim = self._claim(route)
            if not 0 <= measured.raw <= forward.counter_end:
                # A device's code for an error: a step to it and back would be as large as the total.
                detail = f"{measured.raw:g} is not within 0 and counter_end, {forward.counter_end:g}"
                raise wire.InvalidReading("TOTAL_OUT_OF_RANGE", detail)
            last = claim.total
            if not too_early:
                # What a refused message would have added, the next one adds.
                claim.total = Total(measured.raw) if last is None else last.then(measured.raw)
            if last is None:
                return self._ignore(FIRST_TOTAL, mqtt_topic)
            step = added(last, measured.raw, forward.counter_end)
            if step is None:
                raise wire.InvalidReading("TOTAL_WENT_BACK", f"from {last.number:g} to {measured.raw:g}")
            value = forward.scale * step
        if unwanted(value, forward.drop_if):
            return self._ignore(DROP_IF, mqtt_topic)
        # A device that sends a time has it from a clock of its own.
        synced = self._clock.synced or time_us is not None
        if time_us is None:
            time_us = now_us // 1000 * 1000
        elif too_early:
            raise wire.InvalidReading("TIME_IN_FUTURE", "over 10 minutes ahead of its receipt")
        unit = quantity.unit
        converted = forward.scale != 1 or forward.offset != 0
        quality, reasons = _judge(value, forward, synced=synced)
        self._claim(route)
        channel = route.channel or ""
        reading = wire.Reading(
            gateway=self._gateway,
            channel=channel,
            quantity=quantity.name,
            unit=unit,
            time_us=time_us,
            period_ms=round(forward.period_s * 1000),
            value=value,
            raw=measured.raw,
            raw_unit=forward.raw_unit or (None if converted else unit),
            quality=quality,
            reasons=reasons,
            run=self.run,
            seq=self._issued.draw(channel),
            clock=wire.SYNCED if synced else wire.UNSYNCED,
            cal=None,
            boot=None if synced else self._boot,
            mono_ms=None if synced else max(time_us * 1000 - self._clock.offset_ns(), 0) // 1_000_000,
            extra={**(route.extra or {}), **kind_field(quantity)} or None,
        )
        self._forwarded(reading)
        unrepaired = mark_unsynced(reading, tested=forward.min is not None or forward.max is not None)
        encoded = wire.encode_reading(reading)
        return (self.records.reading(reading, encoded, mqtt_topic, unrepaired, route.topic, route.key),)

    def _check_topic(self, route: Route) -> None:
        """Raises InvalidReading where a forward's topic of its own can't be one, or is one too many."""
        topic = route.topic
        if route.topic_problem is not None:
            raise wire.InvalidReading("BAD_TOPIC", f"Kafka's topic {topic[:80]!r} {route.topic_problem}")
        if route.forward.topic is None or topic in self._topics:
            return
        if len(self._topics) >= _MAX_TOPICS:
            raise wire.InvalidReading(
                "TOO_MANY_TOPICS", f"Kafka's topic {topic} would be one over {_MAX_TOPICS} in this run"
            )
        self._topics[topic] = route.forward.payload == "raw"

    def _claim(self, route: Route) -> _Claim:
        """The channel of another device's reading, its own. Raises InvalidReading where it can have none."""
        source, path, channel = route.source, route.forward.path, route.channel
        if channel is None:
            raise wire.InvalidReading("BAD_TOPIC", "the topic gives no channel of 1 to 128 characters")
        if route.name in self.sensors:
            raise wire.InvalidReading("CHANNEL_TAKEN", f"{route.name} is one of the gateway's own sensors")
        claim = self._claims.get(channel)
        if claim is not None and claim.source == source and claim.path == path:
            claim.held = True
            return claim
        if claim is not None and claim.held:
            taken = f"is {claim.source}'s" if claim.source != source else f"is that of {claim.path}"
            raise wire.InvalidReading(
                "CHANNEL_TAKEN", f"{channel} {taken} in this run: give {source} a channel of its own"
            )
        if claim is None and len(self._claims) >= _MAX_CHANNELS:
            raise wire.InvalidReading(
                "TOO_MANY_CHANNELS", f"{channel} would be one over {_MAX_CHANNELS} in this run"
            )
        claim = self._claims[channel] = _Claim(source, path)
        return claim

    def _ignore(self, reason: str, mqtt_topic: str) -> tuple[()]:
        level = logging.DEBUG if self._ignored[reason] else logging.WARNING
        self._ignored[reason] += 1
        log.log(level, "event=message.ignored topic=%s reason=%s", mqtt_topic, reason)
        return ()

    def _refuse(
        self, reason: str, detail: str, mqtt_topic: str, payload: bytes, *, hidden: bool = False
    ) -> Record:
        log.warning("event=message.refused topic=%s reason=%s detail=%.600r", mqtt_topic, reason, detail)
        return self.records.dead_letter(reason, detail, mqtt_topic, payload, hidden=hidden)

    def _now_us(self) -> int:
        return self._clock.now_ns() // 1000


def _judge(value: float, forward: ForwardConfig, *, synced: bool) -> tuple[int, tuple[str, ...]]:
    """Quality and reasons: without a range nothing is evaluated."""
    lower = -math.inf if forward.min is None else forward.min
    upper = math.inf if forward.max is None else forward.max
    reasons = range_reasons(value, Channel(forward.quantity or "", "", "", lower, upper))
    if not synced:
        reasons = (*reasons, wire.CLOCK_UNSYNCED)
    if not reasons and forward.min is None and forward.max is None:
        return wire.NOT_EVALUATED, ()
    return worst_flag(reasons), reasons
