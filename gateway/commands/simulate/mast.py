"""One simulated mast: its records in the order in which they leave, as a gateway's.

Values are the emulated weather's; numbers, calibrations and quality flags are made by the gateway's own
parts. Nothing here knows the time of day: a period is told when it is over.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cloud.wire.channel_records import Period as InForce
from cloud.wire.fields import format_time
from cloud.wire.reading_records import STATUS_TOPIC, encode_reading, reading_key, reading_topic
from cloud.wire.run_records import Unfinished
from cloud.wire.site_records import SITES_TOPIC, SiteRecord, encode_site
from cloud.wire.status_records import OFFLINE, ONLINE, StatusRecord, encode_status, status_key
from drivers.emulation.environment import Site
from drivers.emulation.stepped_clock import SteppedClock
from drivers.emulation.weather import SimulatedEnvironment, Weather
from drivers.interface import Channel, FittedSensor, Measurement
from gateway.calibration.history import channel_records, kafka_record
from gateway.clock.hold import RECEIVED_AT
from gateway.commands.simulate.story import Run, SensorFault, Story
from gateway.config import Config, SensorConfig
from gateway.mqtt.intake import Topics
from gateway.ports import Record
from gateway.reporting.previous_runs import Predecessors
from gateway.reporting.run_ledger import RunLedger
from gateway.sampling.readings import ReadingFactory
from gateway.sampling.run_context import RunContext
from gateway.sampling.schedule import Period
from gateway.sequences import Sequences

_RECORD_EVERY_S: Final = 3_600
_LOST_AT_MOST_S: Final = 1.0
_READ_ERROR: Final = "READ_ERROR"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a simulated mast stands, and the seed of its own small weather."""

    site: SiteRecord
    local_seed: int


class _Sensor:
    """A sensor's channels in one run."""

    def __init__(self, sensor: SensorConfig, context: RunContext, period_s: int) -> None:
        self.config = sensor
        self.channels: tuple[Channel, ...] = tuple(sensor.channels)
        self.accumulates = False
        self.factory = ReadingFactory(sensor, self, context, period_s * 1_000_000_000)
        self.last: dict[str, float] = {}


class SimulatedMast:
    """A mast and what it has in its outbox. One thread uses it; periods come in order."""

    def __init__(self, config: Config, place: Place, story: Story, seed: int, period_s: int) -> None:
        sensors = tuple(replace(each, interval_s=float(period_s)) for each in config.sensors)
        self._config = replace(config, sensors=sensors)
        self._gateway = config.gateway.id
        self._place, self._story = place, story
        self._period_s = period_s
        site = Site(place.site.latitude, place.site.longitude, place.site.elevation_m or 0.0)
        fitted = [
            FittedSensor(each.name, each.driver, each.options, each.channels, each.height_m)
            for each in sensors
        ]
        weather = Weather(seed, site, place.local_seed)
        self._weather = SimulatedEnvironment(weather, 0, fitted)
        self._chance = random.Random(place.local_seed)  # noqa: S311 - no secret
        self._runs = list(story.runs)
        self._unfinished: tuple[Unfinished, ...] = ()
        self._previous: str | None = None
        self._run: _Run | None = None
        self._waiting: list[Record] = []

    def begin(self) -> Iterator[Record]:
        """What is known of the mast before its first reading."""
        yield Record(SITES_TOPIC, self._place.site.key, encode_site(self._place.site), ())
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
        return self._leaving()

    def end(self) -> list[Record]:
        """What is left once the uplink is back for good."""
        return self._leaving()

    def _leaving(self) -> list[Record]:
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


def _clock() -> SteppedClock:
    """One that stands still: each period says its time."""
    return SteppedClock(0, None, 1.0, lambda *_: None)


class _Run:
    """One run of a mast: its sensors, numbers and records."""

    def __init__(self, config: Config, run: Run, before: Predecessors, period_s: int) -> None:
        gateway = config.gateway.id
        self._sequences = Sequences(run.id)
        context = RunContext(
            gateway, run.id, _clock(), self._sequences, lambda *_: None, boot=run.id, extra=config.gateway.set
        )
        started = format_time(run.begin_s * 1_000_000)
        self._ledger = RunLedger(gateway, run.id, run.id, before, started)
        self.sensors: Sequence[_Sensor] = [_Sensor(each, context, period_s) for each in config.sensors]

    def record(self, state: str) -> Record:
        """The run record: nothing waits but what is behind it."""
        counts = {"last_seq": self._sequences.snapshot(), "in_flight": 0, "outbox_records": 0}
        return self._ledger.record("stopped" if state == "stopped" else "running", counts)
