"""What is missing of a gateway's runs, channel by channel: pending as far as the gateway reports it, or lost.

A run's seq counts from 1 in each channel, so the last seq names all of its readings. The table ``presence``
goes by this definition. Pure: no I/O, no clock. Memory grows with the gaps, not the readings.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from cloud.wire.number_set import NumberSet
from cloud.wire.run_records import ENDS, RunRecord

GOING_ON: Final = ("running", "ended")
"""States of a run that may still issue readings."""
_ON_THE_WAY: Final = 100
"""How many readings of one channel may be between sampler and ledger when a run record is made."""
_STEPS: Final = 1 << 40
"""How finely the age of a missing reading is measured, in parts of its run's length."""

Known = Mapping[str, tuple[RunRecord, int]]
"""Each run's record, and when it was published (Kafka's time, of any unit)."""


def _channels() -> defaultdict[str, NumberSet]:
    return defaultdict(NumberSet)


@dataclass
class Found:
    """What was found of one run, as sets of seq by channel."""

    stored: defaultdict[str, NumberSet] = field(default_factory=_channels)
    dead_letters: defaultdict[str, NumberSet] = field(default_factory=_channels)
    announced: defaultdict[str, NumberSet] = field(default_factory=_channels)

    def channels(self) -> set[str]:
        """Channels of which there is anything."""
        return {*self.stored, *self.dead_letters, *self.announced}

    def highest(self, channel: str) -> int:
        """The highest seq of a channel that is anywhere."""
        return max(
            places[channel].highest if channel in places else 0
            for places in (self.stored, self.dead_letters, self.announced)
        )


@dataclass(frozen=True, slots=True)
class ChannelBalance:
    """What became of one channel's readings in one run; each is counted in the first place that has it.

    ``issued`` is the highest seq that is known to be. ``issuing`` are missing and may just be on their way;
    ``settled`` are missing and were issued long ago. ``never_sampled`` are beyond what a stopped run issued.
    """

    issued: int
    stored: int
    dead_letters: int
    dropped: int
    never_sampled: int
    issuing: int
    settled: NumberSet


@dataclass(frozen=True, slots=True)
class RunBalance:
    """What became of one run's readings.

    ``held`` is how many of the channels' ``settled`` readings the gateway reports that it still has.
    """

    channels: Mapping[str, ChannelBalance]
    held: int


def run_balances(found: Mapping[str, Found], known: Known) -> dict[str, RunBalance]:
    """Returns the balance of each run of one gateway, in the order of the runs.

    The runs are those of which anything was found, those with a record, and those that a record names.
    """
    named = named_runs(known)
    current = current_run(known, named)
    balances = {
        run: _channel_balances(
            found.get(run, Found()),
            known[run][0] if run in known else None,
            counted=run in known or run in named,
            current=run == current,
        )
        for run in {*found, *known, *named}
    }
    held = _held_of_runs(balances, known, current)
    return {run: RunBalance(balances[run], held[run]) for run in in_order(balances.keys(), known)}


def _channel_balances(
    found: Found, record: RunRecord | None, *, counted: bool, current: bool
) -> dict[str, ChannelBalance]:
    """What became of one run's readings, by channel.

    Without ``counted`` it is unknown what the run issued, so nothing of it is missing. ``current``: it is its
    gateway's latest.
    """
    last_seq = record.last_seq if record else {}
    balances = {}
    for channel in {*last_seq, *found.channels()}:
        counts: list[int] = []
        seen = NumberSet()
        for places in (found.stored, found.dead_letters, found.announced):
            seqs = places.get(channel, NumberSet())
            counts.append(len(seqs.without(seen)))
            seen.update(seqs)
        stored, dead_letters, dropped = counts
        reported = last_seq.get(channel, 0)
        # Only a run that has stopped has published its last record; the others may have gone on.
        stopped = record is not None and record.state == "stopped"
        issued = reported if stopped else max(reported, found.highest(channel))
        issuing, settled = 0, NumberSet()
        if counted:
            going_on = current and record is not None and record.state in GOING_ON
            late = _begin_of_tail(seen, reported, issued) if going_on else issued + 1
            issuing = len(seen.missing(late, issued))
            settled = seen.missing(1, min(late - 1, issued))
        balances[channel] = ChannelBalance(
            issued=issued,
            stored=stored,
            dead_letters=dead_letters,
            dropped=dropped,
            never_sampled=len(seen.without(NumberSet([(1, issued)]))) if counted else 0,
            issuing=issuing,
            settled=settled,
        )
    return balances


