"""The two Kafka producers of a gateway: for new messages, and for the outbox beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from cloud.kafka.librdkafka import METERED_PROPERTIES, is_of_config
from cloud.kafka.producer import KafkaSink
from gateway.config import Config
from gateway.forwarding.backlog import SentRow
from gateway.forwarding.ledger import Entry
from gateway.forwarding.reading_format import ReadingFormat
from gateway.ports import ParkedTopic

_SILENT: Final = (
    "it confirms nothing and gives no reason: a dead link, or partitions without a leader, or fewer replicas "
    "in sync than min.insync.replicas"
)


@dataclass(frozen=True, slots=True)
class KafkaSinks:
    """A long backlog delays nothing new."""

    live: KafkaSink[Entry]
    backlog: KafkaSink[SentRow]
    format: ReadingFormat

    @classmethod
    def open(cls, config: Config) -> KafkaSinks:
        """Both, connecting in the background. Their client ids are every gateway's: one quota serves all."""
        servers, outbox = config.kafka.bootstrap_servers, config.outbox.path
        written = ReadingFormat(outbox.with_name(f"{outbox.name}.schema"))
        written.apply(config.kafka)
        outgoing = written.value_of, config.kafka.prefix
        return cls(
            KafkaSink(servers, "live", _properties(config, "live"), *outgoing),
            KafkaSink(servers, "backlog", _properties(config, "backlog"), *outgoing),
            written,
        )

    def prepare(self, config: Config) -> Callable[[], None]:
        """Make producers for another config; the function returned, which the loop calls, puts them in place.

        Raises CloudError, changing nothing.
        """
        servers = config.kafka.bootstrap_servers
        live = self.live.prepare(servers, _properties(config, "live"))
        backlog = self.backlog.prepare(servers, _properties(config, "backlog"))

        def take_over() -> None:
            self.live.take_over(live)
            self.backlog.take_over(backlog)

        return take_over

    @property
    def bytes_sent(self) -> int | None:
        """Bytes that both have sent to Kafka; None before the first count."""
        counts = [each.bytes_sent for each in (self.live, self.backlog) if each.bytes_sent is not None]
        return sum(counts) if counts else None

    def problem(self, parked: Iterable[ParkedTopic] = (), *, answering: bool = True) -> str | None:
        """Why new messages don't come through, are held back, or aren't Avro; None where all is well."""
        lacking = self._lacking_replicas(answering=answering)
        held_back = (
            lacking or self.live.reason or self.live.limited or self.backlog.limited or self.format.problem
        )
        if problem := held_back or next((each.problem for each in parked), None):
            return problem
        return None if answering else _SILENT

    def refusal(self, parked: Iterable[ParkedTopic], *, answering: bool = True) -> str | None:
        """One of ``REFUSALS``, by the producer or else by the topics that take nothing; None: all is well."""
        if self._lacking_replicas(answering=answering):
            return "replicas"
        if self.live.refusal is not None:
            return self.live.refusal
        for topic in parked:
            if is_of_config(topic.problem):
                return "config"
            if "min.insync.replicas" in topic.problem:
                return "replicas"
            return "permission" if "AUTHORIZATION" in topic.problem else "topic"
        if self.live.limited or self.backlog.limited:
            return "quota"
        return None if answering else "unreachable"

    def _lacking_replicas(self, *, answering: bool) -> str | None:
        # Brokers that are down are unreachable too: of the two, that replicas are away says more.
        if answering or self.live.refusal not in (None, "unreachable"):
            return None
        return self.live.lacking_replicas()

    def close(self) -> None:
        """Give up what is open and end."""
        self.format.close()
        self.live.close()
        self.backlog.close()


def _properties(config: Config, role: str) -> dict[str, str]:
    """Librdkafka's properties; a metered uplink's batches are compressed harder."""
    batched = role == "backlog" and config.uplink.mode == "metered"
    return {**(METERED_PROPERTIES if batched else {}), **config.kafka.properties}
