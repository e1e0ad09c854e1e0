"""Which channels are there, and what is missing of them: the rows of ``presence``.

Pure bookkeeping over the tables' rows; times are microseconds since the epoch. Pending and lost readings are
those of ``cloud.wire.seq_accounting``, as for ``fieldgate status``. A run record has what was sent by its
time, so it counts only once the readings sent before it are in the table: when a later arrival of its gateway
is there, or five minutes later. Until then the figures stay as they were. Owned by one thread at a time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from cloud.wire.run_records import RunRecord
from cloud.wire.seq_accounting import (
    ChannelBalance,
    Found,
    Known,
    current_run,
    held_of_channels,
    held_of_runs,
    named_runs,
    run_balance,
)
from cloud.wire.status_records import OFFLINE, ONLINE

SILENT: Final = "silent"
SETTLE_US: Final = 300_000_000
"""After so long a run record counts whether or not something of its gateway has arrived since."""
_PERIODS: Final = 5
_METERED: Final = 3
"""A metered gateway sends once a minute or less: it is silent after so many times as long."""
_ENDED: Final = ("stopped", "killed")

Channel = tuple[str, str]
"""gateway, channel."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """When a channel's last reading arrived (Kafka's time), and its newest reading."""

    last_seen_us: int | None = None
    time_us: int | None = None
    value: float | None = None
    period_ms: int | None = None

    def later(self, other: Arrival) -> Arrival:
        """Both together; of two readings of one time the other is the corrected one."""
        seen = max(
            (each for each in (self.last_seen_us, other.last_seen_us) if each is not None), default=None
        )
        newer = other if (other.time_us or 0) >= (self.time_us or 0) and other.time_us is not None else self
        return Arrival(seen, newer.time_us, newer.value, newer.period_ms)


@dataclass(frozen=True, slots=True)
class Losses:
    """Readings of one channel, over all runs, that are not in the table."""

    pending: int = 0
    lost: int = 0
    announced: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """A run's last status, and when Kafka took it."""

    state: str
    uplink: str | None
    at_us: int


@dataclass(frozen=True, slots=True)
class Presence:
    """A row of the table."""

    arrival: Arrival
    state: str
    losses: Losses


@dataclass
class _Gateway:
    """One gateway. ``records``, with their times, are those of all runs; ``settled`` count already."""

    found: defaultdict[str, Found] = field(default_factory=lambda: defaultdict(Found))
    records: dict[str, tuple[RunRecord, int]] = field(default_factory=dict)
    waiting: list[tuple[RunRecord, int]] = field(default_factory=list)
    settled: dict[str, tuple[RunRecord, int]] = field(default_factory=dict)
    statuses: dict[str, Status] = field(default_factory=dict)
    arrived_us: int = 0
    balances: dict[str, dict[str, ChannelBalance]] = field(default_factory=dict)
    currents: tuple[str | None, frozenset[str]] = (None, frozenset())
    stale: bool = True

    def newest(self) -> str | None:
        """The gateway's run now: the last one with a record, or one with no more than a status yet."""
        named = named_runs(self.records)
        current = current_run(self.records, named)
        since = self.statuses[current].at_us if current in self.statuses else -1
        begun = {
            run: status.at_us
            for run, status in self.statuses.items()
            if run not in self.records and run not in named
            and (current is None or (status.state == ONLINE and status.at_us > since))
        }  # fmt: skip
        return max(begun, key=lambda run: begun[run], default=current)

    def settle(self, now_us: int, *, all_settled: bool) -> None:
        """Lets those records count whose readings have come."""
        left = []
        for record, at_us in self.waiting:
            if all_settled or self.arrived_us >= at_us or now_us >= at_us + SETTLE_US:
                self.settled[record.run] = record, at_us
                self.forget(record.run)
            else:
                left.append((record, at_us))
        self.waiting = left

    def forget(self, run: str) -> None:
        """The figures of a run have changed."""
        self.balances.pop(run, None)
        self.stale = True

    def losses(self) -> dict[str, Losses]:
        """Of each channel, over all runs."""
        known: Known = self.settled
        named = named_runs(known)
        current = current_run(known, named)
        if self.currents != (current, frozenset(named)):
            self.currents = current, frozenset(named)
            self.balances.clear()
        runs = {*self.found, *known, *named}
        for run in runs - self.balances.keys():
            self.balances[run] = run_balance(
                self.found.get(run, Found()),
                known[run][0] if run in known else None,
                counted=run in known or run in named,
                current=run == current,
            )
        held = held_of_runs({run: self.balances[run] for run in runs}, known, current)
        totals: defaultdict[str, Losses] = defaultdict(Losses)
        for run in runs:
            shares = held_of_channels(self.balances[run], held[run])
            for channel, each in self.balances[run].items():
                before, kept = totals[channel], shares.get(channel, 0)
                totals[channel] = Losses(
                    before.pending + each.issuing + kept,
                    before.lost + len(each.settled) - kept,
                    before.announced + each.dropped,
                )
        return dict(totals)


