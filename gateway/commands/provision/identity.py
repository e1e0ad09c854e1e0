"""What ``provision gateway`` does about a gateway's keys, and since when its runs must prove themselves.

A change counts from a minute later on: by then all jobs have read it, so that what is decided doesn't depend
on which of them reads first. The decisions themselves are pure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from cloud.config import CloudConfig
from cloud.kafka.identities import IdentityTopic, Known
from cloud.wire.fields import format_time
from cloud.wire.identities import Identity, IdentityRecord, Step, gateway_key
from gateway.commands.arguments import CommandError

LEAD_US: Final = 60_000_000
"""From the decision to the time from which on it counts."""

Runs = Mapping[str, int]
"""Those that are known, with Kafka's time of what names them."""


class GatewayIdentity:
    """One gateway's, where ``[identity]`` has a master key. Each call raises CloudError."""

    def __init__(
        self,
        config: CloudConfig,
        gateway: str,
        timeout_s: float,
        *,
        dry_run: bool = False,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._gateway = gateway
        self._master = config.identity.master()
        self._topic = IdentityTopic(config.kafka.servers, config.kafka.properties(), timeout_s)
        self._dry_run = dry_run
        self._now_us = now_us

    def hand_out(self, *, another: bool, sign: bool) -> tuple[str, bool] | None:
        """The key for the mast, with ``another`` a new one, and whether it is to sign its records.

        That it is with ``sign``, and where that is required of it. None without a master key. Raises
        CommandError where there is nothing to sign with.
        """
        if self._master is None and not sign:
            return None
        master = self._required()
        known = self._topic.read(self._gateway)
        record = handed_out(known, self._gateway, master, self._from_us(), another=another)
        self._write(known, record, "key {0}")
        return gateway_key(master, self._gateway, record.generation), sign or _is_strict(record)

    def enforce(self, *, signed: bool) -> None:
        """From soon on new runs must prove themselves by the newest key, or records be ``signed`` with it.

        Raises CommandError if none has.
        """
        known = self._known()
        record = enforced(known, self._required(), self._from_us(), signed=signed)
        self._write(known, record, "must prove itself by key {0}")

    def lift(self) -> None:
        """From soon on everything that names the gateway is welcome again."""
        known = self._known()
        self._write(known, lifted(known, self._from_us()), "need prove nothing")

    def accept(self, run: str) -> None:
        """A run that is this gateway's, whatever it proves."""
        known = self._known()
        self._write(known, accepting(known, run), f"accepts run {run}")

    def revoke(self) -> None:
        """From soon on nothing that names the gateway is welcome."""
        if self._master is not None:
            known = self._topic.read(self._gateway)
            self._write(known, revoked(known, self._gateway, self._from_us()), "is nobody's name")

    def _from_us(self) -> int:
        return self._now_us() // 1000 * 1000 + LEAD_US

    def _required(self) -> str:
        if self._master is None:
            raise CommandError("the cloud's config has no [identity] master_key")
        return self._master

    def _known(self) -> Known:
        self._required()
        known = self._topic.read(self._gateway)
        if known.record is None:
            raise CommandError(f"{self._gateway} has no key yet: provision gateway {self._gateway} --rotate")
        return known

    def _write(self, known: Known, record: IdentityRecord, what: str) -> None:
        if record == known.record:
            print(f"identity  {self._gateway}: nothing to change")
            return
        changed = record.steps[-1:] if record.steps != (known.record.steps if known.record else ()) else ()
        since = "".join(f", from {format_time(step.from_us)} on {_words(step)}" for step in changed)
        would = "would be: " if self._dry_run else ""
        text = what.format(record.generation) if not changed else f"key {record.generation}"
        print(f"identity  {self._gateway}: {would}{text}{since}")
        if not self._dry_run:
            self._topic.write(record)


def _words(step: Step) -> str:
    if step.least is None:
        return "nothing of it is accepted"
    if step.least == 0:
        return "its runs needn't prove themselves"
    if step.signed:
        return f"each of its records must be signed with key {step.least}"
    return f"its new runs must prove themselves by key {step.least}"


def _is_strict(record: IdentityRecord) -> bool:
    """Whether records must be signed, or had to before all access was taken."""
    return next((step.signed for step in reversed(record.steps) if step.least is not None), False)


def handed_out(known: Known, gateway: str, master: str, from_us: int, *, another: bool) -> IdentityRecord:
    """The record once the mast is given a key: the newest one, or with ``another`` the one after it.

    A gateway that nobody has seen begins with it. After a revocation there is always another key, and the
    runs from before it are welcome again.
    """
    record = known.record
    if record is None:
        steps = () if known.runs else (Step(from_us, 1),)
        return IdentityRecord(gateway, 1, steps)
    if record.at(from_us).least is not None:
        return replace(record, generation=record.generation + another)
    return _requiring(replace(record, generation=record.generation + 1), known, master, from_us)


def enforced(known: Known, master: str, from_us: int, *, signed: bool = False) -> IdentityRecord:
    """The record once the newest key counts; runs that were welcome so far stay so.

    With ``signed``, and where that was required before, each record must be signed with it. Raises
    CommandError where no run has proven itself by it, or the mast's last record isn't signed: it may not have
    it yet.
    """
    record = known.record
    assert record is not None  # noqa: S101 - the caller's to see to
    signed, now = signed or _is_strict(record), record.at(from_us)
    if (now.least, now.signed) == (record.generation, signed):
        return record
    identity = Identity.of(record, master)
    if signed:
        if not identity.signed(known.signature, record.generation):
            raise CommandError(
                f"the last record of {record.gateway}'s run isn't signed with key {record.generation}: on "
                "the mast `fieldgate init --access` with a file of --sign-records, a restart; then repeat"
            )
    elif known.runs and all(identity.generation(run) < record.generation for run in known.runs):
        raise CommandError(
            f"no run of {record.gateway} has proven itself by key {record.generation} yet: on the mast "
            "`fieldgate init --access` puts the key in place, and a restart makes such a run; then repeat"
        )
    return _requiring(record, known, master, from_us, signed=signed)


def _requiring(
    record: IdentityRecord, known: Known, master: str, from_us: int, *, signed: bool | None = None
) -> IdentityRecord:
    """The record with a step that requires its newest key, but of runs that were welcome so far.

    They are so again should signatures not be required any more.
    """
    identity = Identity.of(record, master)
    earlier = {
        run
        for run, time_us in known.runs.items()
        if identity.generation(run) < record.generation and identity.proven(run, record.at(time_us).least)
    }
    strict = _is_strict(record) if signed is None else signed
    steps = (*record.steps, Step(from_us, record.generation, strict))
    return replace(record, steps=steps, runs=record.runs | earlier)


def lifted(known: Known, from_us: int) -> IdentityRecord:
    """The record once nothing needs to be proven."""
    record = known.record
    assert record is not None  # noqa: S101 - the caller's to see to
    if record.at(from_us).least == 0:
        return record
    return replace(record, steps=(*record.steps, Step(from_us, 0)))


def accepting(known: Known, run: str) -> IdentityRecord:
    """The record once a run is welcome; in the strict mode unsigned too."""
    record = known.record
    assert record is not None  # noqa: S101 - the caller's to see to
    unsigned = {run} if any(step.signed for step in record.steps) else set()
    return replace(record, runs=record.runs | {run}, unsigned=record.unsigned | unsigned)


def revoked(known: Known, gateway: str, from_us: int) -> IdentityRecord:
    """The record once nothing is accepted."""
    record = known.record or IdentityRecord(gateway, 1)
    if record.at(from_us).least is None:
        return record
    return replace(record, steps=(*record.steps, Step(from_us, None)))
