"""The config as the gateway uses it, and its schema: names, types, defaults, bounds and checks, once.

Sections are frozen dataclasses; pydantic validates them when a file is loaded (``validate.py``), not when
they are constructed. A sensor's and the board's own options are the dataclasses of their drivers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from annotated_types import Ge, Le

from cloud.toml_models import checked
from cloud.toml_problems import KeyPath, Problem
from cloud.values import host_alone, registry_url, server_list, topic_prefix
from cloud.wire.quantities import QUANTITIES, Kind, Quantities
from drivers.interface import Channel
from drivers.option_docs import Meaning
from drivers.registry import driver_type
from gateway.config import values
from gateway.config.bridges.model import (
    NO_HTTP,
    NO_PROXY,
    DownlinkConfig,
    ForwardConfig,
    HttpConfig,
    Listening,
    MqttProxyConfig,
    Values,
    new_fields,
)
from gateway.config.outputs import NO_COMMANDS, ActuatorConfig, CommandsConfig, InterlockConfig
from gateway.config.quality import QualityRules
from gateway.config.quantities import QuantityConfig
from gateway.config.source import NamedFile
from gateway.config.values import (
    WHOLE_MS,
    Accuracies,
    Bytes,
    Day,
    FilePath,
    GatewayId,
    IdentityKey,
    KafkaTopic,
    Label,
    Properties,
    Ranges,
    Secret,
    SensorName,
    Token,
    TopicRoot,
    UtcOffset,
)

GIB = 1 << 30
MIB = 1 << 20

DEFAULT_OUTBOX: Final = Path("/var/lib/fieldgate/outbox.db")
"""The file is in the directory that systemd makes for the service."""

_Number = float | None
_WGS84: Final = "degrees (WGS 84)"
_Latitude = Annotated[_Number, Ge(-90), Le(90), Meaning("of the mast; north is positive", _WGS84)]
_Longitude = Annotated[_Number, Ge(-180), Le(180), Meaning("of the mast; east is positive", _WGS84)]
_Elevation = Annotated[_Number, Ge(-500), Le(9000), Meaning("of the mast's foot", "m above sea level")]
_ANSWER: Final = "after so long without an answer from Kafka"
_FROM_NORTH: Final = "degrees from north"


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Who and where this gateway is."""

    id: Annotated[
        GatewayId, Meaning("who this gateway is, in every topic and table: small letters, digits, hyphens")
    ]
    latitude: _Latitude = None
    longitude: _Longitude = None
    elevation_m: _Elevation = None
    set: Annotated[Values, checked(new_fields), Meaning("fields that each reading of its sensors gets")] = (
        field(default_factory=dict)
    )
    identity_key: Annotated[
        IdentityKey | None,
        Meaning('what its runs prove themselves by, of `fieldgate provision gateway`: { file = "…" }'),
    ] = field(default=None, repr=False)

    @property
    def position(self) -> tuple[float, float] | None:
        """Latitude and longitude, if known. Loading takes those of [site] where it has none."""
        return None if self.latitude is None or self.longitude is None else (self.latitude, self.longitude)


@dataclass(frozen=True, slots=True)
class SiteConfig:
    """Where the mast stands: for the table sites, and to notice that it was moved."""

    name: Annotated[Label | None, Meaning("of the site")] = None
    owner: Annotated[Label | None, Meaning("whose site it is")] = None
    latitude: _Latitude = None
    longitude: _Longitude = None
    elevation_m: _Elevation = None
    utc_offset: Annotated[
        UtcOffset | None, Meaning('local time less UTC, all year, for statistics by local time: "+05:45"')
    ] = None
    valid_from: Annotated[
        Day | None, Meaning("since when that holds, 00:00 UTC; else since the gateway first had it")
    ] = None

    @property
    def position(self) -> tuple[float, float] | None:
        """Latitude and longitude; None: no site. Loading takes those of [gateway] where it has none."""
        both = self.latitude, self.longitude
        return None if both[0] is None or both[1] is None else (both[0], both[1])


