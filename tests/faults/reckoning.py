"""What became of everything a gateway sampled."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from buffer.sqlite_outbox import SqliteOutbox
from cloud.wire.reading_records import InvalidReading, parse_reading
from gateway.forwarding.records import from_bytes
from tests.faults.kafka import Identity
from tests.support.accounts import RunAccount


@dataclass
class Reckoning:
    """All that was sampled against all places where it may be.

    ``kafka`` and ``dead_letters`` are counted there, ``accounts`` are what the product's accounting makes of
    them; the rest comes from the witness on the local broker and from the outbox itself.
    """

    gateway: str
    sampled: set[Identity]
    kafka: set[Identity]
    outbox: set[Identity]
    dead_letters: set[Identity]
    dropped: set[Identity]
    accounts: list[RunAccount]
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
        """Fail unless everything sampled is somewhere, nothing else anywhere, and the accounting agrees."""
        assert self.sampled
        assert not self.lost, f"unaccounted {len(self.lost)}: {_summary(self.lost)}; {self.figures()}"
        assert not self.invented, f"never sampled: {_summary(self.invented)}; {self.figures()}"
        self.agree()
        assert all(account.balanced for account in self.accounts), self.accounts

    def agree(self) -> None:
        """Fail unless the accounting finds the same of each run, as far as the run's last record goes."""
        arrived = Counter(run for _, _, run, _ in self.kafka)
        for account in self.accounts:
            known = {
                (self.gateway, channel, account.run, seq)
                for channel, last in account.last_seq.items()
                for seq in range(1, last + 1)
            }
            missing = known - self.kafka - self.dead_letters - self.dropped
            assert sum(each.stored for each in account.balance.channels.values()) == arrived[account.run]
            if account.state is not None:
                assert account.sampled == len(known)
                assert account.pending + account.lost == len(missing), account
                # The outbox holds more than readings, and its count may be as old as the record.
                assert account.lost <= len(missing - self.outbox), account
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
