"""The standard simulated mast: its gateway as a real process, and what became of everything it sampled."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cloud.wire.reading_records import Reading
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.faults.kafka import QUANTITIES, Identity, Kafka
from tests.faults.reckoning import Reckoning, readings_in
from tests.faults.witness import Witness
from tests.support.accounts import read_accounts
from tests.support.config import PLACE, Table, baro, config_text, cup, dht
from tests.support.mast import GatewayProcess
from tests.support.servers import eventually, unique_name

COMMIT_INTERVAL_S: Final = 0.5
FSYNC_S: Final = 0.5
"""What one fsync, and a busy machine's scheduling, may take beyond the commit interval."""

PER_EVENT_SECOND: Final = 5
"""Readings of the standard mast in a second of event time."""

CHANNELS: Final = 6
"""Of the standard mast."""

_SENSORS: Final = (
    cup("cup-a"),
    cup("cup-b", 27),
    dht(),
    *(
        baro(f"baro-{letter}", adc={"address": 0x48, "input": n, "gain": "6.144V"})
        for n, letter in enumerate("ab")
    ),
)


class Mast(GatewayProcess):
    """One gateway through all its runs: Kafka topics of its own, one outbox, one witness.

    ``kafka_address`` is the uplink's unless given. ``rate`` is readings per second, at most; a ``board`` of
    one's own replaces it.
    """

    def __init__(
        self,
        directory: Path,
        kafka: Kafka,
        mosquitto: LocalMosquitto,
        *,
        rate: float = 150,
        kafka_address: str | None = None,
        outbox: Path | None = None,
        board: Table | None = None,
        more: str = "",
        max_bytes: str = "1GiB",
        watch_readings: bool = False,
        program: Sequence[str] = ("gateway.cli", "run"),
    ) -> None:
        name = unique_name("mast")
        self.kafka = kafka
        self.topic = f"mqtt.{{quantity}}.{name}"
        self.topics = {quantity: self.topic.format(quantity=quantity) for quantity in QUANTITIES}
        self.witness = Witness(mosquitto, name, readings=watch_readings)
        self.others: set[Identity] = set()
        """Readings of other devices and earlier runs that were handed to this gateway."""
        config = config_text(
            *_SENSORS,
            gateway={"id": name, **PLACE},
            kafka={"topic": self.topic},
            outbox={
                "path": str(outbox or "outbox.db"), "commit_interval_s": COMMIT_INTERVAL_S,
                "min_free_disk": 0, "max_bytes": max_bytes,
            },
            board=board or {"start": "2026-01-01T00:00:00Z", "speed": rate / PER_EVENT_SECOND},
        )  # fmt: skip
        address = kafka_address or kafka.by_uplink
        super().__init__(directory, config + more, name, address, mosquitto, program=program)
        self.outbox = outbox or self.outbox

    def __enter__(self) -> Self:
        self.kafka.create(*self.topics.values())
        self.witness.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self.witness.__exit__(kind, error, trace)
        if error is not None:
            # Shown by pytest with the failure.
            sys.stderr.write(self.log.read_text(errors="replace")[-6000:])

    def start(self, *, seconds: float | None = None, sampling: bool = True) -> str:
        """Start a run, wait until it samples, and give its id. ``seconds`` ends the sampling."""
        self.witness.watch()
        self.launch(*(() if seconds is None else ("--seconds", str(seconds))))
        eventually(self.status_now)
        if sampling:
            eventually(self.sampled)
        return str(self.status()["run"])

    def stop(self, *, exit_code: int = 0) -> int:
        """SIGTERM; the last run record has arrived when this returns, where the broker is up."""
        run = str(self.status()["run"])
        assert super().stop() == exit_code
        eventually(lambda: self.witness.state(run), until=lambda state: state == "stopped")
        return exit_code

    def in_kafka(self, quantity: str) -> int:
        """How many records a topic has."""
        return sum(1 for _ in self.kafka.messages([self.topics[quantity]]))

    def stored(self, path: Path | None = None) -> set[Identity]:
        """The readings in the outbox, or in a copy of it; the daemon has ended."""
        return readings_in(path or self.outbox)

    def reckon(self) -> Reckoning:
        """Compare everything with everything; the daemon has ended."""
        accounts = read_accounts(self.kafka.direct, self.topics.values())
        return Reckoning(
            gateway=self.id,
            sampled=self.witness.sampled() | self.others,
            kafka=set(accounts.identities("stored")),
            outbox=self.stored(),
            dead_letters=set(accounts.identities("dead_letters", self.id)),
            dropped=self.witness.dropped(),
            accounts=accounts.of(self.id),
            refused=accounts.refused_of(self.id),
            repeats=accounts.repeats.total(),
            replayed=accounts.replayed.total(),
        )


def device_reading(gateway: str, seq: int, *, run: str = "earlier-run") -> Reading:
    """A reading of another device, or of an earlier run of this one."""
    return Reading(
        gateway=gateway, channel="cup-a.wind_speed", quantity="wind_speed", unit="m/s",
        time_us=1_767_225_600_000_000 + seq * 1_000_000, period_ms=1000, value=7.235, raw=9.0, raw_unit="Hz",
        quality=1, reasons=(), run=run, seq=seq, clock="synced", cal="5d1c0a7e",
    )  # fmt: skip
