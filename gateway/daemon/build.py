"""Builds the daemon's parts from a config: at the start all of them, at a reload those that change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from buffer.drops import Drop
from buffer.tiered_outbox import TieredOutbox
from cloud.kafka.producer import KafkaSink
from cloud.wire.channel_records import ChannelRecord
from drivers.boards.registry import open_board
from drivers.interface import Board, FittedSensor
from drivers.registry import driver_type
from gateway.calibration.record import configured
from gateway.config import Config, ForwardConfig, SensorConfig
from gateway.forwarding.pace import METERED_PROPERTIES
from gateway.mqtt.intake import Intake
from gateway.ports import Clock
from gateway.reporting.run_ledger import LONGEST_FSYNC_S
from gateway.sampling.run_context import Mast
from gateway.sampling.sampler import Sampler
from gateway.sampling.sensors import make_driver
from gateway.sequences import Sequences

# Given up when the disk is full, so that rows can still be removed.
_BALLAST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Topics:
    """The gateway's own topics on the local broker; ``reading`` is a template, ``readings`` a filter."""

    status: str
    run: str
    reading: str
    readings: str

    @classmethod
    def of(cls, config: Config) -> Topics:
        """The topics under ``{topic_root}/{gateway}``."""
        root = f"{config.mqtt.topic_root}/{config.gateway.id}"
        return cls(f"{root}/status", f"{root}/run", root + "/{sensor}/{quantity}", f"{root}/+/+")


def routes(config: Config) -> list[ForwardConfig]:
    """What is forwarded: the gateway's own readings, and the other devices' messages."""
    return [ForwardConfig(Topics.of(config).readings), *config.forwards]


def filters(config: Config) -> list[str]:
    """What is subscribed to."""
    return [forward.filter for forward in routes(config)]


def lost_at_most_s(config: Config) -> float:
    """Seconds of readings that a power cut may cost: what isn't on the disk yet."""
    return config.outbox.commit_interval_s + LONGEST_FSYNC_S


def calibration_history_path(config: Config) -> Path:
    """Where the gateway remembers which calibration was in force when."""
    return config.outbox.path.with_name(config.outbox.path.name + ".channels")


def discovery_path(config: Config) -> Path:
    """Where the gateway remembers which discovery messages it has retained on the local broker."""
    return config.outbox.path.with_name(config.outbox.path.name + ".discovery")


def channel_records(config: Config) -> list[ChannelRecord]:
    """The record of each channel of the gateway's own sensors."""
    return [
        record
        for sensor in config.sensors
        for record in configured(
            config.gateway.id, sensor, driver_type(sensor.driver).channels_of(sensor.options)
        )
    ]


def intake(config: Config, run: str, sequences: Sequences, clock: Clock, boot: str) -> Intake:
    """What makes records of our own readings and of what others sent."""
    return Intake(
        config.gateway.id,
        run,
        sequences,
        config.kafka.topic,
        clock,
        routes(config),
        sensor_names(config),
        boot,
    )


def sensor_names(config: Config) -> list[str]:
    """The names no other device's channel may take."""
    return [sensor.name for sensor in config.sensors]


def open_outbox(config: Config, on_drop: Callable[[Drop], None]) -> TieredOutbox:
    """The outbox. Raises OutboxError where its file is another's; on a disk in trouble it keeps in memory."""
    return TieredOutbox(
        config.outbox.path,
        max_bytes=config.outbox.max_bytes,
        min_free_disk=config.outbox.min_free_disk,
        ballast_bytes=_BALLAST_BYTES,
        on_drop=on_drop,
    )


def open_fitted_board(config: Config) -> Board:
    """The board with its sensors. Raises BoardError."""
    return open_board(
        config.board.kind, config.board.options, fitted_sensors(config), config.base_dir, config.gateway
    )


def kafka_sink(config: Config, role: str) -> KafkaSink:
    """A producer; ``role`` (live, backlog) ends its client id. Raises CloudError."""
    kafka = config.kafka
    return KafkaSink(kafka.bootstrap_servers, f"{config.gateway.id}-{role}", kafka_properties(config, role))


def kafka_properties(config: Config, role: str) -> dict[str, str]:
    """A producer's librdkafka properties; a metered uplink's batches are compressed harder."""
    batched = role == "backlog" and batch_s(config) is not None
    return {**(METERED_PROPERTIES if batched else {}), **config.kafka.properties}


def batch_s(config: Config) -> float | None:
    """Seconds between two batches of a metered uplink; None for a live one."""
    return config.uplink.batch_s if config.uplink.mode == "metered" else None


def samplers(sensors: Iterable[SensorConfig], board: Board, mast: Mast) -> list[Sampler]:
    """A sampler, with a driver of its own, for each sensor."""
    return [_sampler(sensor, board, mast) for sensor in sensors]


def _sampler(sensor: SensorConfig, board: Board, mast: Mast) -> Sampler:
    kind = driver_type(sensor.driver)
    return Sampler(sensor, make_driver(sensor, board), mast, kind.longest_read_s, kind.retry_after_s)


def fitted_sensors(config: Config) -> list[FittedSensor]:
    """The config's sensors as the board sees them."""
    return [
        FittedSensor(
            sensor.name,
            sensor.driver,
            sensor.options,
            driver_type(sensor.driver).channels_of(sensor.options),
            sensor.height_m,
        )
        for sensor in config.sensors
    ]
