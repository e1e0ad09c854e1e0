"""The gateway's own topics on the local broker, and what it subscribes to. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.config import Config, ForwardConfig


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
