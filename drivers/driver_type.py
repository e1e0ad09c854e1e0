"""What the gateway knows about a driver before any sensor is opened."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from drivers.interface import Board, Channel, Driver, DriverError, Located

if TYPE_CHECKING:
    from drivers.emulation.hardware import Emulation


@dataclass(frozen=True, slots=True)
class Claim:
    """A part of the board that a sensor occupies: ``BCM pin 17``, ``input 2 of converter 0x48``.

    ``key`` is the configuration key that says so. Two sensors may claim the same part only where both name
    the same chip in ``shared``: an ADS1115 has an address and several inputs.
    """

    part: str
    key: tuple[str, ...]
    shared: str | None = None

    def clashes(self, other: Claim) -> bool:
        """Whether both can't be wired at once."""
        return self.part == other.part and (self.shared is None or self.shared != other.shared)


@dataclass(frozen=True, slots=True)
class Concern:
    """What a configuration allows and what is likely a mistake; ``key`` is relative to the sensor's table."""

    key: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Need:
    """A reading of another sensor that a driver is to be told (``Compensated``); ``key`` says whose."""

    key: tuple[str, ...]
    sensor: str
    quantity: str


@dataclass(frozen=True, slots=True)
class Nameplate:
    """What a sensor's table says about it beside the driver's own options."""

    model: str | None = None
    serial: str | None = None
    interval_s: float = 1.0


class OptionError(DriverError):
    """An option can't be used here; ``key`` is relative to the sensor's table, positions count from 0."""

    def __init__(self, key: tuple[str | int, ...], message: str) -> None:
        self.key = key
        self.message = message
        super().__init__(f"{'.'.join(map(str, key))}: {message}")


@dataclass(frozen=True, slots=True)
class IndividualCalibration:
    """For sensors of which each is calibrated by itself, anew after ``months``; ``why`` says who asks."""

    months: int
    why: str


WIRING: Final = frozenset({"pin", "address", "host", "port", "adc.address", "adc.input"})
"""Names of options that say where a sensor is connected: they change no value."""


def _all_options(options: Any, _quantity: str) -> tuple[Any, ...]:
    return (options,)


def _no_claims(_options: Any) -> Iterable[Claim]:
    return ()


def _no_concerns(_options: Any, _nameplate: Nameplate) -> Iterable[Concern]:
    return ()


def _no_needs(_options: Any) -> Iterable[Need]:
    return ()


def _unknown(_options: Any) -> float | None:
    return None


def _as_given(options: Any, _site: Located | None) -> Any:
    return options


@dataclass(frozen=True, slots=True)
class DriverType:
    """A driver by name: its configuration keys, what it measures and how to make one.

    ``options`` is a frozen dataclass whose annotations carry the bounds; ``min_interval_s`` is the shortest
    interval the sensor can be read at; ``longest_read_s`` what a read takes at most, waits and time-outs
    included: one that lasts longer hangs; ``retry_after_s`` the least between two requests, after which one
    that failed may be made again within its period (None: not worth it). ``make`` touches no hardware and
    takes an instance of ``options``, as do ``claims`` (the parts of the board it occupies) and ``concerns``
    (what is likely a mistake).
    ``channels`` are the same for every such sensor, or depend on its options: ``channels_of`` answers both.
    ``settle`` gives the options with what the gateway's place adds to them (None where that is wrong itself),
    or raises OptionError. ``emulate`` fits the sensor to a simulated or replay board, for drivers that aren't
    built in; those that are have theirs in ``drivers/emulation/by_driver.py``.

    ``needs`` names other sensors' readings that the driver is told before each read. ``rests_at`` is what a
    sensor of one channel reads where nothing moves (a calm), None where that isn't known.

    For the calibration record: ``shaping`` gives the dataclasses whose fields shape one quantity's value (all
    options, unless channels have tables of their own); ``slope`` and ``offset`` in them are the transfer
    function. ``wiring`` names those (nested ones with dots) that change no value, ``individual`` is for
    sensors that need a certificate each. All others that don't have their default are part of a calibration's
    name, so a default never changes: what is to work differently gets a new key.
    """

    name: str
    options: type[Any]
    channels: tuple[Channel, ...] | Callable[[Any], tuple[Channel, ...]]
    min_interval_s: float
    make: Callable[[Board, Any], Driver]
    claims: Callable[[Any], Iterable[Claim]] = _no_claims
    concerns: Callable[[Any, Nameplate], Iterable[Concern]] = _no_concerns
    settle: Callable[[Any, Located | None], Any] = _as_given
    emulate: Emulation | None = None
    longest_read_s: float = 5.0
    retry_after_s: float | None = None
    shaping: Callable[[Any, str], Iterable[Any]] = _all_options
    wiring: Collection[str] = WIRING
    individual: IndividualCalibration | None = None
    needs: Callable[[Any], Iterable[Need]] = _no_needs
    rests_at: Callable[[Any], float | None] = _unknown

    def channels_of(self, options: Any) -> tuple[Channel, ...]:
        """What a sensor with these options measures."""
        return self.channels(options) if callable(self.channels) else self.channels
