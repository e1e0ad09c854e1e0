"""A gateway in a virtual machine, and what became of everything it sampled while its power was cut."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import pairwise
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self

from cloud.wire.run_records import RunRecord
from tests.faults.kafka import Identity, Kafka
from tests.faults.reckoning import Reckoning, readings_in
from tests.faults.witness import Witness
from tests.support.accounts import read_accounts
from tests.support.config import PLACE, Table, baro, config_text, cup, dht
from tests.support.servers import eventually, unique_name
from tests.vm.machine import Link, Machine

COMMIT_INTERVAL_S: Final = 1.0
FSYNC_S: Final = 1.0
"""What one fsync may take on the emulated machine, and a reading's way out of it to the witness."""

TOKEN: Final = "virtual-machine-test"  # noqa: S105
"""For the guest the host is another machine."""

SPEED: Final = 2
RATE: Final = 9 * SPEED
"""Readings per second: in one of event time four cups and two barometers make six, three DHT three."""

_PATIENCE_S: Final = 240
_BACKLOG: Final = 200

Phase = Literal["live", "spilling", "draining"]
_LONGEST_S: Final[Mapping[Phase, float]] = {"live": 4.0, "spilling": 5.0, "draining": 1.0}

_SENSORS: Final = (
    *(cup(f"cup-{n}", pin) for n, pin in enumerate((5, 6, 13, 19))),
    *(dht(f"dht-{n}", pin) for n, pin in enumerate((4, 17, 27))),
    *(baro(f"baro-{n}", adc={"address": 0x48, "input": n, "gain": "6.144V"}) for n in range(2)),
)


def guest_config(name: str, *sensors: Table, outbox: Table | None = None, **sections: Table) -> str:
    """The config of a gateway in the guest, whose clock is right and whose Kafka is the host's."""
    stored: Table = {
        "path": f"/var/lib/fieldgate/{name}.db", "min_free_disk": "64MiB", "max_bytes": "64MiB",
        **(outbox or {}),
    }  # fmt: skip
    given: dict[str, Table | None] = {
        "gateway": {"id": name, **PLACE},
        "kafka": {"bootstrap_servers": "kafka.test:9092"},
        # The machine has no time synchronisation.
        "clock": {"trust": "always"},
        "outbox": stored,
        "status": {"listen": "0.0.0.0:8321", "token": TOKEN},
        "board": None,
        **sections,
    }
    return config_text(*sensors, **given)


class Ports(NamedTuple):
    """Ports of 127.0.0.1 that lead into the machine."""

    mqtt: int
    status: int

    @property
    def forwards(self) -> dict[int, int]:
        """Where they lead to."""
        return {self.mqtt: 1883, self.status: 8321}

    def status_now(self) -> dict[str, Any]:
        """The daemon's own account of itself; empty while it doesn't answer. Its config has ``TOKEN``."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.status}/api/status", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
                status: dict[str, Any] = json.load(answer)
        except (OSError, HTTPException):
            return {}
        return status


class _Mosquitto(NamedTuple):
    host: str
    port: int


@dataclass
class Cut:
    """One power cut: in which run, when (monotonic), and what the gateway reported shortly before."""

    phase: Phase
    run: str
    at_s: float
    before: RunRecord
    load: float
    """The host's load average over the minute before."""
    silent_s: float
    """The longest time in the last 5 s before in which the witness received nothing (an uneven guest)."""
    found: int | None = None
    """Rows in the outbox as the next run opened it; None where they were already on their way."""
    boot_s: float = 0.0
    ready_s: float = 0.0
    lost: set[Identity] = field(default_factory=set)
    oldest_s: float = 0.0