@dataclass(frozen=True, slots=True)
class MqttConfig:
    """The local Mosquitto."""

    host: Annotated[str, checked(host_alone), Meaning("the local Mosquitto: name or address")] = "127.0.0.1"
    port: Annotated[int, Ge(1), Le(65535), Meaning("Mosquitto's port")] = 1883
    topic_root: Annotated[TopicRoot, Meaning("the first levels of the gateway's own topics")] = "fieldgate"
    keepalive_s: Annotated[
        int, Ge(5), Le(65535), Meaning("after how long a silence the connection counts as lost", "s")
    ] = 30
    username: Annotated[str | None, Meaning("the gateway's user name, where Mosquitto requires one")] = None
    password: Annotated[
        Secret | None, Meaning('better { credential = "name" } or { file = "…" } than the password itself')
    ] = field(default=None, repr=False)
    home_assistant: Annotated[bool, Meaning("announce each channel to Home Assistant (discovery)")] = False

    @property
    def login(self) -> tuple[str, str | None] | None:
        """User and password; None where the broker requires none."""
        return None if self.username is None else (self.username, self.password)


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Where readings go."""

    bootstrap_servers: Annotated[
        str, checked(server_list), Meaning("the cluster: host:port, several with commas between")
    ] = "127.0.0.1:9092"
    prefix: Annotated[
        str,
        checked(topic_prefix),
        Meaning("how each topic and group begins where fleets share the cluster; all names are without it"),
    ] = ""
    topic: Annotated[KafkaTopic, Meaning("where readings go; {quantity} stands for wind_speed and so on")] = (
        "mqtt.{quantity}"
    )
    format: Annotated[
        Literal["json", "avro"], Meaning("how readings are written; avro needs schema_registry_url")
    ] = "json"
    schema_registry_url: Annotated[
        str | None, checked(registry_url), Meaning("the registry that has the schema of readings in Avro")
    ] = None
    schema_registry_ca: Annotated[
        FilePath | None, Meaning("the CA of the registry's certificate, PEM; the system's without it")
    ] = None
    schema_registry_username: Annotated[str | None, Meaning("how to log in to the registry")] = None
    schema_registry_password: Annotated[Secret | None, Meaning("with schema_registry_username")] = field(
        default=None, repr=False
    )
    properties: Annotated[Properties, Meaning("librdkafka's own properties, such as security.protocol")] = (
        field(default_factory=dict, repr=False)
    )


@dataclass(frozen=True, slots=True)
class UplinkConfig:
    """How they get there: at once, or stored and in batches where megabytes cost."""

    mode: Annotated[
        Literal["live", "metered"], Meaning("each reading is sent at once; or stored, and sent in batches")
    ] = "live"
    batch_s: Annotated[float, Ge(1), Le(3600), Meaning("metered: how often a batch is sent", "s")] = 60.0
    reset_after_h: Annotated[_Number, Ge(0.5), Le(720), Meaning(f"run reset_command {_ANSWER}", "h")] = None
    reset_command: Annotated[
        tuple[str, ...], Meaning("program and arguments that reset the modem, run by root; no shell")
    ] = ()
    reboot_after_h: Annotated[_Number, Ge(2), Le(720), Meaning(f"reboot {_ANSWER}", "h")] = None


@dataclass(frozen=True, slots=True)
class OutboxConfig:
    """Where readings wait on the disk while Kafka can't be reached."""

    path: Annotated[FilePath, Meaning("a relative path starts at this file's directory")] = DEFAULT_OUTBOX
    max_bytes: Annotated[
        Bytes, Ge(16 * MIB), Meaning('everything the outbox may take, such as "1GiB"', "bytes")
    ] = GIB
    min_free_disk: Annotated[
        Bytes, Ge(0), Meaning('what it leaves free on the disk, such as "512MiB"', "bytes")
    ] = 512 * MIB
    commit_interval_s: Annotated[
        float,
        Ge(0.1),
        Le(60),
        Meaning("a reading is confirmed by Kafka or on the disk within this time", "s"),
    ] = 1.0


@dataclass(frozen=True, slots=True)
class ClockConfig:
    """When the clock counts as synchronised."""

    trust: Annotated[
        Literal["kernel", "always"],
        Meaning("kernel (a Raspberry Pi's default): once the kernel reports it set"),
    ] = "always"
    hold_s: Annotated[
        float, Ge(0), Le(7 * 86400), Meaning("how long readings wait for it while Kafka is reachable", "s")
    ] = 3600.0


@dataclass(frozen=True, slots=True)
class StatusConfig(Listening):
    """The status page; without a token other machines are refused."""

    listen: Annotated[
        str, checked(values.listen), Meaning('host:port of the status page; "" switches it off')
    ] = "127.0.0.1:8321"
    token: Annotated[
        Token | None, Meaning("what other machines need to see it; { credential = … } or { file = … }")
    ] = field(default=None, repr=False)


