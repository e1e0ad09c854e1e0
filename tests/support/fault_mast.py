"""A gateway daemon as a real process on a simulated mast, and what became of everything it sampled."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from buffer.sqlite_outbox import SqliteOutbox
from cloud.kafka.run_accounts import RunAccount
from cloud.kafka.topic_scan import read_books
from cloud.local.process import free_port
from cloud.wire.schema import InvalidReading, Reading, parse_reading
from cloud.wire.seq_set import Seqs
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.forwarding.record_codec import from_bytes
from tests.faults.kafka import QUANTITIES, Identity, Kafka
from tests.faults.witness import Witness
from tests.support.servers import eventually, unique_name

COMMIT_INTERVAL_S: Final = 0.5
FSYNC_S: Final = 0.5
"""What one fsync, and a busy machine's scheduling, may take beyond the commit interval."""

PER_EVENT_SECOND: Final = 5
"""Readings of the standard mast in a second of event time."""

CHANNELS: Final = 6
"""Of the standard mast."""

SENSORS: Final = """
[[sensor]]
name = "cup-a"
driver = "hall-anemometer"
pin = 17
slope = 0.765
offset = 0.35
[[sensor]]
name = "cup-b"
driver = "hall-anemometer"
pin = 27
slope = 0.765
offset = 0.35
[[sensor]]
name = "dht"
driver = "dht11"
pin = 4
interval_s = 2
[[sensor]]
name = "baro-a"
driver = "bp20"
adc = { address = 0x48, input = 0, gain = "6.144V" }
[[sensor]]
name = "baro-b"
driver = "bp20"
adc = { address = 0x48, input = 1, gain = "6.144V" }
"""

_CONFIG: Final = """
[gateway]
id = "{id}"
latitude = 27.7
longitude = 85.5
[mqtt]
port = {mqtt_port}
[kafka]
bootstrap_servers = "{kafka}"
topic = "{topic}"
[outbox]
path = "{outbox}"
commit_interval_s = {commit_interval_s}
min_free_disk = 0
max_bytes = "{max_bytes}"
[status]
listen = "127.0.0.1:{status_port}"
{board}
{sensors}
{more}
"""

_SIMULATED: Final = """
[board]
kind = "simulated"
start = "2026-01-01T00:00:00Z"
speed = {speed}
"""


@dataclass
class Reckoning:
    """All that was sampled against all places where it may be.

    ``kafka`` and ``dead_letters`` are what ``fieldgate status`` found there, ``told`` is what it says of it;
    the rest comes from the witness on the local broker and from the outbox itself.
    """

    gateway: str
    sampled: set[Identity]
    kafka: set[Identity]
    outbox: set[Identity]
    dead_letters: set[Identity]
    dropped: set[Identity]
    told: list[RunAccount]
    refused: Counter[str] = field(default_factory=Counter)
    repeats: int = 0
    replayed: int = 0

    @property
    def present(self) -> set[Identity]:
        """What is in Kafka, in the outbox, in the dead letters, or announced as dropped."""
        return self.kafka | self.outbox | self.dead_letters | self.dropped

    @property
    def lost(self) -> set[Identity]:
        """Sampled, and nowhere."""
        return self.sampled - self.present

    @property
    def invented(self) -> set[Identity]:
        """Somewhere, and never sampled."""
        return self.present - self.sampled

    def figures(self) -> dict[str, int]:
        """One line of the results."""
        return {
            "sampled": len(self.sampled),
            "in Kafka": len(self.kafka),
            "repeats": self.repeats,
            "replayed": self.replayed,
            "outbox": len(self.outbox),
            "dead letters": self.refused.total(),
            "announced": len(self.dropped),
            "unaccounted": len(self.lost),
        }

    def balance(self) -> None:
        """Fail unless everything sampled is somewhere, nothing else is anywhere, and the tool says so too."""
        assert self.sampled
        assert not self.lost, f"unaccounted {len(self.lost)}: {_summary(self.lost)}; {self.figures()}"
        assert not self.invented, f"never sampled: {_summary(self.invented)}; {self.figures()}"
        self.agree()
        assert all(account.balanced for account in self.told), self.told

    def agree(self) -> None:
        """Fail unless the tool says the same of each run, as far as the run's last record lets it know."""
        arrived = Counter(run for _, _, run, _ in self.kafka)
        for account in self.told:
            known = {
                (self.gateway, channel, account.run, seq)
                for channel, last in account.last_seq.items()
                for seq in range(1, last + 1)
            }
            missing = known - self.kafka - self.dead_letters - self.dropped
            assert account.in_kafka == arrived[account.run]
            if account.sampled is not None:
                assert account.sampled == len(known)
                assert account.pending + account.unaccounted == len(missing), account
                # The outbox holds more than readings, and its count may be as old as the record.
                assert account.unaccounted <= len(missing - self.outbox), account
            if account.state == "stopped":
                of_run = {identity for identity in self.sampled if identity[2] == account.run}
                assert known == of_run, account


