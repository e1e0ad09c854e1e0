"""Who sent a record: runs that prove themselves by their gateway's key, and since when each gateway's must.

A run is ``{12 hex}-{20 hex}``: a nonce, and the beginning of HMAC-SHA256(key of the gateway, gateway|nonce).
A gateway's keys are derived from one master key, one for each generation, so nothing is stored to verify a
run. ``gateway.identities`` has one record of each gateway: how many keys it was given, and what counted from
when on. Both are decided by the record and by Kafka's time alone, so a replay decides as the first reading.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Final, Self

import msgspec
from msgspec import Meta

from cloud.wire.fields import UNDECODABLE, InvalidFields, convert, format_time, split_object, time_of, to_json
from cloud.wire.reading_records import GATEWAY_ID, MAX_PAYLOAD_BYTES, VERSION, GatewayId, RunId, Version

IDENTITIES_TOPIC: Final = "gateway.identities"
IDENTITY: Final = "IDENTITY"
"""The reason of what doesn't prove that it is its gateway's."""
RUN_HEADER: Final = "run"
"""Kafka header of records that have no run in them: channels, sites."""
SHORTEST_MASTER: Final = 32
"""Characters."""
KEY: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
"""A gateway's key."""

_PROOF: Final = 20
_PROVEN: Final = re.compile(rf"([0-9a-f]{{12}})-([0-9a-f]{{{_PROOF}}})", re.ASCII)
_GENERATIONS: Final = 10_000
_REMEMBERED: Final = 65_536
"""Runs whose proof isn't computed again; a forger's flood of them is bounded by it too."""


def gateway_key(master: str, gateway: str, generation: int) -> str:
    """The key of a gateway, 64 hexadecimal digits; ``generation`` counts from 1."""
    text = f"fieldgate gateway key|{gateway}|{generation}"
    return hmac.digest(master.encode(), text.encode(), "sha256").hex()


def proving_run(key: str, gateway: str, nonce: str) -> str:
    """The run id of a nonce (12 hexadecimal digits)."""
    return f"{nonce}-{_proof(key, gateway, nonce)}"


def proves(key: str, gateway: str, run: str) -> bool:
    """Whether a run was made with this key of this gateway."""
    found = _PROVEN.fullmatch(run)
    return found is not None and hmac.compare_digest(_proof(key, gateway, found[1]), found[2])


def _proof(key: str, gateway: str, nonce: str) -> str:
    return hmac.digest(bytes.fromhex(key), f"{gateway}|{nonce}".encode(), "sha256").hex()[:_PROOF]


@lru_cache(_REMEMBERED)
def _generation(keys: tuple[str, ...], gateway: str, run: str) -> int:
    """The generation of the key that a run was made with, 0 for none of them."""
    return next((number for number, key in enumerate(keys, 1) if proves(key, gateway, run)), 0)


class Step(msgspec.Struct, frozen=True):
    """What counts from ``from_us`` on by Kafka's time, microseconds since the epoch.

    ``least`` is the least generation by which a run must prove itself: 0 for none, so that everything is
    welcome; None: nothing is, the gateway's access was taken.
    """

    from_us: int
    least: int | None


_OPEN: Final = Step(0, 0)


@dataclass(frozen=True, slots=True)
class IdentityRecord:
    """One gateway's: how many keys it was given, what counted when, oldest first, and its ``runs``.

    These were known before they had to prove themselves, and stay welcome: their backlogs may be long.
    """

    gateway: GatewayId
    generation: Annotated[int, Meta(ge=1, le=_GENERATIONS)]
    steps: tuple[Step, ...] = ()
    runs: frozenset[RunId] = frozenset()

    def at(self, time_us: int) -> Step:
        """What counts at a time of Kafka's."""
        return next((step for step in reversed(self.steps) if step.from_us <= time_us), _OPEN)

    def to_json(self) -> bytes:
        """The bytes of the record."""
        steps = [{"from": format_time(each.from_us), "least": each.least} for each in self.steps]
        named = {"v": VERSION, "gateway": self.gateway, "generation": self.generation}
        return to_json({**named, "steps": steps, "runs": sorted(self.runs)})

    @classmethod
    def from_json(cls, payload: bytes) -> Self:
        """The record in a message; unknown fields are ignored. Raises InvalidFields."""
        fields, _ = split_object(payload, MAX_PAYLOAD_BYTES, _NAMES)
        written = convert(fields, _Written).steps
        steps = [Step(time_of("from", each.begin), each.least) for each in written]
        if steps != sorted(steps, key=lambda step: step.from_us):
            raise InvalidFields("INCONSISTENT", "a step begins before the one that stands before it")
        return convert({**fields, "steps": steps}, cls)