SECTIONS: Final[Mapping[str, type[Any]]] = {
    "gateway": GatewayConfig,
    "site": SiteConfig,
    "mqtt": MqttConfig,
    "kafka": KafkaConfig,
    "uplink": UplinkConfig,
    "outbox": OutboxConfig,
    "clock": ClockConfig,
    "status": StatusConfig,
    "commands": CommandsConfig,
    "http": HttpConfig,
    "mqtt_proxy": MqttProxyConfig,
}
"""The sections whose keys don't depend on a driver or a board."""


ARRAYS: Final[Mapping[str, type[Any]]] = {
    "quantity": QuantityConfig,
    "actuator": ActuatorConfig,
    "interlock": InterlockConfig,
    "forward": ForwardConfig,
    "downlink": DownlinkConfig,
}
"""The tables of which there may be several, but for the sensors', whose keys depend on their drivers."""


@dataclass(frozen=True, slots=True)
class BoardConfig:
    """What the sensors are wired to; ``options`` is the board's own dataclass."""

    kind: str
    options: Any


@dataclass(frozen=True, slots=True)
class SensorCommon:
    """What every sensor has, whatever its driver. Height in m above ground, boom in degrees from north."""

    name: Annotated[SensorName, Meaning("unique; its channels are called name.quantity")]
    driver: Annotated[str, Meaning("what kind of sensor it is")]
    interval_s: Annotated[float, Ge(0.1), Le(3600), WHOLE_MS, Meaning("one reading each so often", "s")] = 1.0
    height_m: Annotated[_Number, Ge(-10), Le(500), Meaning("of the sensor", "m above ground")] = None
    boom_deg: Annotated[_Number, Ge(0), Le(360), Meaning("where the boom points", _FROM_NORTH)] = None
    model: Annotated[Label | None, Meaning("as on the type plate")] = None
    serial: Annotated[Label | None, Meaning("as on the type plate")] = None
    pair: Annotated[str | None, Meaning("the name of its redundant twin")] = None
    lab: Annotated[Label | None, Meaning("who calibrated it")] = None
    calibrated: Annotated[Day | None, Meaning("when it was calibrated, as in 2026-03-12")] = None
    certificate: Annotated[Label | None, Meaning("the certificate's number")] = None
    expires: Annotated[
        Day | None, Meaning("the calibration's last day; later readings are flagged suspect")
    ] = None
    recalibrate_months: Annotated[
        int | None, Ge(1), Le(120), Meaning("how long the calibration counts, in place of expires", "months")
    ] = None
    accuracy: Annotated[
        Accuracies | None,
        Meaning('± of the certificate: in the unit, as "2%" or "40 + 5%"; of several channels by quantity'),
    ] = None
    range: Annotated[
        Ranges | None,
        Meaning("the sensor's own range, [lower, upper] in the unit; of several channels by quantity"),
    ] = None


@dataclass(frozen=True, slots=True)
class SensorConfig(SensorCommon):
    """One sensor; ``options`` is the driver's own dataclass, ``quality`` its channels' tests by quantity.

    ``own`` are those of its quantities that aren't built in.
    """

    options: Any = None
    quality: Mapping[str, QualityRules] = field(default_factory=dict)
    own: Quantities = field(default_factory=dict)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """What it measures."""
        return driver_type(self.driver).channels_of(self.options)

    def kind_of(self, quantity: str) -> Kind:
        """How values of one of its quantities are put together."""
        known = self.own.get(quantity) or QUANTITIES.get(quantity)
        return "linear" if known is None else known.kind


@dataclass(frozen=True, slots=True)
class Config:
    """A whole, checked config. ``base_dir`` is the directory of its file.

    ``problems`` are errors that the daemon starts with: a password or certificate that can't be read.
    ``files`` are those that it names, by key, as they were when it was read. ``quantities`` are those that
    are built in and its own.
    """

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
    problems: tuple[Problem, ...] = ()
    files: Mapping[KeyPath, NamedFile] = field(default_factory=dict, repr=False)
    quantities: Quantities = field(default_factory=lambda: QUANTITIES, repr=False)
    actuators: tuple[ActuatorConfig, ...] = ()
    interlocks: tuple[InterlockConfig, ...] = ()
    site: SiteConfig = SiteConfig()
    commands: CommandsConfig = NO_COMMANDS
    downlinks: tuple[DownlinkConfig, ...] = ()
    http: HttpConfig = NO_HTTP
    mqtt_proxy: MqttProxyConfig = NO_PROXY