class GuestMast:
    """One gateway id through all its runs; its predecessors' outboxes are left alone."""

    def __init__(self, machine: Machine, ports: Ports, kafka: Kafka) -> None:
        self.id = unique_name("mast")
        self.kafka = kafka
        self.cuts: list[Cut] = []
        self._machine = machine
        self._ports = ports
        self._link: Link = "up"
        self.witness = Witness(_Mosquitto("127.0.0.1", ports.mqtt), self.id, readings=True, keepalive_s=5)

    def __enter__(self) -> Self:
        self._set_link("up")
        config = guest_config(
            self.id,
            *_SENSORS,
            outbox={"commit_interval_s": COMMIT_INTERVAL_S},
            board={"kind": "simulated", "start": "2026-01-01T00:00:00Z", "speed": SPEED},
        )
        self._machine.run(
            f"set -e; cat > /etc/fieldgate/gateway.toml <<'END'\n{config}END\n"
            "systemd-tmpfiles --create 2>&1; sync; fieldgate check 1>&2; systemctl restart fieldgate"
        )
        self.witness.__enter__()
        self.answers("")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.witness.__exit__(kind, error, trace)

    def status(self) -> dict[str, Any]:
        """The daemon's own account of itself; empty while it doesn't answer."""
        return self._ports.status_now()

    def cut(self, phase: Phase, moments: Random) -> Cut:
        """Bring the gateway into a phase, cut the power at a random moment of it, and boot again."""
        self.enter(phase)
        _let_pass(moments.uniform(0.0, _LONGEST_S[phase]))
        run = str(self.status()["run"])
        before = self.witness.runs[run].record
        assert before is not None
        load = os.getloadavg()[0]
        at_s = self._machine.power_cut()
        cut = Cut(phase, run, at_s, before, load, self._silent_s(run, at_s))
        self.cuts.append(cut)
        cut.boot_s = self._machine.boot()
        opened = self.answers(run)
        cut.ready_s = time.monotonic() - cut.at_s
        if self._link != "up":
            cut.found = opened["outbox_records"]
        return cut

    def drain(self) -> None:
        """Open the uplink, wait until nothing is left, and stop the gateway."""
        self.enter("live")
        run = str(self.status()["run"])
        self._machine.run("systemctl stop fieldgate")
        eventually(lambda: self.witness.state(run), 60, until=lambda state: state == "stopped")

    def outbox_is_sound(self) -> str:
        """What SQLite reports of the file, and files that were set aside; the gateway has stopped."""
        database = f"/var/lib/fieldgate/{self.id}.db"
        return self._machine.run(
            f"sqlite3 {database} 'pragma integrity_check'; ls {database}* | grep -E 'damaged|salvage' || true"
        ).strip()

    def stored(self, directory: Path) -> set[Identity]:
        """The readings a stop has left in the outbox, read from a copy of it; the gateway has stopped.

        Kafka gets 5 s at a stop; what it hasn't confirmed by then stays for the next run.
        """
        database = f"/var/lib/fieldgate/{self.id}.db"
        for path in self._machine.run(f"sync; ls {database} {database}-wal 2>/dev/null || true").split():
            self._machine.pull(path, directory / Path(path).name)
        return readings_in(directory / f"{self.id}.db")

    def restarts(self) -> int:
        """How often systemd had to start the service again, in all boots."""
        return int(
            self._machine.run("journalctl -u fieldgate -o cat | grep -c 'Scheduled restart job' || true")
        )

    def gap_s(self, former: str, run: str) -> float:
        """Between the last reading of a run and the first of the next, as they reached the witness."""
        last = max(list(self.witness.runs[former].published.values()))
        return min(list(self.witness.runs[run].published.values())) - last

    def reckon(self, stored: set[Identity]) -> Reckoning:
        """Compare everything with everything, and note what each cut cost; the gateway has stopped."""
        accounts = read_accounts(self.kafka.direct)
        reckoning = Reckoning(
            gateway=self.id,
            sampled=self.witness.sampled(),
            kafka=set(accounts.identities("stored", self.id)),
            outbox=stored,
            dead_letters=set(),
            dropped=self.witness.dropped(),
            accounts=accounts.of(self.id),
            refused=accounts.refused_of(self.id),
            repeats=sum(count for (of, _), count in accounts.repeats.items() if of == self.id),
            replayed=sum(count for (of, _), count in accounts.replayed.items() if of == self.id),
        )
        for cut in self.cuts:
            cut.lost = {reading for reading in reckoning.lost if reading[2] == cut.run}
            cut.oldest_s = max((self._age_s(cut, reading) for reading in cut.lost), default=0.0)
        return reckoning

    def _age_s(self, cut: Cut, lost: Identity) -> float:
        """How long before the cut a reading reached the witness; else reckoned from those after it."""
        _, channel, run, seq = lost
        seen = self.witness.runs[run]
        arrived_s = seen.published.get((channel, seq))
        if arrived_s is not None:
            return cut.at_s - arrived_s
        every_s = (2 if channel.startswith("dht") else 1) / SPEED
        return (seen.last_seq()[channel] - seq) * every_s

    def _silent_s(self, run: str, at_s: float) -> float:
        """The longest pause between arrivals in the 5 s up to a moment."""
        received = sorted(
            when for when in list(self.witness.runs[run].published.values()) if at_s - 5 <= when <= at_s
        )
        return max(after - before for before, after in pairwise([at_s - 5, *received, at_s]))

    def enter(self, phase: Phase) -> None:
        """Wait until the gateway is in a phase, with the uplink as it takes."""
        if phase == "live":
            self._set_link("up")
            self._wait(lambda now: now["uplink"] == "healthy" and now["outbox_records"] == 0)
        elif phase == "spilling":
            self._set_link("silent")
            self._wait(lambda now: now["uplink"] == "spilling" and now["outbox_records"] > 0)
        else:
            if self._link == "up":
                # Without a carrier: the interface loses its address, and connections break at once.
                self._set_link("down")
            self._wait(lambda now: now["uplink"] == "spilling" and now["outbox_records"] >= _BACKLOG)
            before = self.status()["drained"]
            self._set_link("up")
            self._wait(lambda now: now["drained"] > before)

    def _set_link(self, link: Link) -> None:
        self._machine.link(link)
        self._link = link

    def _wait(self, reached: Any) -> None:
        eventually(self.status, _PATIENCE_S, until=lambda now: bool(now) and reached(now))

    def answers(self, former_run: str) -> dict[str, Any]:
        """Wait until a new run samples, under the witness' eyes; its first answer."""
        first = eventually(
            self.status,
            _PATIENCE_S,
            until=lambda now: now.get("gateway") == self.id and now["run"] != former_run,
        )
        eventually(lambda: str(first["run"]) in self.witness.runs, _PATIENCE_S)
        eventually(
            lambda: len(self.witness.runs[first["run"]].published), _PATIENCE_S, until=lambda n: n > 2 * RATE
        )
        return first


def _let_pass(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    eventually(time.monotonic, seconds + 5, until=lambda now_s: now_s >= end_s, poll_s=0.001)