class _WrittenStep(msgspec.Struct):
    begin: str = msgspec.field(name="from")
    least: Annotated[int, Meta(ge=0, le=_GENERATIONS)] | None


class _Written(msgspec.Struct):
    """What is written of a record in another form."""

    v: Version
    steps: list[_WrittenStep]


_NAMES: Final = ("v", "gateway", "generation", "steps", "runs")


@dataclass(frozen=True, slots=True)
class Identity:
    """A gateway's record with its keys, oldest first."""

    record: IdentityRecord
    keys: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, record: IdentityRecord, master: str) -> Self:
        """Derives the keys that the record counts."""
        generations = range(1, record.generation + 1)
        return cls(record, tuple(gateway_key(master, record.gateway, each) for each in generations))

    def generation(self, run: str) -> int:
        """The generation of the key that a run was made with, 0 for none of this gateway's."""
        return _generation(self.keys, self.record.gateway, run)

    def always(self, run: str) -> bool:
        """Returns True if what came with a run is welcome at any time."""
        leasts = [step.least for step in self.record.steps]
        if None in leasts:
            return False
        return run in self.record.runs or self.generation(run) >= max(filter(None, leasts), default=0)

    def accepts(self, run: str | None, time_us: int) -> bool:
        """Whether what came with a run (None: with none) at a time of Kafka's is this gateway's."""
        return self.proven(run, self.record.at(time_us).least)

    def proven(self, run: str | None, least: int | None) -> bool:
        """Whether a run is welcome where the least generation is this one (of ``Step``)."""
        if not least:
            return least == 0
        return run is not None and (run in self.record.runs or self.generation(run) >= least)


class _Claimed(msgspec.Struct):
    gateway: GatewayId
    run: RunId


class _ClaimedGateway(msgspec.Struct):
    gateway: GatewayId


_CLAIMED: Final = msgspec.json.Decoder(_Claimed)
_CLAIMED_GATEWAY: Final = msgspec.json.Decoder(_ClaimedGateway)


def claimed_gateway(payload: bytes | None) -> str | None:
    """Which gateway a record of any kind claims to be of, whether or not it names a run."""
    if payload is None or len(payload) > MAX_PAYLOAD_BYTES:
        return None
    try:
        return _CLAIMED_GATEWAY.decode(payload).gateway
    except UNDECODABLE:
        return None


def claimed_run(payload: bytes | None) -> tuple[str, str] | None:
    """Which gateway and run a record of any kind claims to be of; None where it names none."""
    if payload is None or len(payload) > MAX_PAYLOAD_BYTES:
        return None
    try:
        claimed = _CLAIMED.decode(payload)
    except UNDECODABLE:
        return None
    return claimed.gateway, claimed.run


class Identities:
    """The gateways that have keys; of all others everything is welcome."""

    def __init__(self, known: Iterable[Identity] = ()) -> None:
        self._known: Mapping[str, Identity] = {each.record.gateway: each for each in known}

    def __len__(self) -> int:
        return len(self._known)

    def doubts(self, gateway: str, run: str) -> bool:
        """Whether it depends on the time if a run is welcome."""
        known = self._known.get(gateway)
        return known is not None and not known.always(run)

    def accepts(self, gateway: str, run: str | None, time_us: int) -> bool:
        """Whether what names this gateway is welcome, as of ``Identity.accepts``."""
        known = self._known.get(gateway)
        return known is None or known.accepts(run, time_us)

    def counted(self, key: str | None, payload: bytes | None, time_us: int, run: str | None = None) -> str:
        """The gateway among whose rejects a record counts: the one that its key names; '' where it is nobody.

        One that has to prove itself is named by a record of its own alone, by the run in its value, or by
        ``run``: so nobody else's use up what is stored of its.
        """
        name = (key or "").partition("/")[0]
        if not GATEWAY_ID.fullmatch(name):
            return ""
        if name not in self._known:
            return name
        gateway, run = claimed_run(payload) or (name, run)
        return name if gateway == name and self.accepts(name, run, time_us) else ""


NOBODY: Final = Identities()
