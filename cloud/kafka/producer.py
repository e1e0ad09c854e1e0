"""The Kafka producer: idempotent, acks=all; each record's outcome is reported exactly once.

Invariants: ``send`` never blocks; ``done`` runs on the poll thread or inside ``send`` and must only enqueue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cloud.errors import CloudError

log = logging.getLogger(__name__)
# librdkafka repeats each failed connect every second; ``_on_error`` logs it once per outage.
_librdkafka_log = log.getChild("librdkafka")
_librdkafka_log.setLevel(logging.CRITICAL)

_POLL_S: Final = 0.1
_LAST_REPORTS_S: Final = 5.0
"""How long a producer that has been replaced on purpose may still report."""
_REFUSED_FOR_GOOD: Final = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD, KafkaError._BAD_MSG}
)
"""Faults of the record itself: trying again gives the same answer."""
_TOPIC_FAULTS: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Missing, misnamed or forbidden: the operator's to mend."""

_TIMEOUTS: Final = ("delivery.timeout.ms", "message.timeout.ms")
"""Two names of one property of librdkafka's."""

DEFAULTS: Final[Mapping[str, str]] = {
    "acks": "all",
    "enable.idempotence": "true",
    # Java's default partitioner: the same key goes to the same partition whoever produces it.
    "partitioner": "murmur2_random",
    "linger.ms": "5",
    "compression.type": "zstd",
    # A record that is in the outbox anyway needn't be held for librdkafka's five minutes.
    "delivery.timeout.ms": "120000",
    # The default of 10 s would keep a returned broker waiting.
    "reconnect.backoff.max.ms": "1000",
    "queue.buffering.max.kbytes": "32768",
    # How long a topic may be unknown before its records come back to us; the default is 30 s.
    "topic.metadata.propagation.max.ms": "5000",
    "message.max.bytes": "1048576",
}

METERED_PROPERTIES: Final[Mapping[str, str]] = {
    # A batch reaches the producer within milliseconds: waiting costs nothing, each further request does.
    "linger.ms": "1000",
    "compression.level": "12",
    # Half the default's requests for metadata, which no one needs while topics stay.
    "topic.metadata.refresh.interval.ms": "600000",
}
"""librdkafka properties for the producer of a metered uplink's batches."""


class _Record(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def key(self) -> bytes: ...
    @property
    def value(self) -> bytes: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]: ...


@dataclass(frozen=True, slots=True)
class Undelivered:
    """Why a record was given up.

    ``record_at_fault`` where trying again can't help; ``topic_at_fault`` where a topic has to be mended.
    """

    problem: str
    record_at_fault: bool
    topic_at_fault: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """A producer with other properties, ready to take over."""

    producer: Producer
    config: Mapping[str, str]


