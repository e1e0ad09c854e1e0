"""The Kafka producer: idempotent, acks=all; each record's outcome is reported exactly once.

Invariants: one thread uses a sink, and none of its calls blocks: producers are made and destroyed, which may
read files and join librdkafka's threads, by threads of their own. (One with TLS took 40 to 110 ms to make on
a PC.)
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Final, Generic, Literal, Protocol, TypeVar

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer, ThrottleEvent

from cloud.errors import CloudError, Undelivered
from cloud.kafka.librdkafka import BY_SIZE, DEFAULTS, OF_A_RECORD, open_client, undelivered
from cloud.kafka.listener_probe import ListenerWatch

_AGAIN_S: Final = 10.0
_TIMEOUT_S: Final = 5.0


class ReplicaWatch:
    """Looks at the partitions of one topic, as often as it is asked and not more than each ten seconds."""

    def __init__(self) -> None:
        self._found: str | None = None
        self._asked_s = float("-inf")

    def problem(self, producer: Producer, topic: str) -> str | None:
        """What was found in this outage; None where Kafka doesn't answer, or all replicas are in sync."""
        now_s = time.monotonic()
        if now_s >= self._asked_s + _AGAIN_S:
            if now_s >= self._asked_s + 3 * _AGAIN_S:
                self._found = None
            self._asked_s = now_s
            threading.Thread(
                target=self._look, args=(producer, topic), name="kafka-replicas", daemon=True
            ).start()
        return self._found

    def _look(self, producer: Producer, topic: str) -> None:
        try:
            partitions = producer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions.values()
        except KafkaException:
            self._found = None
            return
        counts = [(len(each.isrs), len(each.replicas)) for each in partitions]
        short = [(in_sync, wanted) for in_sync, wanted in counts if in_sync < wanted]
        self._found = None
        if short:
            in_sync, wanted = min(short)
            self._found = (
                f"{in_sync} of {wanted} replicas of {topic} are in sync, and Kafka confirms nothing: "
                "fewer than min.insync.replicas"
            )


log = logging.getLogger(__name__)

T = TypeVar("T")

_POLL_S: Final = 0.1
_MAKE_AGAIN_S: Final = 5.0
_CHANGING: Final = re.compile(r"[0-9]+|\(after.*\)")
_LIMITED_FOR_S: Final = 60.0
_LAST_REPORTS_S: Final = 5.0
"""How long a producer that has been replaced on purpose may still report."""
Refusal = Literal["login", "certificate", "protocol", "config", "unreachable"]

_LOGIN_FAULTS: Final = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED")
_VAGUE: Final = frozenset({KafkaError._SSL, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})
"""Errors whose text is the same for several faults of certificates and protocols, or none."""

_ONE_BY_ONE: Final = {"batch.num.messages": "1", "linger.ms": "0"}
_TIMEOUTS: Final = ("delivery.timeout.ms", "message.timeout.ms")
"""Two names of one property of librdkafka's."""


class _Record(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def key(self) -> bytes: ...
    @property
    def value(self) -> bytes: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]: ...