class Presences:
    """Takes up the tables' rows, in any order, and gives the rows of ``presence`` that change by them."""

    def __init__(self, silent_after_s: float) -> None:
        self._silent_us = int(silent_after_s * 1e6)
        self._gateways: defaultdict[str, _Gateway] = defaultdict(_Gateway)
        self._arrivals: dict[Channel, Arrival] = {}
        self._losses: dict[Channel, Losses] = {}
        self._rows: dict[Channel, Presence] = {}

    def restore(self, channel: Channel, row: Presence) -> None:
        """Takes up a row of the table at start."""
        self._rows[channel] = row
        self._losses[channel] = row.losses
        self.arrived(channel, row.arrival)

    def arrived(self, channel: Channel, arrival: Arrival) -> None:
        """Readings of a channel are in the table."""
        self._arrivals[channel] = self._arrivals.get(channel, Arrival()).later(arrival)
        gateway = self._gateways[channel[0]]
        gateway.arrived_us = max(gateway.arrived_us, arrival.last_seen_us or 0)

    def stored(self, gateway: str, channel: str, run: str, first: int, last: int) -> None:
        """``readings`` holds these numbers."""
        self._gateways[gateway].found[run].kafka[channel].add(first, last)
        self._gateways[gateway].forget(run)

    def set_aside(self, gateway: str, channel: str, run: str, first: int, last: int) -> bool:
        """``quarantine`` holds these numbers; whether that is new."""
        there = self._gateways[gateway].found[run].dead_letters[channel]
        if not len(there.missing(first, last)):
            return False
        there.add(first, last)
        self._gateways[gateway].forget(run)
        return True

    def reported(self, record: RunRecord, at_us: int) -> None:
        """A run record, the furthest of its run."""
        gateway = self._gateways[record.gateway]
        gateway.records[record.run] = record, at_us
        gateway.waiting.append((record, at_us))
        gateway.stale = True
        for drop in record.dropped:
            its = self._gateways[drop.gateway]
            its.found[drop.run].announced[drop.channel].add(max(drop.first, 1), drop.last)
            its.forget(drop.run)

    def status(self, gateway: str, run: str, status: Status) -> None:
        """The last status of a run."""
        self._gateways[gateway].statuses[run] = status

    def changed(self, now_us: int, *, all_settled: bool = False) -> dict[Channel, Presence]:
        """The rows that are not what they were, by channel.

        With ``all_settled`` every run record counts: all that was sent before it is in the tables.
        """
        for name, gateway in self._gateways.items():
            gateway.settle(now_us, all_settled=all_settled)
            # A run without a record that counts yet is no reason to forget what was lost.
            if gateway.stale and gateway.records.keys() == gateway.settled.keys():
                gateway.stale = False
                self._losses |= {(name, of): losses for of, losses in gateway.losses().items()}
        states = {name: self._state(gateway) for name, gateway in self._gateways.items()}
        rows: dict[Channel, Presence] = {}
        for channel in self._arrivals.keys() | self._losses.keys():
            arrival = self._arrivals.get(channel, Arrival())
            offline, silent_us = states[channel[0]]
            patience_us = max(_PERIODS * (arrival.period_ms or 0) * 1000, silent_us)
            here = arrival.last_seen_us is not None and now_us - arrival.last_seen_us <= patience_us
            state = OFFLINE if offline else ONLINE if here else SILENT
            row = Presence(arrival, state, self._losses.get(channel, Losses()))
            if self._rows.get(channel) != row:
                rows[channel] = self._rows[channel] = row
        return rows

    def _state(self, gateway: _Gateway) -> tuple[bool, int]:
        """Whether a gateway is offline, and after how long without a reading its channels are silent."""
        run = gateway.newest()
        if run is None:
            return False, self._silent_us
        status, record = gateway.statuses.get(run), gateway.records.get(run)
        offline = (status is not None and status.state == OFFLINE) or (
            record is not None and record[0].state in _ENDED
        )
        metered = status is not None and status.uplink == "metered"
        return offline, self._silent_us * (_METERED if metered else 1)
