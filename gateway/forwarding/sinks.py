"""The two Kafka producers of a gateway: for new messages, and for the outbox beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from cloud.kafka.producer import METERED_PROPERTIES, KafkaSink, SentHeaders, as_they_are
from cloud.wire.signatures import MAC_HEADER, sign
from gateway.config import Config
from gateway.forwarding.backlog import SentRow
from gateway.forwarding.ledger import Entry
from gateway.forwarding.reading_format import ReadingFormat
from gateway.ports import ParkedTopic, Record


@dataclass(frozen=True, slots=True)
class KafkaSinks:
    """A long backlog delays nothing new."""

    live: KafkaSink[Entry]
    backlog: KafkaSink[SentRow]
    format: ReadingFormat

    @classmethod
    def open(cls, config: Config) -> KafkaSinks:
        """Both, connecting in the background. Their client ids are every gateway's: one quota serves all.

        Records are signed here, where each passes as it will be at Kafka: those of the outbox too, from
        before there was a key.
        """
        servers, outbox, key = config.kafka.bootstrap_servers, config.outbox.path, config.gateway.signs_with
        written = ReadingFormat(outbox.with_name(f"{outbox.name}.schema"))
        written.apply(config.kafka)
        headers_of = signing(key)
        return cls(
            KafkaSink(servers, "live", _properties(config, "live"), written.value_of, headers_of),
            KafkaSink(servers, "backlog", _properties(config, "backlog"), written.value_of, headers_of),
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
    def problem(self) -> str | None:
        """Why new messages don't come through, are held back, or aren't Avro; None where all is well."""
        return self.live.reason or self.live.limited or self.backlog.limited or self.format.problem

    def refusal(self, parked: Iterable[ParkedTopic]) -> str | None:
        """One of ``REFUSALS``, by the producer or else by the topics that take nothing; None: all is well."""
        if self.live.refusal is not None:
            return self.live.refusal
        for topic in parked:
            return "permission" if "AUTHORIZATION" in topic.problem else "topic"
        return "quota" if self.live.limited or self.backlog.limited else None

    def close(self) -> None:
        """Give up what is open and end."""
        self.format.close()
        self.live.close()
        self.backlog.close()


def signing(key: bytes | None) -> Callable[[Any, bytes], SentHeaders]:
    """What makes the headers of a record for Kafka: as they are, with a key with its signature."""
    return as_they_are if key is None else partial(_signed, key)


def _signed(key: bytes, record: Record, value: bytes) -> SentHeaders:
    """A record's headers, with its signature."""
    mac = sign(key, record.topic, record.key, value, record.headers)
    return [*record.headers, (MAC_HEADER, mac)]


def _properties(config: Config, role: str) -> dict[str, str]:
    """Librdkafka's properties; a metered uplink's batches are compressed harder."""
    batched = role == "backlog" and config.uplink.mode == "metered"
    return {**(METERED_PROPERTIES if batched else {}), **config.kafka.properties}