def _summary(identities: set[Identity]) -> str:
    by_channel: dict[tuple[str, ...], list[int]] = {}
    for *source, seq in sorted(identities):
        by_channel.setdefault(tuple(map(str, source)), []).append(seq)
    return ", ".join(
        f"{'/'.join(source)}: {len(seqs)} in {seqs[0]}–{seqs[-1]}" for source, seqs in by_channel.items()
    )


class Mast:
    """One gateway through all its runs: Kafka topics of its own, one outbox, one witness.

    ``kafka_address`` is the uplink's unless given. ``rate`` is readings per second, at most.
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
        board: str | None = None,
        more: str = "",
        max_bytes: str = "1GiB",
        watch_readings: bool = False,
        program: Sequence[str] = ("gateway.cli", "run"),
    ) -> None:
        self.id = unique_name("mast")
        self.kafka = kafka
        self.mosquitto = mosquitto
        self.outbox = outbox or directory / "outbox.db"
        self.log = directory / "gateway.log"
        self.topic = f"mqtt.{{quantity}}.{self.id}"
        self.topics = {quantity: self.topic.format(quantity=quantity) for quantity in QUANTITIES}
        self.witness = Witness(mosquitto, self.id, readings=watch_readings)
        self.others: set[Identity] = set()
        """Readings of other devices and earlier runs that were handed to this gateway."""
        self._program = program
        self._status_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._config = directory / "gateway.toml"
        self._config.write_text(
            _CONFIG.format(
                id=self.id,
                mqtt_port=mosquitto.port,
                kafka=kafka_address or kafka.by_uplink,
                topic=self.topic,
                outbox=self.outbox,
                commit_interval_s=COMMIT_INTERVAL_S,
                status_port=self._status_port,
                board=board or _SIMULATED.format(speed=rate / PER_EVENT_SECOND),
                sensors=SENSORS,
                more=more,
                max_bytes=max_bytes,
            )
        )

    def __enter__(self) -> Self:
        self.kafka.create(*self.topics.values())
        self.witness.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.witness.__exit__(kind, error, trace)
        if error is not None:
            # Shown by pytest with the failure.
            sys.stderr.write(self.log.read_text(errors="replace")[-6000:])

    @property
    def pid(self) -> int:
        """The running daemon's."""
        assert self._process is not None
        return self._process.pid

    def start(self, *, seconds: float | None = None, sampling: bool = True) -> str:
        """Start a run, wait until it samples, and give its id. ``seconds`` ends the sampling."""
        self.witness.watch()
        command = [sys.executable, "-m", *self._program, "-c", str(self._config)]
        if seconds is not None:
            command += ["--seconds", str(seconds)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log)
        eventually(self._answers)
        if sampling:
            eventually(self.sampled, until=lambda sampled: sampled > 0)
        return str(self.status()["run"])

    def config(self) -> str:
        """The file as it is."""
        return self._config.read_text()

    def reload(self, config: str) -> str | None:
        """Write the file, send SIGHUP, and wait for its answer: what is wrong with it, or None."""
        assert self._process is not None
        before = self.status()["config"]
        self._config.write_text(config)
        self._process.send_signal(signal.SIGHUP)
        error: str | None = eventually(lambda: self.status()["config"], until=lambda state: state != before)[
            "error"
        ]
        return error

    def stop(self, *, exit_code: int = 0) -> None:
        """SIGTERM; the last run record has arrived when this returns, where the broker is up."""
        assert self._process is not None
        run = str(self.status()["run"])
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(90) == exit_code
        eventually(lambda: self.witness.state(run), until=lambda state: state == "stopped")

    def kill(self) -> float:
        """SIGKILL; when that was (monotonic)."""
        assert self._process is not None
        self._process.kill()
        killed_s = time.monotonic()
        self._process.wait()
        return killed_s

    def status(self) -> dict[str, Any]:
        """The daemon's own account of itself."""
        assert self._process is not None
        assert self._process.poll() is None, f"the daemon ended with {self._process.returncode}"
        with urllib.request.urlopen(f"http://127.0.0.1:{self._status_port}/api/status", timeout=30) as answer:
            status: dict[str, Any] = json.load(answer)
        return status

    def sampled(self) -> int:
        """How many readings this run has sampled."""
        return int(self.status()["sampled"])

    def _answers(self) -> bool:
        try:
            return bool(self.status())
        except OSError:
            return False

    def sample(self, count: int, deadline_s: float = 90) -> None:
        """Wait until the run has sampled ``count`` more."""
        before = self.sampled()
        eventually(self.sampled, deadline_s, until=lambda sampled: sampled >= before + count)

    def healthy(self, deadline_s: float = 90) -> None:
        """Wait until Kafka answers and nothing is left in the outbox."""
        eventually(
            lambda: {name: self.status()[name] for name in ("uplink", "outbox_records")},
            deadline_s,
            until=lambda now: now == {"uplink": "healthy", "outbox_records": 0},
        )

    def empty(self, deadline_s: float = 90) -> None:
        """Wait until nothing is open, in memory or in the outbox."""
        eventually(
            lambda: {name: self.status()[name] for name in ("in_flight", "outbox_records")},
            deadline_s,
            until=lambda now: now == {"in_flight": 0, "outbox_records": 0},
        )

    def spilling(self, deadline_s: float = 90) -> None:
        """Wait until the daemon stores what it samples."""
        eventually(lambda: self.status()["uplink"], deadline_s, until=lambda uplink: uplink == "spilling")

    def in_memory(self, until: Callable[[int], bool], deadline_s: float = 90) -> None:
        """Wait until so many records are in memory for want of a disk."""
        eventually(lambda: self.status()["outbox_memory_records"], deadline_s, until=until)

    def in_kafka(self, quantity: str) -> int:
        """How many records a topic has."""
        return sum(1 for _ in self.kafka.messages([self.topics[quantity]]))

    def stored(self, path: Path | None = None) -> set[Identity]:
        """The readings in the outbox, or in a copy of it; the daemon has ended."""
        return readings_in(path or self.outbox)

    def reckon(self) -> Reckoning:
        """Compare everything with everything; the daemon has ended."""
        books = read_books(self.kafka.direct, topics=self.topics.values())
        kafka: set[Identity] = set()
        dead_letters: set[Identity] = set()
        repeats = replayed = 0
        for gateway, run, found in books.found():
            kafka.update(_identities(gateway, run, found.kafka))
            if gateway == self.id:
                dead_letters.update(_identities(gateway, run, found.dead_letters))
            repeats += found.repeats
            replayed += found.replayed
        return Reckoning(
            gateway=self.id,
            sampled=self.witness.sampled() | self.others,
            kafka=kafka,
            outbox=self.stored(),
            dead_letters=dead_letters,
            dropped=self.witness.dropped(),
            told=[account for account in books.accounts() if account.gateway == self.id],
            refused=Counter(
                {reason: n for (gateway, reason), n in books.letters.items() if gateway == self.id}
            ),
            repeats=repeats,
            replayed=replayed,
        )


