"""Pulses on a pin: a tipping bucket, a flow or an energy meter. Falling edges, as of a cup.

A reading of an accumulated quantity (rain, energy) is what was added since the one before, so that sums need
no neighbour: value = slope · pulses. Another's (a flow's) is the mean since then: slope · Hz + offset.

A reed bounces when it closes and when it opens again, and each bounce is an edge. An edge that comes within
``debounce_s`` of a counted one is none; ``debounce_s`` is longer than the contact stays closed, and shorter
than between two tips. Source: Texas Electronics' TR-525 and TE525 (closed for 135 ms, bounces of 0.75 ms; 0.1
mm a tip).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from annotated_types import Ge, Le

from drivers.driver_type import (
    WIRING,
    Claim,
    Concern,
    DriverType,
    EmulatedHardware,
    Nameplate,
    OptionError,
    Remove,
)
from drivers.interface import (
    Board,
    BoardError,
    Channel,
    EdgeCounter,
    Edges,
    FittedSensor,
    Located,
    Measurement,
    ReadError,
)
from drivers.option_docs import BcmPin, Figure, Meaning, MeasuredQuantity


class CountedPin:
    """Each reading covers the time since the one before."""

    accumulates = True

    def __init__(self, board: Board, pin: int) -> None:
        self._board = board
        self._pin = pin
        self._counter: EdgeCounter | None = None
        self._read_at = 0.0

    def start(self) -> None:
        """Claim the pin and count from now on. Raises BoardError."""
        counter = self._board.count_edges(self._pin)
        self._read_at = self._board.monotonic()
        try:
            # Edges while the pin was being set up belong to no period.
            counter.take()
        except ReadError:
            # Else the next start would find the pin still in use.
            counter.close()
            raise
        self._counter = counter

    def take(self) -> tuple[Edges, float]:
        """The edges since the call before, and in how many seconds they came. Raises ReadError."""
        if self._counter is None:
            raise ReadError(f"the counter of pin {self._pin} isn't started")
        now = self._board.monotonic()
        elapsed_s = now - self._read_at
        if elapsed_s <= 0:
            raise ReadError("no time has passed since the previous reading")
        edges = self._counter.take()
        self._read_at = now
        return edges, elapsed_s

    def pulses(self) -> int:
        """The edges since ``start``, bounces among them. Any thread. Raises ReadError."""
        counter = self._counter
        return 0 if counter is None else counter.total()

    def stop(self) -> None:
        """Release the pin."""
        counter, self._counter = self._counter, None
        if counter is not None:
            counter.close()

    def description(self) -> dict[str, str | float | bool]:
        """What counts the pulses."""
        return {"counted_by": self._counter.method} if self._counter is not None else {}

    def diagnose(self) -> tuple[str, ...]:
        """What is wrong with the pin, as its level and its pulses show it."""
        if self._counter is None:
            return ()
        try:
            return self._sentences(high=self._counter.is_high())
        except ReadError as error:
            return (f"{error}.",)

    def _sentences(self, *, high: bool) -> tuple[str, ...]:
        raise NotImplementedError


_MOST_EDGES: Final = 20
"""Of one pulse, when the contact closes and opens."""
_BOUNCES: Final = (0.003, 0.005, 0.6, 0.603)
"""When an emulated reed bounces after it has closed, in debounce times: closing, and opening again."""


@dataclass(frozen=True, slots=True)
class PulseOptions:
    """Pin, what is measured, and what a pulse stands for."""

    quantity: MeasuredQuantity
    pin: BcmPin
    slope: Annotated[
        Figure,
        Meaning("what a pulse adds; of a quantity that isn't accumulated, per Hz", "the quantity's unit"),
    ]
    offset: Annotated[Figure, Meaning("value = slope · Hz + offset", "the quantity's unit")] = 0.0
    debounce_s: Annotated[
        float, Ge(0), Le(60), Meaning("an edge this soon after a counted one is the contact's bouncing", "s")
    ] = 0.0

    @property
    def accumulated(self) -> bool:
        """Whether a reading is what was added, not a rate."""
        return self.quantity.kind == "accumulated"


def debounced(times_ns: Sequence[int], counted_ns: int | None, debounce_ns: int) -> list[int]:
    """The edges that count: none within ``debounce_ns`` of the one before, ``counted_ns`` at first."""
    counted = []
    for time_ns in times_ns:
        if counted_ns is None or time_ns - counted_ns >= debounce_ns:
            counted.append(time_ns)
            counted_ns = time_ns
    return counted


def channels(options: PulseOptions) -> tuple[Channel, ...]:
    """Its one channel; raw is the pulses of a reading, or their frequency."""
    return (Channel.of(options.quantity, "1" if options.accumulated else "Hz"),)


class Pulse(CountedPin):
    """Counts one pin's falling edges; each reading covers the time since the one before."""

    def __init__(self, board: Board, options: PulseOptions) -> None:
        super().__init__(board, options.pin)
        self.channels = channels(options)
        self._options = options
        self._debounce_ns = round(options.debounce_s * 1e9)
        self._counted_ns: int | None = None
        self._edges = self._pulses = 0

    def start(self) -> None:
        """Starts counting. Raises BoardError, also where bounces can't be seen."""
        super().start()
        if self._counter is not None and self._debounce_ns and not self._counter.timed:
            method = self._counter.method
            self.stop()
            raise BoardError(
                f"{method} have no times, which debounce_s needs: have the kernel count ([board]"
                f" counting), or fit 100 nF from BCM pin {self._pin} to ground and set debounce_s = 0"
            )
        self._counted_ns = None
        self._edges = self._pulses = 0

    def read(self) -> tuple[Measurement, ...]:
        """What came since the previous read. Raises ReadError where pulses went missing meanwhile.

        NOISY where edges came closer than the kernel can separate, and none of them is left out.
        """
        edges, elapsed_s = self.take()
        if edges.lost:
            raise ReadError(f"pulses of pin {self._pin} went missing, so their number is unknown")
        options, pulses = self._options, edges.count
        if self._debounce_ns:
            # Times alone decide: an edge without one came too close to another for the kernel, and so
            # bounced, or its time comes with the next reading.
            counted = debounced(edges.times_ns, self._counted_ns, self._debounce_ns)
            self._counted_ns, pulses = counted[-1] if counted else self._counted_ns, len(counted)
        self._edges += edges.count
        self._pulses += pulses
        raw = float(pulses) if options.accumulated else pulses / elapsed_s
        reasons = ("NOISY",) if edges.crowded and not self._debounce_ns else ()
        value = options.slope * raw + options.offset
        return (Measurement(options.quantity.name, value, raw, reasons=reasons),)

    def _sentences(self, *, high: bool) -> tuple[str, ...]:
        """A contact that stays closed, or bounces more than a contact does."""
        pin, found = f"BCM pin {self._pin}", []
        if not high and not self._pulses:
            found.append(
                f"{pin} is low and no pulse comes: its wire touches ground, or the contact is closed."
            )
        if self._edges > _MOST_EDGES * max(self._pulses, 1):
            found.append(
                f"{pin} has {self._edges} edges for {self._pulses} pulses: a contact bounces a few times; the"
                " signal wire is loose or runs beside mains, or debounce_s is too long."
            )
        return tuple(found)