def settled_of(balances: Mapping[str, ChannelBalance]) -> int:
    """How many readings of a run are missing that were issued long ago."""
    return sum(len(each.settled) for each in balances.values())


def _held_of_runs(
    balances: Mapping[str, Mapping[str, ChannelBalance]], known: Known, current: str | None
) -> dict[str, int]:
    """How many of each run's ``settled`` missing readings the gateway reports that it still has, by run.

    In flight are the current run's, in the outbox any run's: the oldest leave it first, so what it still
    holds is of the newest runs.
    """
    in_flight, stored = 0, 0
    if current is not None:
        in_flight, stored = known[current][0].in_flight, known[current][0].outbox_records
    held = {}
    for run in reversed(in_order(balances.keys(), known)):
        settled = settled_of(balances[run])
        flying = min(settled, in_flight if run == current else 0)
        waiting = min(settled - flying, stored)
        stored -= waiting
        held[run] = flying + waiting
    return held


def held_of_channels(balances: Mapping[str, ChannelBalance], held: int) -> dict[str, int]:
    """How many of each channel's ``settled`` are among the ``held`` of their run: the newest are.

    How old a reading is, among channels of different periods, is given by its distance from its channel's
    last one, in parts of the run. Adds up to ``held``, or to all that is missing if that is less.
    """

    def newer(channel: str, steps: int) -> int:
        """How many of a channel's missing are at most so old."""
        balance = balances[channel]
        first = balance.issued - balance.issued * steps // _STEPS
        return sum(max(last - max(begin, first) + 1, 0) for begin, last in balance.settled.spans())

    missing = {channel: len(balance.settled) for channel, balance in balances.items() if balance.settled}
    if sum(missing.values()) <= held:
        return missing
    if held < 1:
        return {}
    ages = range(_STEPS + 1)
    # The least age of which there are too many: all that are younger are held.
    too_old = bisect_right(ages, held, key=lambda steps: sum(newer(each, steps) for each in missing))
    shares = {channel: newer(channel, too_old - 1) for channel in missing}
    left = held - sum(shares.values())
    # Those that are equally old share what is left in a fixed order.
    for channel in sorted(missing):
        more = min(newer(channel, too_old) - shares[channel], left)
        shares[channel] += more
        left -= more
    return shares


def current_run(known: Known, named: Collection[str | None]) -> str | None:
    """The gateway's latest run: no other follows it. ``named`` are those that others name as earlier."""
    last = [run for run in known if run not in named]
    return max(last or known, key=lambda run: (known[run][0].state != "killed", known[run][1]), default=None)


def named_runs(known: Known) -> set[str]:
    """The runs that others name as before them."""
    named = {each.run for record, _ in known.values() for each in record.unfinished}
    return named | {record.previous_run for record, _ in known.values() if record.previous_run is not None}


def go_on(known: Known, since: int) -> list[str]:
    """The runs that haven't ended, that none follows, and that have published since: of a gateway it is one.

    Two are two gateways with one id, a cloned SD card for instance.
    """
    left = known.keys() - named_runs(known)
    return sorted(run for run in left if known[run][0].state not in ENDS and known[run][1] >= since)


def in_order(runs: Collection[str], known: Known) -> list[str]:
    """Each run after the one it names as its previous; chains by when they last published."""
    previous = {run: record.previous_run for run, (record, _) in known.items()}
    named = set(previous.values())
    heads = sorted(
        (run for run in runs if run not in named), key=lambda run: known[run][1] if run in known else 0
    )
    order: dict[str, None] = {}
    for head in heads:
        chain: dict[str, None] = {}
        run: str | None = head
        while run is not None and run in runs and run not in chain and run not in order:
            chain[run] = None
            run = previous.get(run)
        order.update(dict.fromkeys(reversed(chain)))
    order.update(dict.fromkeys(sorted(set(runs) - order.keys())))
    return list(order)


def _begin_of_tail(seen: NumberSet, reported: int, issued: int) -> int:
    """Returns the seq from which on a running channel's readings may be newer than its last record.

    The last of what had been reported may have been on their way from the sampler to the ledger, uncounted.
    """
    if reported < 1 or reported in seen:
        return min(reported, issued) + 1
    *_, (first, _) = seen.missing(1, reported).spans()
    return max(first, reported - _ON_THE_WAY + 1)