def _identities(gateway: str, run: str, places: Mapping[str, Seqs]) -> Iterator[Identity]:
    return ((gateway, channel, run, seq) for channel, seqs in places.items() for seq in seqs)


def readings_in(path: Path) -> set[Identity]:
    """The readings in an outbox that no daemon has open."""
    found: set[Identity] = set()
    outbox = SqliteOutbox(path)
    try:
        after = 0
        while rows := outbox.peek(after, 10_000, 1 << 24):
            after = rows[-1][0]
            for _, stored in rows:
                record = from_bytes(stored)
                try:
                    found.add(parse_reading(record.value).identity)
                except InvalidReading:
                    # A dead letter or a run record on its way.
                    continue
    finally:
        outbox.close()
    return found


def device_reading(gateway: str, seq: int, *, run: str = "earlier-run") -> Reading:
    """A reading of another device, or of an earlier run of this one."""
    return Reading(
        gateway=gateway, channel="cup-a.wind_speed", quantity="wind_speed", unit="m/s",
        time_us=1_767_225_600_000_000 + seq * 1_000_000, period_ms=1000, value=7.235, raw=9.0, raw_unit="Hz",
        quality=1, reasons=(), run=run, seq=seq, clock="synced", cal="5d1c0a7e",
    )  # fmt: skip