class _Statistics(msgspec.Struct):
    """What is read of librdkafka's statistics: the bytes that a producer has sent to brokers so far."""

    tx_bytes: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A producer with other properties, ready to take over."""

    producer: Producer
    config: Mapping[str, str]


class KafkaSink(Generic[T]):
    """Sends records to Kafka; ``T`` is what a record's outcome comes with.

    Where no producer can be made, because a file that a property names is missing for instance, nothing is
    taken, and it is tried again: ``problem`` has the reason. A fatal error of the idempotent producer ends
    that producer: its open records are reported as undelivered and a new one takes over.

    Kafka refuses a whole batch for one record, or for the size of all: its records are sent again one by one,
    and one is at fault only where it was refused alone. Batches that were too large are halved from then on.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        properties: Mapping[str, str],
        value_of: Callable[[_Record], bytes] = attrgetter("value"),
        prefix: str = "",
    ) -> None:
        """``value_of`` gives what is sent as a record's value; ``prefix`` is put before its topic."""
        self._client_id = client_id
        self._prefix = prefix
        self._value_of = value_of
        self._config = self._merged(bootstrap_servers, properties)
        self._outcomes: list[tuple[T, Undelivered | None]] = []
        self._producer: Producer | None = None
        self._broken = False
        self._made: Prepared | CloudError | None = None
        self._making = False
        self._make_at_s = float("-inf")
        # Replaced ones, with the time until which they may report.
        self._leaving: list[tuple[Producer, float]] = []
        self._gone: list[Producer] = []
        # Sends records of refused batches one by one; there is none before the first.
        self._single: Producer | None = None
        self._too_large = False
        self.open = 0
        """How many records' outcomes are to come."""
        self.bytes_sent: int | None = None
        """Bytes sent to brokers, requests and batches as compressed, without what TLS and TCP add.

        Counted once a minute (``statistics.interval.ms``); None before the first count.
        """
        # What was reported in this outage already, without what changes from line to line.
        self._reported: set[str] = set()
        self.problem: str | None = None
        """Why records don't come through, as far as librdkafka reports it; None since one did."""
        self._listener = ListenerWatch()
        self._replicas = ReplicaWatch()
        self._topic = ""
        self._limited_s = float("-inf")
        try:
            self._producer = self._make(self._config)
        except CloudError as error:
            self._cannot_make(error)

    def send(self, record: _Record, token: T) -> bool:
        """Hand over a record; False where nothing is taken now, and then it has no outcome."""
        producer = self._producer
        if producer is None or self._broken:
            return False
        self._topic = self._prefix + record.topic
        try:
            producer.produce(
                self._topic,
                key=record.key,
                value=self._value_of(record),
                headers=[*record.headers],
                on_delivery=partial(self._delivered, token),
            )
        except BufferError:
            return False
        except KafkaException as problem:
            error = problem.args[0]
            self._broken = error.fatal()
            self._outcomes.append((token, undelivered(error)))
        self.open += 1
        return True

    def poll(self, timeout_s: float = 0.0) -> list[tuple[T, Undelivered | None]]:
        """The outcomes since the last call, None for what Kafka has. Waits at most so long for one."""
        if self._producer is None or self._broken or self._too_large or self._made is not None:
            self._replace()
        if self._leaving or self._gone:
            self._see_off()
        if self._producer is not None:
            self._serve(self._producer, timeout_s)
        if self._single is not None:
            self._serve(self._single, 0.0)
        outcomes, self._outcomes = self._outcomes, []
        self.open -= len(outcomes)
        return outcomes

    def prepare(self, bootstrap_servers: str, properties: Mapping[str, str]) -> Prepared:
        """A producer with other properties; nothing changes yet. Raises CloudError where one is wrong."""
        config = self._merged(bootstrap_servers, properties)
        return Prepared(self._make(config), config)

    def take_over(self, prepared: Prepared) -> None:
        """Send through another producer from now on.

        The one before has five seconds to report what it holds; what is open then is reported as undelivered.
        """
        if self._producer is not None:
            self._leaving.append((self._producer, time.monotonic() + _LAST_REPORTS_S))
        if prepared.config is not self._config:
            # What is wrong now, if anything, is said again.
            self._listener.clear()
            self._reported.clear()
            if self._single is not None:
                self._leaving.append((self._single, time.monotonic() + _LAST_REPORTS_S))
                self._single = None
        self._producer, self._config = prepared.producer, prepared.config
        self._broken = self._too_large = False

    @property
    def usable(self) -> bool:
        """Whether records are taken at all; where not, ``problem`` is why."""
        return self._producer is not None and not self._broken

    @property
    def reason(self) -> str | None:
        """``problem`` in words that name the remedy, where the listener was reached and has it against us."""
        fault = self._listener.fault
        return fault.text if self.problem is not None and fault is not None else self.problem

    @property
    def refusal(self) -> Refusal | None:
        """``reason`` in a word, for programs; None where there is none."""
        if self.problem is None:
            return None
        if self._listener.fault is not None:
            return self._listener.fault.kind
        if not self.usable:
            return "config"
        return "login" if self.problem.startswith(_LOGIN_FAULTS) else "unreachable"

    def lacking_replicas(self) -> str | None:
        """That replicas of a topic are away, where they are; to be asked while nothing is confirmed."""
        if self._producer is None or not self._topic:
            return None
        return self._replicas.problem(self._producer, self._topic)

    @property
    def limited(self) -> str | None:
        """That a quota of Kafka's has held records back in the last minute; None where none has."""
        if time.monotonic() >= self._limited_s + _LIMITED_FOR_S:
            return None
        return f"Kafka's quota for {self._client_id} is reached: what is over it waits"

    @property
    def delivery_timeout_s(self) -> float:
        """After how long a record is given up, as configured; a day where it is never, or isn't known."""
        given = [self._config[name] for name in _TIMEOUTS if name in self._config]
        known = all(map(str.isdecimal, given)) and min(map(int, given)) > 0
        return max(map(int, given)) / 1000 if known else 86400.0

    def close(self) -> list[tuple[T, Undelivered | None]]:
        """Give up what is open and end; the last outcomes."""
        producers = [producer for producer, _ in self._leaving]
        producers += [each for each in (self._producer, self._single) if each is not None]
        self._producer, self._single, self._leaving, self._making = None, None, [], True
        for producer in producers:
            producer.purge()
            end_s = time.monotonic() + 1.0
            while len(producer) and time.monotonic() < end_s:
                self._serve(producer, _POLL_S)
        return self.poll()

    def _merged(self, bootstrap_servers: str, properties: Mapping[str, str]) -> Mapping[str, str]:
        return {
            **DEFAULTS,
            **properties,
            "bootstrap.servers": bootstrap_servers,
            "client.id": self._client_id,
        }

    def _make(self, config: Mapping[str, str]) -> Producer:
        callbacks = {
            "error_cb": self._on_error,
            "throttle_cb": self._on_throttle,
            "stats_cb": self._counting(),
        }
        return open_client(Producer, {**config, **callbacks})

    def _on_error(self, error: KafkaError) -> None:
        kind = _CHANGING.sub("", f"{error.name()}: {error.str()}")
        vague = error.code() in _VAGUE
        # What comes after a listener's fault is news again, though it was there before that.
        is_new = kind not in self._reported or (not vague and self._listener.fault is not None)
        log.log(logging.WARNING if is_new else logging.DEBUG, "event=kafka.error error=%s", error)
        self._reported.add(kind)
        if self.problem is None or (self.usable and error.code() != KafkaError._ALL_BROKERS_DOWN):
            # That all brokers are down follows each other reason, and hides it.
            self.problem = f"{error.name()}: {error.str()}"
        if not vague:
            self._listener.clear()
        elif self.usable and (is_new or self._listener.fault is not None or error.code() == KafkaError._SSL):
            self._listener.suspect(self._config, is_new=is_new)

    def _on_throttle(self, event: ThrottleEvent) -> None:
        if event.throttle_time > 0:
            if self.limited is None:
                log.warning(
                    "event=kafka.quota_reached client=%s wait_s=%.1f", self._client_id, event.throttle_time
                )
            self._limited_s = time.monotonic()

    def _counting(self) -> Callable[[str], None]:
        """Returns what a new producer calls with its statistics."""
        counted = 0

        def count(statistics: str) -> None:
            nonlocal counted
            sent = msgspec.json.decode(statistics, type=_Statistics).tx_bytes
            # librdkafka forgets what it has sent to a broker that has left the cluster.
            self.bytes_sent = (self.bytes_sent or 0) + max(sent - counted, 0)
            counted = sent

        return count

    def _delivered(self, token: T, error: KafkaError | None, message: Message) -> None:
        if error is None:
            if self.problem is not None:
                self.problem = None
                self._listener.clear()
                self._reported.clear()
            self._outcomes.append((token, None))
        elif error.code() in OF_A_RECORD:
            self._send_alone(token, error, message)
        else:
            self._outcomes.append((token, undelivered(error)))

    def _send_alone(self, token: T, error: KafkaError, message: Message) -> None:
        """Send a record of a refused batch again, by itself."""
        try:
            if self._producer is None:
                raise BufferError("closing")
            if self._single is None:
                self._single = self._make({**self._config, **_ONE_BY_ONE})
            self._single.produce(
                message.topic() or "",
                key=message.key(),
                value=message.value(),
                headers=message.headers(),
                on_delivery=partial(self._alone, token, error, int(self._config["batch.size"])),
            )
        except (CloudError, BufferError) as problem:
            # It is tried again: nothing is known of it.
            self._outcomes.append((token, Undelivered(str(problem), False, False)))
        except KafkaException as problem:
            self._outcomes.append((token, undelivered(problem.args[0])))

    def _alone(
        self, token: T, of_batch: KafkaError, size: int, error: KafkaError | None, message: Message
    ) -> None:
        """What became of a record that was sent by itself, and had been in a batch of so many bytes."""
        if error is None and of_batch.code() in BY_SIZE and size == int(self._config["batch.size"]):
            smaller = max(size // 2, 1024)
            self._config = {**self._config, "batch.size": str(smaller)}
            self._too_large = smaller < size
            log.warning(
                "event=kafka.batch_too_large topic=%s error=%s action=smaller kafka.properties.batch.size=%d",
                message.topic(), of_batch.name(), smaller,
            )  # fmt: skip
        self._outcomes.append((token, None if error is None else undelivered(error)))

    def _serve(self, producer: Producer, timeout_s: float) -> bool:
        """Take outcomes; False where the producer has come to its end.

        The client raises a fatal error from ``poll``, and gives it to no callback. Never ``Producer.flush``:
        it goes on to call back with that exception set, and outcomes are lost (confluent-kafka 2.16).
        """
        try:
            producer.poll(timeout_s)
        except KafkaException as problem:
            if producer is self._producer and not self._broken:
                log.error("event=kafka.fatal error=%s remedy=new_producer", problem.args[0])
                self._broken = True
            return False
        return True

    def _replace(self) -> None:
        """Have a producer made, or take the one that was made meanwhile."""
        made, now_s = self._made, time.monotonic()
        if isinstance(made, Prepared):
            self._made, self._making = None, False
            if made.config is self._config and (self._too_large or not self.usable):
                self.take_over(made)
            else:
                self._gone.append(made.producer)
        elif made is not None:
            self._made, self._making = None, False
            self._too_large = False
            if not self.usable:
                self._cannot_make(made)
        elif not self._making and now_s >= self._make_at_s:
            self._making = True
            threading.Thread(target=self._make_another, name="kafka-make", daemon=True).start()

    def _make_another(self) -> None:
        config = self._config
        try:
            self._made = Prepared(self._make(config), config)
        except Exception as error:  # noqa: BLE001 - whatever it is, another may be made later
            self._made = CloudError(str(error))

    def _cannot_make(self, error: CloudError) -> None:
        """While a certificate is being replaced, for instance."""
        self._make_at_s = time.monotonic() + _MAKE_AGAIN_S
        log.log(
            logging.DEBUG if str(error) == self.problem else logging.ERROR,
            "event=kafka.no_producer error=%s",
            error,
        )
        self.problem = str(error)

    def _see_off(self) -> None:
        """Take what replaced producers still report; those that have nothing more end."""
        # Dropped by a thread, for librdkafka joins its own ones then.
        gone, self._gone = self._gone, []
        if gone:
            threading.Thread(target=gone.clear, name="kafka-leaving", daemon=True).start()
        now_s, leaving, self._leaving = time.monotonic(), self._leaving, []
        for producer, until_s in leaving:
            if now_s >= until_s:
                producer.purge()
            if self._serve(producer, 0.0) and len(producer):
                self._leaving.append((producer, until_s))
            elif len(producer):
                # Ended by a fatal error: what it holds comes as undelivered.
                producer.purge()
                self._leaving.append((producer, float("-inf")))
            else:
                self._gone.append(producer)
