"""Sends commands to gateways and reads what became of them."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cloud.errors import CloudError
from cloud.kafka.librdkafka import DEFAULTS, open_client
from cloud.kafka.readers import KeyReader, Place
from cloud.wire.command_records import WITH_TARGET, Command, CommandResult, parse_command, parse_result
from cloud.wire.fields import InvalidFields, format_time
from cloud.wire.reading_records import COMMAND_RESULTS_TOPIC, COMMANDS_TOPIC


def publish(
    bootstrap_servers: str, properties: Mapping[str, str], record: tuple[str, bytes, bytes], timeout_s: float
) -> None:
    """Produce one record, topic, key and value, and wait until Kafka has it. Raises CloudError."""
    topic, key, value = record
    settings = {
        **DEFAULTS,
        **properties,
        "bootstrap.servers": bootstrap_servers,
        "delivery.timeout.ms": str(round(timeout_s * 1000)),
        "log_level": 0,
    }
    outcome: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        outcome.append(error)

    try:
        producer = open_client(Producer, settings)
        producer.produce(topic, key=key, value=value, on_delivery=delivered)
        producer.flush(timeout_s + 1)
    except KafkaException as error:
        raise CloudError(f"{topic}: {error.args[0].str()}") from error
    if not outcome or outcome[0] is not None:
        reason = outcome[0].str() if outcome and outcome[0] is not None else "no answer"
        raise CloudError(f"{topic}: the record may not have been stored: {reason}")


_STEP_S: Final = 0.25


def new_command(gateway: str, action: str, target: str, args: Mapping[str, Any], expires_s: float) -> Command:
    """A command of now that gateways can read. Raises InvalidFields, CloudError about the target."""
    if bool(target) != (action in WITH_TARGET):
        raise CloudError(f"{action} {'needs a target' if action in WITH_TARGET else 'has no target'}")
    now_us = time.time_ns() // 1000
    command = Command(
        id=uuid.uuid4().hex,
        gateway=gateway,
        target=target,
        action=action,
        args=args,
        issued_at=format_time(now_us),
        expires_at=format_time(now_us + round(expires_s * 1e6)),
    )
    parse_command(command.to_json())
    return command


def in_words(command: Command, result: CommandResult | None) -> str:
    """A command and what became of it, on one line."""
    what = " ".join(filter(None, (command.issued_at, command.id, command.action, command.target)))
    if result is None:
        return f"{what}: no result yet; the gateway may be offline, and after {command.expires_at} refuses it"
    why = f" {result.reason}: {result.detail}" if result.reason else ""
    found = f" {json.dumps(result.result)}" if result.result else ""
    return f"{what}: {result.outcome}{why}{found}"


class CommandClient:
    """Commands of one gateway. Raises CloudError."""

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, str],
        gateway: str,
        timeout_s: float = 10.0,
        prefix: str = "",
    ) -> None:
        self._prefix = prefix
        self._servers = bootstrap_servers
        self._properties = properties
        self._key = gateway.encode()
        self._timeout_s = timeout_s

    def send(
        self, command: Command, wait_s: float, waiting: Callable[[float], None] = lambda _s: None
    ) -> CommandResult | None:
        """Publish a command; its result, None where none comes in time. ``waiting`` gets seconds so far."""
        # First: the result may be there before the delivery is reported.
        with closing(self._reader(COMMAND_RESULTS_TOPIC, 0)) as results:
            record = self._prefix + COMMANDS_TOPIC, self._key, command.to_json()
            publish(self._servers, self._properties, record, self._timeout_s)
            begin_s = time.monotonic()
            while (so_far_s := time.monotonic() - begin_s) < wait_s:
                fetched = results.read(min(_STEP_S, wait_s - so_far_s))
                if fetched is None:
                    waiting(so_far_s)
                    continue
                try:
                    result = parse_result(fetched.value)
                except InvalidFields:
                    continue
                if fetched.key == self._key and result.id == command.id:
                    return result
        return None

    def since(self, time_ms: int) -> list[tuple[Command, CommandResult | None]]:
        """The commands since a time (ms since the epoch), each with its result, oldest first."""
        commands: dict[str, Command] = {}
        results: dict[str, CommandResult] = {}
        for value in self._values(COMMANDS_TOPIC, time_ms):
            try:
                command = parse_command(value)
            except InvalidFields:
                continue
            commands[command.id] = command
        for value in self._values(COMMAND_RESULTS_TOPIC, time_ms):
            try:
                result = parse_result(value)
            except InvalidFields:
                continue
            if result.id is not None:
                results[result.id] = result
        return [(command, results.get(name)) for name, command in commands.items()]

    def _values(self, topic: str, time_ms: int) -> Iterator[bytes]:
        with closing(self._reader(topic, time_ms)) as reader:
            until_s = time.monotonic() + self._timeout_s
            while not reader.at_end:
                fetched = reader.read(_STEP_S)
                if fetched is not None:
                    until_s = time.monotonic() + self._timeout_s
                    if fetched.key == self._key:
                        yield fetched.value
                elif time.monotonic() >= until_s:
                    raise CloudError(f"Kafka at {self._servers} has sent nothing of {topic} for some time")

    def _reader(self, topic: str, time_ms: int) -> KeyReader:
        place = Place(None, None, time_ms)
        return KeyReader(self._servers, self._properties, self._prefix + topic, self._key, place)
