"""``fieldgate simulate``: records of simulated masts, in the order in which a gateway's leave.

Values are the emulated weather's; numbers, calibrations and quality flags are made by the gateway's own
parts. A period is reported when it is over.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Literal

from cloud.command_line import OK, CommandError, add_kafka, count, kafka_of, positive
from cloud.kafka.producer import KafkaSink
from cloud.terminal import ShowProgress, progress_bar
from cloud.wire.channel_records import Period as InForce
from cloud.wire.fields import format_time
from cloud.wire.reading_records import STATUS_TOPIC, encode_reading, reading_key, reading_topic
from cloud.wire.run_records import Unfinished
from cloud.wire.site_records import SiteRecord
from cloud.wire.status_records import OFFLINE, ONLINE, StatusRecord, encode_status, status_key
from drivers.emulation.environment import Site
from drivers.emulation.stepped_clock import SteppedClock
from drivers.emulation.weather import SimulatedEnvironment, Weather
from drivers.interface import Channel, FittedSensor, Measurement
from gateway.calibration.history import channel_records, kafka_record
from gateway.clock.hold import RECEIVED_AT
from gateway.commands.demo.layout import MAST
from gateway.commands.outbox.import_file import Sending
from gateway.config import Config, SensorConfig, load
from gateway.config.quality import site_pressure_kpa
from gateway.mqtt.intake import Topics
from gateway.ports import Record
from gateway.reporting.previous_runs import Predecessors
from gateway.reporting.run_ledger import RunLedger
from gateway.sampling.readings import ReadingFactory, RunContext
from gateway.sampling.schedule import Period
from gateway.sequences import Sequences

_DAY_S: Final = 86_400
_HOUR_S: Final = 3_600

Fault = Literal["stuck", "slow", "silent", "noisy"]
FAULTS: Final[tuple[Fault, ...]] = ("stuck", "slow", "silent", "noisy")


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a gateway: seconds since the epoch from and until; ``is_killed``: by a power cut."""

    id: str
    begin_s: int
    end_s: int
    is_killed: bool


@dataclass(frozen=True, slots=True)
class SensorFault:
    """A sensor that fails for a while."""

    sensor: str
    kind: Fault
    begin_s: int
    end_s: int


@dataclass(frozen=True, slots=True)
class Story:
    """A mast's days: its runs in order, the times without an uplink, and its faults."""

    runs: tuple[Run, ...]
    offline: tuple[tuple[int, int], ...]
    faults: tuple[SensorFault, ...]

    def is_offline(self, time_s: int) -> bool:
        """Whether what is sampled now waits for the uplink."""
        return any(begin <= time_s < end for begin, end in self.offline)

    def fault_of(self, sensor: str, time_s: int) -> SensorFault | None:
        """The fault of a sensor at this time."""
        found = (
            each for each in self.faults if each.sensor == sensor and each.begin_s <= time_s < each.end_s
        )
        return next(found, None)


def tell(seed: int, gateway: str, sensors: Sequence[str], begin_s: int, end_s: int) -> Story:
    """A mast's story: restarts every few days, half of them power cuts; outages of minutes to hours."""
    chance = random.Random(f"{seed}/{gateway}")  # noqa: S311 - no secret
    runs, at_s = [], begin_s
    while at_s < end_s:
        until_s = min(end_s, at_s + round(chance.expovariate(1 / (4 * _DAY_S))) + 600)
        name = f"{chance.getrandbits(48):012x}"
        runs.append(Run(name, at_s, until_s, is_killed=until_s < end_s and chance.random() < 0.5))
        at_s = until_s + round(chance.uniform(120, _HOUR_S))
    offline = _spells(chance, begin_s, end_s, every_s=2 * _DAY_S, shortest_s=600, longest_s=8 * _HOUR_S)
    faults = [
        SensorFault(chance.choice(sensors), chance.choice(FAULTS), *spell)
        for spell in _spells(chance, begin_s, end_s, every_s=4 * _DAY_S, shortest_s=_HOUR_S, longest_s=_DAY_S)
    ]
    return Story(tuple(runs), tuple(offline), tuple(faults))


def _spells(
    chance: random.Random, begin_s: int, end_s: int, *, every_s: float, shortest_s: float, longest_s: float
) -> list[tuple[int, int]]:
    """Times apart from each other, short ones more often than long ones."""
    found, at_s = [], begin_s + chance.expovariate(1 / every_s)
    while at_s < end_s:
        length_s = shortest_s * (longest_s / shortest_s) ** chance.random()
        found.append((round(at_s), round(at_s + length_s)))
        at_s += length_s + chance.expovariate(1 / every_s)
    return found


