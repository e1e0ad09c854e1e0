"""The two Kafka producers of a gateway: for new messages, and for the outbox beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from cloud.errors import CloudError
from cloud.kafka.producer import METERED_PROPERTIES, KafkaSink
from gateway.config import Config
from gateway.system.watchdog import Heartbeat

# Poll threads come round ten times a second, and stand still a little when a producer is replaced.
_POLL_PERIODS: Final = 0.5


@dataclass(frozen=True, slots=True)
class KafkaSinks:
    """A long backlog delays nothing new."""

    live: KafkaSink
    backlog: KafkaSink

    @classmethod
    def open(cls, config: Config) -> KafkaSinks:
        """Both, connecting in the background. Raises CloudError."""
        servers, gateway = config.kafka.bootstrap_servers, config.gateway.id
        live = KafkaSink(servers, f"{gateway}-live", _properties(config, "live"))
        try:
            return cls(live, KafkaSink(servers, f"{gateway}-backlog", _properties(config, "backlog")))
        except CloudError:
            live.close()
            raise

    def prepare(self, config: Config) -> Callable[[], None]:
        """Make producers for another config; the function returned puts them in place.

        Raises CloudError, changing nothing.
        """
        servers = config.kafka.bootstrap_servers
        prepared = [
            (sink, sink.prepare(servers, _properties(config, role))) for role, sink in self._by_role()
        ]

        def take_over() -> None:
            for sink, producer in prepared:
                sink.take_over(producer)

        return take_over

    def dead(self) -> list[str]:
        """The names of those whose poll thread has ended."""
        return [f"kafka-{role}" for role, sink in self._by_role() if not sink.is_alive()]

    def heartbeats(self) -> Iterator[Heartbeat]:
        """For the watchdog: that the poll threads come round."""
        for role, sink in self._by_role():
            yield Heartbeat(f"kafka-{role}", sink.polls, _POLL_PERIODS, thread=sink.thread)

    def close(self) -> None:
        """Give up what is open and end."""
        self.live.close()
        self.backlog.close()

    def _by_role(self) -> tuple[tuple[str, KafkaSink], tuple[str, KafkaSink]]:
        return ("live", self.live), ("backlog", self.backlog)


def _properties(config: Config, role: str) -> dict[str, str]:
    """Librdkafka's properties; a metered uplink's batches are compressed harder."""
    batched = role == "backlog" and config.uplink.mode == "metered"
    return {**(METERED_PROPERTIES if batched else {}), **config.kafka.properties}
