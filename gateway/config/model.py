"""The config as the daemon sees it, and its schema: names, types, defaults and bounds, once, as data.

Sections are frozen dataclasses; ``annotated_types`` bounds are checked when a file is loaded. A sensor's and
the board's own options are the dataclasses of their drivers. Imports nothing but the standard library and the
bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from annotated_types import Ge, Le

GIB = 1 << 30
MIB = 1 << 20

Port = Annotated[int, Ge(1), Le(65535)]


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Who and where this gateway is; degrees (WGS 84) and metres above sea level."""

    id: str
    latitude: Annotated[float, Ge(-90), Le(90)] | None = None
    longitude: Annotated[float, Ge(-180), Le(180)] | None = None
    elevation_m: Annotated[float, Ge(-500), Le(9000)] | None = None


@dataclass(frozen=True, slots=True)
class MqttConfig:
    """The local broker. Topics are ``{topic_root}/{gateway}/{sensor}/{quantity}``."""

    host: str = "127.0.0.1"
    port: Port = 1883
    topic_root: str = "fieldgate"
    keepalive_s: Annotated[int, Ge(5), Le(65535)] = 30


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """The cluster. ``properties`` are librdkafka's own, by their dotted names."""

    bootstrap_servers: str = "127.0.0.1:9092"
    topic: str = "mqtt.{quantity}"
    format: Literal["json"] = "json"
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UplinkConfig:
    """How readings leave: each at once (live), or stored and sent every ``batch_s`` seconds (metered)."""

    mode: Literal["live", "metered"] = "live"
    batch_s: Annotated[float, Ge(1), Le(3600)] = 60.0


@dataclass(frozen=True, slots=True)
class OutboxConfig:
    """Where readings wait for the cloud. Bytes; a relative path is relative to the config's directory."""

    path: Path = Path("/var/lib/fieldgate/outbox.db")
    max_bytes: Annotated[int, Ge(16 * MIB), Le(1 << 50)] = GIB
    min_free_disk: Annotated[int, Ge(0), Le(1 << 50)] = 512 * MIB
    commit_interval_s: Annotated[float, Ge(0.1), Le(60)] = 1.0


@dataclass(frozen=True, slots=True)
class ClockConfig:
    """Whose word the time is: the kernel's synchronisation flag, or the clock as it stands.

    ``hold_s`` is how long readings wait for it while Kafka could have them.
    """

    trust: Literal["kernel", "always"] = "always"
    hold_s: Annotated[float, Ge(0), Le(7 * 86400)] = 3600.0


@dataclass(frozen=True, slots=True)
class StatusConfig:
    """Where the status page listens; ``enabled`` is False where ``listen`` is empty."""

    host: str = "127.0.0.1"
    port: Annotated[int, Ge(0), Le(65535)] = 8321

    @property
    def enabled(self) -> bool:
        """False: no status page."""
        return self.host != ""

    @property
    def listen(self) -> str:
        """``host:port``, or empty."""
        if not self.enabled:
            return ""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BoardConfig:
    """What the sensors are wired to; ``options`` is the board's own dataclass."""

    kind: str
    options: Any


@dataclass(frozen=True, slots=True)
class SensorCommon:
    """What every sensor has, whatever its driver. Height in m above ground, boom in degrees from north."""

    name: str
    driver: str
    interval_s: Annotated[float, Ge(0.1), Le(3600)] = 1.0
    height_m: Annotated[float, Ge(-10), Le(500)] | None = None
    boom_deg: Annotated[float, Ge(0), Le(360)] | None = None
    model: str | None = None
    serial: str | None = None
    pair: str | None = None
    lab: str | None = None
    calibrated: date | None = None


@dataclass(frozen=True, slots=True)
class SensorConfig(SensorCommon):
    """One sensor; ``options`` is the driver's own dataclass."""

    options: Any = None


@dataclass(frozen=True, slots=True)
class DropIf:
    """Values that are counted and not forwarded, in the quantity's unit, after scale and offset."""

    below: float | None = None
    above: float | None = None
    equals: float | None = None


@dataclass(frozen=True, slots=True)
class ForwardReading:
    """One of several readings that a ``json`` message makes; ``channel`` where it is not the forward's."""

    quantity: str
    path: str
    unit: str | None = None
    channel: str | None = None
    scale: float = 1.0
    offset: float = 0.0
    raw_unit: str | None = None
    min: float | None = None
    max: float | None = None
    drop_if: DropIf | None = None
    optional: bool = False


READING_KEYS: Final = tuple(field.name for field in fields(ForwardReading) if field.name != "channel")
"""What each of several readings has for itself."""


@dataclass(frozen=True, slots=True)
class ForwardConfig:
    """Messages of other devices on the local broker that are forwarded, by MQTT topic filter.

    A ``number`` or ``json`` payload becomes a reading: value = scale * number + offset, in the quantity's
    unit, as are ``min`` and ``max``, the device's range. ``readings`` are several of one ``json`` message;
    the keys they have are theirs then. An ``optional`` path may be absent.
    """

    filter: str
    payload: Literal["reading", "number", "json", "raw"] = "reading"
    quantity: str | None = None
    unit: str | None = None
    path: str | None = None
    time_path: str | None = None
    channel: str | None = None
    period_s: Annotated[float, Ge(0.001), Le(86400)] = 1.0
    scale: float = 1.0
    offset: float = 0.0
    raw_unit: str | None = None
    min: float | None = None
    max: float | None = None
    drop_if: DropIf | None = None
    optional: bool = False
    readings: tuple[ForwardReading, ...] | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """A whole, checked config. ``base_dir`` is the directory of its file."""

    base_dir: Path
    gateway: GatewayConfig
    mqtt: MqttConfig
    kafka: KafkaConfig
    uplink: UplinkConfig
    outbox: OutboxConfig
    clock: ClockConfig
    status: StatusConfig
    board: BoardConfig
    sensors: tuple[SensorConfig, ...]
    forwards: tuple[ForwardConfig, ...]