_RECORD_EVERY_S: Final = 3_600
_LOST_AT_MOST_S: Final = 1.0
_READ_ERROR: Final = "READ_ERROR"


class _Sensor:
    """A sensor's channels in one run."""

    def __init__(self, sensor: SensorConfig, context: RunContext, period_s: int) -> None:
        self.config = sensor
        self.channels: tuple[Channel, ...] = tuple(sensor.channels)
        self.accumulates = False
        self.factory = ReadingFactory(sensor, self, context, period_s * 1_000_000_000)
        self.last: dict[str, float] = {}


class SimulatedMast:
    """A mast and what it has in its outbox. One thread uses it; periods come in order.

    ``seed`` is that of the weather, ``local_seed`` that of the mast's own part in it.
    """

    def __init__(
        self, config: Config, site: SiteRecord, story: Story, seed: int, local_seed: int, period_s: int
    ) -> None:
        sensors = tuple(replace(each, interval_s=float(period_s)) for each in config.sensors)
        self._config = replace(config, sensors=sensors)
        self._gateway = config.gateway.id
        self._site, self._story = site, story
        self._period_s = period_s
        place = Site(site.latitude, site.longitude, site.elevation_m or 0.0)
        fitted = [
            FittedSensor(each.name, each.driver, each.options, each.channels, each.height_m)
            for each in sensors
        ]
        weather = Weather(seed, place, local_seed)
        self._weather = SimulatedEnvironment(weather, 0, fitted)
        self._chance = random.Random(local_seed)  # noqa: S311 - no secret
        self._runs = list(story.runs)
        self._unfinished: tuple[Unfinished, ...] = ()
        self._previous: str | None = None
        self._run: _Run | None = None
        self._waiting: list[Record] = []

    def begin(self) -> Iterator[Record]:
        """What is known of the mast before its first reading."""
        yield kafka_record(self._site)
        since_us = self._story.runs[0].begin_s * 1_000_000
        for record in channel_records(self._config):
            yield kafka_record(replace(record, revision=1, in_force=True, periods=(InForce(since_us),)))

    def period(self, begin_s: int) -> list[Record]:
        """What leaves at the end of the period that begins then: nothing while the uplink is away."""
        end_s = begin_s + self._period_s
        while self._runs and self._runs[0].begin_s <= begin_s:
            if begin_s < self._runs[0].end_s:
                self._waiting += self._sampled(self._runs[0], begin_s)
            if end_s < self._runs[0].end_s:
                break
            self._waiting += self._ended(self._runs.pop(0), end_s)
        if self._story.is_offline(end_s):
            return []
        return self.leave()

    def leave(self) -> list[Record]:
        """What waits: all of it leaves once the uplink is there."""
        leaving, self._waiting = self._waiting, []
        return leaving

    def _sampled(self, run: Run, begin_s: int) -> Iterator[Record]:
        if self._run is None:
            before = Predecessors(self._previous, self._unfinished)
            self._run = _Run(self._config, run, before, self._period_s)
            yield self._run.record("running")
            yield self._status(run, ONLINE, begin_s)
        for sensor in self._run.sensors:
            yield from self._readings(sensor, begin_s)
        if begin_s % _RECORD_EVERY_S < self._period_s:
            yield self._run.record("running")

    def _ended(self, run: Run, end_s: int) -> Iterator[Record]:
        if self._run is None:
            return
        yield self._run.record("running" if run.is_killed else "stopped")
        yield self._status(run, OFFLINE, None if run.is_killed else end_s)
        self._previous, self._run = run.id, None
        if run.is_killed:
            self._unfinished = (*self._unfinished[-3:], Unfinished(run.id, "reset", _LOST_AT_MOST_S))

    def _status(self, run: Run, state: str, time_s: int | None) -> Record:
        time_us = None if time_s is None else time_s * 1_000_000
        revision = {ONLINE: 1}.get(state, 0 if time_us is None else 2)
        status = StatusRecord(
            self._gateway, state, run.id, time_us, clock="synced", uplink="healthy", revision=revision
        )
        return Record(STATUS_TOPIC, status_key(self._gateway), encode_status(status), ())

    def _readings(self, sensor: _Sensor, begin_s: int) -> Iterator[Record]:
        fault = self._story.fault_of(sensor.config.name, begin_s)
        period = Period(begin_s * 1_000_000_000, self._story.runs[0].begin_s * 1_000_000_000, synced=True)
        for channel in sensor.channels:
            measured = self._measured(sensor, channel, begin_s, fault)
            reading = sensor.factory.make(channel, period, measured)
            mqtt_topic = Topics.of(self._config).reading.format(
                sensor=sensor.config.name, quantity=channel.quantity
            )
            received = format_time((begin_s + self._period_s) * 1_000_000)
            headers = (("mqtt-topic", mqtt_topic.encode()), (RECEIVED_AT, received.encode()))
            topic = reading_topic(self._config.kafka.topic, reading.quantity)
            key = reading_key(reading.gateway, reading.channel)
            # It is all long past.
            yield Record(topic, key, encode_reading(reading), headers).replayed()

    def _measured(
        self, sensor: _Sensor, channel: Channel, begin_s: int, fault: SensorFault | None
    ) -> Measurement | str:
        name = f"{sensor.config.name}.{channel.quantity}"
        value = self._weather.value(name, (begin_s + self._period_s // 2) * 1_000_000_000)
        if value is None or (fault is not None and fault.kind == "silent"):
            return _READ_ERROR
        if sensor.config.kind_of(channel.quantity) == "accumulated":
            value *= self._period_s
        if fault is not None and fault.kind == "stuck":
            value = sensor.last.get(name, value)
        elif fault is not None and fault.kind == "slow":
            value *= 0.85
        elif fault is not None and fault.kind == "noisy" and self._chance.random() < 0.05:
            value += 0.6 * (channel.upper - channel.lower) * self._chance.random()
        sensor.last[name] = value
        slope, offset = (getattr(sensor.config.options, each, None) for each in ("slope", "offset"))
        raw = (value - offset) / slope if slope and offset is not None else value
        return Measurement(channel.quantity, round(value, 4), round(raw, 4))


class _Run:
    """One run of a mast: its sensors, numbers and records."""

    def __init__(self, config: Config, run: Run, before: Predecessors, period_s: int) -> None:
        gateway = config.gateway.id
        self._sequences = Sequences(run.id)
        # It stands still: each period has its time.
        clock = SteppedClock(0, None, 1.0, lambda *_: None)
        context = RunContext(
            gateway, run.id, clock, self._sequences, lambda *_: None, boot=run.id, extra=config.gateway.set
        )
        started = format_time(run.begin_s * 1_000_000)
        self._ledger = RunLedger(gateway, run.id, run.id, before, started)
        self.sensors: Sequence[_Sensor] = [_Sensor(each, context, period_s) for each in config.sensors]

    def record(self, state: str) -> Record:
        """The run record: nothing waits but what is behind it."""
        counts = {"last_seq": self._sequences.snapshot(), "in_flight": 0, "outbox_records": 0}
        return self._ledger.record("stopped" if state == "stopped" else "running", counts)


_NAMES: Final = ("Ridge", "Pass", "Plateau", "Saddle", "Shoulder", "Dome", "Spur", "Col")
_MIDDLE: Final = (27.7, 85.5)
_UTC_OFFSET_MIN: Final = 345


class Fleet:
    """``gateways`` masts as ``config`` has one, from ``begin_s`` to ``end_s``: the same for each seed."""

    def __init__(
        self, config: Config, gateways: int, seed: int, period_s: int, begin_s: int, end_s: int
    ) -> None:
        self._times = range(begin_s, end_s, period_s)
        digits = max(2, len(str(gateways)))
        self._masts = [
            _mast(config, f"sim-{number:0{digits}}", seed, self._times) for number in range(1, gateways + 1)
        ]

    def __len__(self) -> int:
        """Periods of all masts."""
        return len(self._times) * len(self._masts)

    def records(self) -> Iterator[tuple[int, list[Record]]]:
        """Records in the order in which they leave, with the number of periods they complete."""
        for mast in self._masts:
            yield 0, list(mast.begin())
        for begin_s in self._times:
            for mast in self._masts:
                yield 1, mast.period(begin_s)
        for mast in self._masts:
            yield 0, mast.leave()


def _mast(config: Config, gateway: str, seed: int, times: range) -> SimulatedMast:
    chance = random.Random(f"{seed}/{gateway}/place")  # noqa: S311 - no secret
    site = SiteRecord(
        gateway,
        times.start * 1_000_000,
        1,
        round(_MIDDLE[0] + chance.uniform(-1.5, 1.5), 5),
        round(_MIDDLE[1] + chance.uniform(-2.0, 2.0), 5),
        float(chance.randrange(900, 3200, 10)),
        _UTC_OFFSET_MIN,
        f"{chance.choice(_NAMES)} {chance.randrange(1, 100)}",
        "simulated",
    )
    # A mast that stands still has no track: channels without readings would count as lost.
    sensors = tuple(
        _at(each, site.elevation_m or 0.0) for each in config.sensors if "location" not in each.quality
    )
    own = replace(config, gateway=replace(config.gateway, id=gateway), sensors=sensors)
    story = tell(seed, gateway, [each.name for each in config.sensors], times.start, times.stop)
    return SimulatedMast(own, site, story, seed, chance.getrandbits(32), times.step)


def _at(sensor: SensorConfig, elevation_m: float) -> SensorConfig:
    """The sensor with what the site's height changes: which pressures can occur there."""
    rules = sensor.quality.get("pressure")
    if rules is None:
        return sensor
    there = replace(rules, site_range=site_pressure_kpa(elevation_m))
    return replace(sensor, quality={**sensor.quality, "pressure": there})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How large a fleet, for how long, and which Kafka gets it."""
    parser.description = (
        "Fills Kafka with the past days of a fleet that never was: weather, outages, faults, late data. "
        "The jobs make a lake of it as of any other."
    )
    add_kafka(parser, "the cluster; its topics must be there (fieldgate provision topics)")
    add = parser.add_argument
    add("--gateways", type=count, default=10, metavar="N", help="masts, of 12 channels each (default: 10)")
    add("--days", type=positive, default=1.0, metavar="D", help="how many, up to now (default: 1)")
    add("--period", dest="period_s", type=count, default=60, metavar="S",
        help="seconds between two readings of a channel (default: 60)")  # fmt: skip
    add("--until", type=_moment, metavar="TIME", help="end of the last day, RFC 3339 (default: now)")
    add("--seed", type=int, default=1, metavar="N", help="the same seed makes the same fleet (default: 1)")
    add("--rate", type=positive, default=20_000.0, metavar="R",
        help="records a second at most (default: 20000)")  # fmt: skip


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-11-26T12:00:00Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def run(arguments: argparse.Namespace) -> int:
    """Send it all. Raises CommandError, ConfigError, CloudError."""
    servers, properties, prefix = kafka_of(arguments)
    if servers is None:
        raise CommandError("which Kafka? name it with --bootstrap-servers HOST:PORT, or --cloud FILE")
    now_s = time.time()
    until_s = now_s if arguments.until is None else arguments.until
    if until_s > now_s:
        raise CommandError("--until is yet to come: readings of the future are refused")
    period_s = arguments.period_s
    end_s = int(until_s) // period_s * period_s
    begin_s = end_s - max(1, round(arguments.days * _DAY_S / period_s)) * period_s
    fleet = Fleet(load(MAST, at_work=False), arguments.gateways, arguments.seed, period_s, begin_s, end_s)
    properties = {"delivery.timeout.ms": "60000", **properties}
    sink: KafkaSink[None] = KafkaSink(servers, "fieldgate-simulate", properties, prefix=prefix)
    with closing(sink), progress_bar("periods of a mast") as progress:
        if not sink.usable:
            raise CommandError(sink.problem or "no producer")
        delivered = send(fleet, sink, arguments.rate, progress)
    print(f"{delivered:,} records of {arguments.gateways} masts are in Kafka")
    return OK


def send(fleet: Fleet, sink: KafkaSink[None], rate: float, progress: ShowProgress) -> int:
    """Sends a fleet's records, at most so many a second; returns how many. Raises CommandError."""
    sending, begun_s = Sending(sink), time.monotonic()
    done = given = 0
    for periods, records in fleet.records():
        for record in records:
            sending.send(record)
            given += 1
        sending.take(0.0)
        while (ahead_s := given / rate - (time.monotonic() - begun_s)) > 0.05:
            sending.take(min(ahead_s, 0.5))
        _check(sending)
        done += periods
        progress(done, len(fleet))
    sending.finish()
    _check(sending)
    return sending.confirmed


def _check(sending: Sending) -> None:
    for problem in sending.undelivered:
        raise CommandError(
            f"Kafka doesn't take a record: {sending.sink.reason or problem}; "
            "are the topics there? fieldgate provision topics makes them"
        )
