"""``cloud.toml``: one file for all that runs behind the masts. See ``docs/examples/cloud.toml``."""

from cloud.config.kafka import KafkaConfig
from cloud.config.loading import check, load
from cloud.config.model import CloudConfig, DashboardConfig, DashboardUser, RegistryConfig, StoreConfig
from cloud.config.secret import Secret, UnreadableError

__all__ = [
    "CloudConfig",
    "DashboardConfig",
    "DashboardUser",
    "KafkaConfig",
    "RegistryConfig",
    "Secret",
    "StoreConfig",
    "UnreadableError",
    "check",
    "load",
]