class KafkaSink:
    """Sends records to Kafka. Raises CloudError where a librdkafka property is wrong.

    A fatal error of the idempotent producer ends that producer: its open records are reported as undelivered
    and a new one takes over with the next record.
    """

    def __init__(self, bootstrap_servers: str, client_id: str, properties: Mapping[str, str]) -> None:
        self._client_id = client_id
        self._config = self._merged(bootstrap_servers, properties)
        self._lock = threading.Lock()
        self._broken = False
        self._complained = False
        self._closing = threading.Event()
        self._producer = self._make(self._config)
        self._leaving: list[threading.Thread] = []
        self.polls = 0
        """Grows while outcomes are reported, about ten times a second."""
        self._poller = threading.Thread(target=self._poll, name="kafka-poll", daemon=True)
        self._poller.start()

    def send(self, record: _Record, done: Callable[[Undelivered | None], None]) -> bool:
        """Hand over a record; False when the queue is full, and then ``done`` is not called."""

        def delivered(error: KafkaError | None, _message: Message) -> None:
            self._complained = self._complained and error is not None
            done(None if error is None else _undelivered(error))

        with self._lock:
            if self._broken:
                return False
            try:
                self._producer.produce(
                    record.topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    on_delivery=delivered,
                )
            except BufferError:
                return False
            except KafkaException as problem:
                error = problem.args[0]
                if error.fatal():
                    self._broken = True
                done(_undelivered(error))
        return True

    def prepare(self, bootstrap_servers: str, properties: Mapping[str, str]) -> Prepared:
        """A producer with other properties; nothing changes yet. Raises CloudError where one is wrong."""
        config = self._merged(bootstrap_servers, properties)
        return Prepared(self._make(config), config)

    def take_over(self, prepared: Prepared) -> None:
        """Send through another producer from now on.

        The one before has five seconds to report what it holds; what is open then is reported as undelivered.
        """
        with self._lock:
            old, self._producer, self._config = self._producer, prepared.producer, prepared.config
            self._broken = False
        self._leaving = [thread for thread in self._leaving if thread.is_alive()]
        leaving = threading.Thread(target=self._see_off, args=(old,), name="kafka-leaving", daemon=True)
        self._leaving.append(leaving)
        leaving.start()

    def is_alive(self) -> bool:
        """Whether outcomes are reported."""
        return self._poller.is_alive()

    @property
    def thread(self) -> int | None:
        """The kernel's id of the thread that reports outcomes."""
        return self._poller.native_id

    @property
    def delivery_timeout_s(self) -> float:
        """After how long a record is given up, as configured; a day where it is never."""
        given = [int(self._config[name]) for name in _TIMEOUTS if name in self._config]
        return max(given) / 1000 if min(given) > 0 else 86400.0

    def flush(self, timeout_s: float) -> int:
        """Wait for outcomes; how many records are still open."""
        return self._serve(self._producer, timeout_s)

    def close(self) -> None:
        """Give up what is open (each is reported as undelivered) and end."""
        self._closing.set()
        self._poller.join()
        for leaving in self._leaving:
            leaving.join()
        self._give_up(self._producer)

    def _merged(self, bootstrap_servers: str, properties: Mapping[str, str]) -> Mapping[str, str]:
        return {
            **DEFAULTS,
            **properties,
            "bootstrap.servers": bootstrap_servers,
            "client.id": self._client_id,
        }

    def _make(self, config: Mapping[str, str]) -> Producer:
        try:
            return Producer({**config, "error_cb": self._on_error}, logger=_librdkafka_log)
        except KafkaException as error:
            raise CloudError(f"kafka.properties: {error.args[0].str()}") from error

    def _on_error(self, error: KafkaError) -> None:
        level = logging.DEBUG if self._complained else logging.WARNING
        log.log(level, "event=kafka.error error=%s", error)
        self._complained = True

    def _poll(self) -> None:
        while not self._closing.is_set():
            self.polls += 1
            self._serve_once(self._producer, _POLL_S)
            if self._broken:
                self._replace()

    def _serve_once(self, producer: Producer, timeout_s: float) -> bool:
        """Wait for outcomes and report them; False where the producer has come to its end.

        The client raises a fatal error from ``poll``, and gives it to no callback. Never ``Producer.flush``:
        it goes on to call back with that exception set, and outcomes are lost (confluent-kafka 2.16).
        """
        try:
            producer.poll(timeout_s)
        except KafkaException as problem:
            log.error("event=kafka.fatal error=%s remedy=new_producer", problem.args[0])
            if producer is self._producer:
                self._broken = True
            return False
        return True

    def _serve(self, producer: Producer, timeout_s: float) -> int:
        """Report outcomes until none is open or the time is over; how many are open."""
        end_s = time.monotonic() + timeout_s
        while len(producer) and (left_s := end_s - time.monotonic()) > 0:
            self._serve_once(producer, min(left_s, _POLL_S))
        return len(producer)

    def _replace(self) -> None:
        config = self._config
        try:
            new = self._make(config)
        except CloudError as error:
            # While a certificate is being replaced, for instance: the broken producer stays until then.
            log.error("event=kafka.no_producer error=%s", error)
            self._closing.wait(1.0)
            return
        with self._lock:
            # Another may have taken over meanwhile, with other properties.
            taken = config is self._config
            old, self._producer = (self._producer, new) if taken else (new, self._producer)
            self._broken = False
        self._give_up(old)

    def _see_off(self, producer: Producer) -> None:
        deadline_s = time.monotonic() + _LAST_REPORTS_S
        while len(producer) and not self._closing.is_set() and time.monotonic() < deadline_s:
            if not self._serve_once(producer, _POLL_S):
                break
        self._give_up(producer)

    def _give_up(self, producer: Producer) -> None:
        producer.purge()
        self._serve(producer, 1.0)


def _undelivered(error: KafkaError) -> Undelivered:
    code = error.code()
    return Undelivered(f"{error.name()}: {error.str()}", code in _REFUSED_FOR_GOOD, code in _TOPIC_FAULTS)
