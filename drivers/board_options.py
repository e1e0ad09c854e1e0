"""The options of each kind of board: what ``[board]`` may hold, without loading any board."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

from annotated_types import Ge, Gt, Le

from drivers.option_docs import Meaning

Counting = Literal["auto", "kernel", "rpi-gpio"]


@dataclass(frozen=True, slots=True)
class PiOptions:
    """Pins are BCM numbers, the bus is the header's (SDA and SCL)."""

    counting: Annotated[
        Counting,
        Meaning(
            "who counts pulses: the kernel, by their interrupts, or RPi.GPIO, by a callback for each; "
            '"auto": the kernel where it can'
        ),
    ] = "auto"


FaultKind = Literal["stuck", "icing", "drift", "spike", "open-input", "bit-errors"]

_CUPS: Final = ("hall-anemometer", "pulse")
_VOLTS: Final = ("analog", "bp20", "pyranometer", "wind-vane")
FITS: Final[Mapping[FaultKind, tuple[str, ...]]] = {
    "stuck": _CUPS,
    "icing": _CUPS,
    "drift": (*_CUPS, "analog", "pyranometer"),
    "spike": (*_CUPS, *_VOLTS),
    "open-input": (*_VOLTS, "modbus", "w1"),
    "bit-errors": ("dht11", "modbus", "w1"),
}
"""The drivers whose hardware can fail each way."""

_DEFAULT_AMOUNT: Final[Mapping[FaultKind, float]] = {
    "stuck": 0.0, "icing": 10_800.0, "drift": 0.9, "spike": 0.0, "open-input": 0.0, "bit-errors": 0.05,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. Times are event time, in seconds."""

    sensor: Annotated[str, Meaning("whose hardware fails")]
    kind: Annotated[
        FaultKind,
        Meaning("no pulses; slower and slower; scaled pulses; one wrong reading; loose wire; flipped bits"),
    ]
    after_s: Annotated[float, Ge(0), Meaning("when it begins, counted from the board's start", "s")] = 0.0
    for_s: Annotated[
        Annotated[float, Gt(0)] | None, Meaning("how long it lasts; for ever if not given", "s")
    ] = None
    amount: Annotated[
        Annotated[float, Ge(-1e6), Le(1e6)] | None,
        Meaning(
            "icing: s until it stands; drift: a factor; spike: pulses or V more; bit-errors: share of reads"
        ),
    ] = None
    every_s: Annotated[
        Annotated[float, Gt(0)] | None, Meaning("spike: again and again while the fault lasts", "s")
    ] = None
    while_file: Annotated[
        str | None, Meaning("only while this file is there: what a hand does to a simulated sensor")
    ] = None

    @property
    def present(self) -> bool:
        """Whether the file that it waits for is there."""
        return self.while_file is None or Path(self.while_file).exists()

    def strength(self) -> float:
        """The amount, or what is usual for the kind."""
        return _DEFAULT_AMOUNT[self.kind] if self.amount is None else self.amount


def amount_problem(fault: Fault) -> str | None:
    """What is wrong with a fault's amount, or None."""
    amount = fault.strength()
    match fault.kind:
        case "stuck" | "open-input":
            return f'means nothing for kind = "{fault.kind}"'
        case "icing" if amount <= 0:
            return f"must be above 0 (seconds until the cup stands), not {amount:g}"
        case "drift" if amount < 0:
            return f"must be at least 0 (a factor on the pulses), not {amount:g}"
        case "bit-errors" if not 0 <= amount <= 1:
            return f"must be a share of the reads, 0 to 1, not {amount:g}"
    return None


@dataclass(frozen=True, slots=True)
class SimulatedOptions:
    """Event time begins at ``start`` (RFC 3339; now without it) and never runs ahead of real time.

    A ``speed`` above 1 takes effect until a ``start`` in the past has caught up.
    """

    seed: Annotated[int, Ge(0), Meaning("the same seed makes the same weather")] = 1
    speed: Annotated[float, Gt(0), Le(1_000_000), Meaning("at most; never beyond now", "times real time")] = (
        1.0
    )
    start: Annotated[str | None, Meaning("where event time begins: a time with a zone, in the past")] = None
    faults: Annotated[tuple[Fault, ...], Meaning("what goes wrong, to see what becomes of it")] = ()
    pins_file: Annotated[
        str | None, Meaning("where driven pins' levels are kept (JSON); relative to this file's directory")
    ] = None


@dataclass(frozen=True, slots=True)
class ReplayColumn:
    """A CSV column and how its figures turn into the channel's unit: value = scale·figure + offset."""

    column: Annotated[str, Meaning("the column's name in the file's header")]
    scale: Annotated[float, Meaning("value = scale · figure + offset")] = 1.0
    offset: Annotated[float, Meaning("value = scale · figure + offset", "the channel's unit")] = 0.0


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The file, and its columns by sensor or ``sensor.quantity``."""

    file: Annotated[str, Meaning("the CSV file; a relative path starts at this file's directory")]
    columns: Annotated[
        Mapping[str, str | ReplayColumn], Meaning("the column of each sensor or channel, by its name")
    ] = field(default_factory=dict)
    speed: Annotated[float, Gt(0), Le(1_000_000), Meaning("at most", "times real time")] = 1.0
    timestamp_column: Annotated[
        str | None, Meaning("the column with the times (RFC 3339); the first unless given")
    ] = None
    utc_offset_h: Annotated[
        Annotated[float, Ge(-14), Le(14)] | None, Meaning("the zone of times that have none", "h")
    ] = None


def columns_of(options: ReplayOptions) -> dict[str, ReplayColumn]:
    """The columns as they are given, by sensor or channel."""
    return {
        name: ReplayColumn(column) if isinstance(column, str) else column
        for name, column in options.columns.items()
    }
