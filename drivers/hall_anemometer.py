"""Cup anemometer with an open-collector Hall switch (A3141): falling edges counted over measured time.

The edge count only grows: a reading is the difference of two snapshots, so a pulse that lands between reading
and resetting a counter can't be lost. The switch doesn't bounce, so nothing is debounced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from drivers.cup_models import OFFSET_TOLERANCE_MPS, SLOPE_TOLERANCE, cup_model
from drivers.driver_type import Claim, Concern, DriverType, IndividualCalibration, Nameplate
from drivers.interface import Board, Channel, CountsLosses, Gpio, Measurement, ReadError
from drivers.meaning import BcmPin, Meaning

CHANNEL = Channel("wind_speed", "m/s", "Hz", 0.0, 75.0)


@dataclass(frozen=True, slots=True)
class HallAnemometerOptions:
    """Pin and transfer function v = slope·Hz + offset; they belong to the serial number's calibration.

    For orientation: NRG #40 0.765 and 0.35, Thies 0.0462 and 0.21 (m/s per Hz, m/s).
    """

    pin: BcmPin
    slope: Annotated[float, Gt(0), Le(10), Meaning("from the certificate", "m/s per Hz")]
    offset: Annotated[float, Ge(-5), Le(5), Meaning("from the certificate", "m/s")] = 0.0
    at_rest: Annotated[
        Literal["zero", "offset"], Meaning('what a cup at rest reads; "offset" as some loggers do')
    ] = "zero"


def wind_speed_mps(frequency_hz: float, options: HallAnemometerOptions) -> float:
    """Wind speed in m/s from the switch's frequency in Hz.

    A cup at rest gives no pulses: its speed is 0, or the transfer function's offset if ``at_rest`` says so.
    """
    if frequency_hz == 0 and options.at_rest == "zero":
        return 0.0
    return options.slope * frequency_hz + options.offset


class HallAnemometer:
    """Counts one pin's falling edges; each reading covers the time since the one before."""

    channels = (CHANNEL,)
    accumulates = True

    def __init__(self, board: Board, options: HallAnemometerOptions) -> None:
        self._board = board
        self._options = options
        self._gpio: Gpio | None = None
        self._count = 0
        self._read_count = 0
        self._read_losses = 0
        self._read_at = 0.0

    def start(self) -> None:
        """Claim the pin and count from now on. Raises BoardError."""
        gpio = self._board.gpio()
        gpio.setmode(gpio.BCM)
        gpio.setup(self._options.pin, gpio.IN, pull_up_down=gpio.PUD_UP)
        gpio.add_event_detect(self._options.pin, gpio.FALLING, callback=self._count_edge)
        self._gpio = gpio
        self._read_at = self._board.monotonic()
        self._read_count = self._count
        self._read_losses = self._losses(gpio)

    def read(self) -> tuple[Measurement, ...]:
        """Mean speed since the previous read. Raises ReadError where edges went missing meanwhile."""
        if self._gpio is None:
            raise ReadError("the anemometer isn't started")
        now, count, losses = self._board.monotonic(), self._count, self._losses(self._gpio)
        elapsed_s, pulses, lost = now - self._read_at, count - self._read_count, losses - self._read_losses
        if elapsed_s <= 0:
            raise ReadError("no time has passed since the previous reading")
        self._read_at, self._read_count, self._read_losses = now, count, losses
        if lost:
            raise ReadError(f"pulses of pin {self._options.pin} went missing, so the speed is unknown")
        frequency_hz = pulses / elapsed_s
        return (Measurement(CHANNEL.quantity, wind_speed_mps(frequency_hz, self._options), frequency_hz),)

    def stop(self) -> None:
        """Give the pin back."""
        gpio, self._gpio = self._gpio, None
        if gpio is not None:
            gpio.remove_event_detect(self._options.pin)
            gpio.cleanup(self._options.pin)

    def _count_edge(self, _pin: int) -> None:
        # Only the library's one callback thread writes this.
        self._count += 1

    def _losses(self, gpio: Gpio) -> int:
        return gpio.losses(self._options.pin) if isinstance(gpio, CountsLosses) else 0


def claims(options: HallAnemometerOptions) -> tuple[Claim, ...]:
    """The pin."""
    return (Claim(f"BCM pin {options.pin}", ("pin",)),)


def concerns(options: HallAnemometerOptions, nameplate: Nameplate) -> Iterator[Concern]:
    """A transfer function far from what the maker says of the model."""
    model = cup_model(nameplate.model) if nameplate.model is not None else None
    if model is None:
        return
    if abs(options.slope / model.slope - 1) > SLOPE_TOLERANCE:
        yield Concern(
            ("slope",),
            f"{options.slope:g} m/s per Hz is far from {model.name}'s {model.slope:g}: check the certificate",
        )
    if abs(options.offset - model.offset) > OFFSET_TOLERANCE_MPS:
        yield Concern(
            ("offset",),
            f"{options.offset:g} m/s is far from {model.name}'s {model.offset:g}: check the certificate",
        )


TYPE = DriverType(
    "hall-anemometer",
    HallAnemometerOptions,
    (CHANNEL,),
    0.1,
    HallAnemometer,
    claims,
    concerns,
    # IEC 61400-12-1 and MEASNET: each cup before the campaign, and afterwards a proof that it has held.
    individual=IndividualCalibration(24, "IEC 61400-12-1 and MEASNET want each cup calibrated by itself"),
)