def settle(options: PulseOptions, _site: Located | None) -> PulseOptions:
    """The options as they are. Raises OptionError where pulses wouldn't make a value."""
    if options.slope == 0:
        raise OptionError(("slope",), "must not be 0: what one pulse stands for")
    if options.accumulated and options.offset:
        raise OptionError(("offset",), f"{options.quantity.name} is summed up: no pulses must add nothing")
    return options


def concerns(options: PulseOptions, _nameplate: Nameplate) -> Iterator[Concern]:
    """A bucket whose reed isn't debounced."""
    if options.quantity.name == "precipitation" and options.debounce_s == 0:
        yield Concern(
            ("debounce_s",),
            "is 0, and a tipping bucket's reed bounces: set what is longer than it stays closed, as 0.2 s",
        )


def emulate(hardware: EmulatedHardware, sensor: FittedSensor) -> Remove:
    """The pulses of the environment's value on the pin, each with the bounces of a reed."""
    options: PulseOptions = sensor.options
    channel = f"{sensor.name}.{options.quantity.name}"
    bounces_s = tuple(share * options.debounce_s for share in _BOUNCES) if options.debounce_s else ()
    return hardware.add_pulses(
        channel,
        options.pin,
        options.slope,
        options.offset,
        accumulated=options.accumulated,
        bounces_s=bounces_s,
    )


TYPE = DriverType(
    "pulse",
    PulseOptions,
    channels,
    0.1,
    Pulse,
    lambda options: [Claim(f"BCM pin {options.pin}", ("pin",))],
    concerns,
    settle,
    emulate,
    wiring=WIRING | {"debounce_s"},
)
