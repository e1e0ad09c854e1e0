"""The run record of ``gateway.runs``, as its readers see it: how far a run got, and what it announced.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

from cloud.wire.fields import parse_time

_RANGE: Final = re.compile(
    r"(?:(?P<gateway>[a-z0-9-]{1,63})/)?(?P<run>[A-Za-z0-9-]{1,64}) (?P<channel>[^ ]{1,200}) "
    r"(?P<first>\d{1,19})-(?P<last>\d{1,19})",
    re.ASCII,
)


_ENDS: Final = {"killed": 1, "stopped": 2}


@dataclass(frozen=True, slots=True)
class DroppedRange:
    """Readings ``first`` to ``last`` (both included) of one channel and run, announced as dropped."""

    reason: str
    gateway: str
    run: str
    channel: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that did not end itself: its process was ``killed``, or the whole machine ``reset``.

    Readings of its last ``lost_at_most_s`` seconds may be missing, and no record tells which.
    """

    run: str
    end: Literal["killed", "reset"]
    lost_at_most_s: float


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The last word of one run: the highest seq of each channel, and what was not in Kafka yet.

    ``started_us`` is by the gateway's clock, microseconds since the epoch; ``revision`` counts a run's
    records from 1 (0: untold), and a closing record has that of the record it closes.
    ``dropped`` are the ranges it announced, of whatever run; ``dropped_records`` is its count of records by
    reason, which also counts those that are no readings. ``drops_unknown`` where it couldn't say how many.
    ``unfinished`` are the latest runs before this one that did not end themselves.
    """

    gateway: str
    run: str
    state: str
    last_seq: Mapping[str, int]
    in_flight: int = 0
    outbox_records: int = 0
    previous_run: str | None = None
    dropped: tuple[DroppedRange, ...] = ()
    dropped_records: Mapping[str, int] = field(default_factory=dict)
    drops_unknown: bool = False
    unfinished: tuple[Unfinished, ...] = ()
    boot: str | None = None
    started_us: int | None = None
    revision: int = 0

    @property
    def reach(self) -> tuple[int, int]:
        """Grows with each record of one run, in whatever order they arrive: some come late."""
        return _ENDS.get(self.state, 0), sum(self.last_seq.values())

    @classmethod
    def from_json(cls, payload: bytes | str) -> Self:
        """The record in a message. Raises ValueError."""
        try:
            fields = json.loads(payload)
            gateway, previous = str(fields["gateway"]), fields.get("previous_run")
            drops = fields.get("dropped", [])
            return cls(
                gateway=gateway,
                run=str(fields["run"]),
                state=str(fields["state"]),
                last_seq={str(channel): int(seq) for channel, seq in fields["last_seq"].items()},
                in_flight=int(fields["in_flight"]),
                outbox_records=int(fields["outbox_records"]),
                previous_run=None if previous is None else str(previous),
                dropped=tuple(
                    _range(gateway, str(drop["reason"]), text) for drop in drops for text in drop["ranges"]
                ),
                dropped_records={str(drop["reason"]): int(drop["count"] or 0) for drop in drops},
                drops_unknown=any(bool(drop.get("more_unknown")) for drop in drops),
                unfinished=tuple(_unfinished(each) for each in fields.get("unfinished", ())),
                boot=None if fields.get("boot") is None else str(fields["boot"]),
                started_us=None if fields.get("started") is None else parse_time(fields["started"]),
                revision=int(fields.get("revision") or 0),
            )
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a run record: {type(error).__name__} {error}") from error


def _unfinished(fields: Mapping[str, Any]) -> Unfinished:
    end: Literal["killed", "reset"] = "killed" if fields["end"] == "killed" else "reset"
    return Unfinished(str(fields["run"]), end, float(fields["lost_at_most_s"]))


def _range(gateway: str, reason: str, text: Any) -> DroppedRange:
    """A range in a record of ``gateway``: ``run channel first-last``, another gateway's before its run."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ValueError(f"not a range of readings: {text!r:.100}")
    return DroppedRange(
        reason,
        found["gateway"] or gateway,
        found["run"],
        found["channel"],
        int(found["first"]),
        int(found["last"]),
    )
