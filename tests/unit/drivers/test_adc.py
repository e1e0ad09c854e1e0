"""Volts through an emulated ADS1115 and Adafruit's library."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from hypothesis import given, strategies as st

from drivers.ads1115 import FULL_SCALE_V, AdcInput, AdcOptions, AdcPins, Conversion
from drivers.bp20 import Bp20, Bp20Options
from drivers.emulation.board import EmulatedI2c
from drivers.emulation.parts import EmulatedAds1115
from drivers.interface import ReadError

GAINS = tuple(FULL_SCALE_V)
INPUTS: tuple[AdcPins, ...] = (0, 1, 2, 3, "0-1", "0-3", "1-3", "2-3")


class Wires:
    """A chip at 0x48 with settable volts at each input."""

    def __init__(self) -> None:
        self.volts: dict[int | str, float | None] = dict.fromkeys(INPUTS, 0.0)
        self.chip = EmulatedAds1115({name: partial(self._at, name) for name in INPUTS})
        self.bus = EmulatedI2c({0x48: self.chip})

    def _at(self, name: AdcPins) -> float | None:
        return self.volts[name]

    def i2c(self) -> EmulatedI2c:
        return self.bus


def opened(wires: Wires, adc_input: AdcPins = 0, gain: str = "6.144V", address: int = 0x48) -> AdcInput:
    return AdcInput(wires, AdcOptions(address, adc_input, gain))  # type: ignore[arg-type] # any gain, part of a board


@given(st.sampled_from(GAINS), st.sampled_from(INPUTS), st.floats(-1, 1))
def test_volts_round_trip_within_half_a_step(gain: str, adc_input: AdcPins, share: float) -> None:
    wires = Wires()
    step_v = FULL_SCALE_V[gain] / 32768
    volts = share * (FULL_SCALE_V[gain] - step_v)
    wires.volts[adc_input] = volts
    assert abs(opened(wires, adc_input, gain).convert().volts - volts) <= step_v / 2 * (1 + 1e-9)


@pytest.mark.parametrize("gain", GAINS)
def test_full_scale_clips_and_is_flagged(gain: str) -> None:
    wires = Wires()
    wires.volts["2-3"] = 100.0
    adc = opened(wires, "2-3", gain)
    assert adc.convert() == Conversion(FULL_SCALE_V[gain] * 32767 / 32768, ("OVER_RANGE",))
    wires.volts["2-3"] = -100.0
    assert adc.convert() == Conversion(-FULL_SCALE_V[gain], ("UNDER_RANGE",))
    for code in (32766, -32767):
        wires.volts["2-3"] = FULL_SCALE_V[gain] * code / 32768
        assert adc.convert() == Conversion(FULL_SCALE_V[gain] * code / 32768)


def test_each_input_is_distinguished() -> None:
    wires = Wires()
    wires.volts = {name: 0.1 * (1 + at) for at, name in enumerate(INPUTS)}
    for at, name in enumerate(INPUTS):
        assert opened(wires, name).convert().volts == pytest.approx(0.1 * (1 + at), abs=1e-4)


def test_a_chip_that_never_gets_ready_is_a_read_error_not_a_hang() -> None:
    wires = Wires()
    adc = opened(wires)
    wires.chip.read = lambda count: bytes(count)  # type: ignore[method-assign] # a bus stuck low
    with pytest.raises(ReadError, match="never ends its conversion"):
        adc.convert()


class NosyBus(EmulatedI2c):
    """Lets someone else at the bus after each of the first user's transactions."""

    def __init__(self, wires: Wires) -> None:
        super().__init__({0x48: wires.chip})
        self.user: threading.Thread | None = None
        self.between = threading.Event()
        self.other_read = threading.Event()

    def unlock(self) -> None:
        super().unlock()
        if threading.current_thread() is self.user and not self.between.is_set():
            self.between.set()
            self.other_read.wait(0.3)


def test_two_threads_on_one_chip_never_get_each_others_conversion() -> None:
    wires = Wires()
    bus = wires.bus = NosyBus(wires)
    wires.volts[0], wires.volts["2-3"] = 1.0, 3.0
    mine, others = opened(wires, 0), opened(wires, "2-3")
    read: dict[str, float] = {}

    def read_mine() -> None:
        bus.user = threading.current_thread()
        read["mine"] = mine.convert().volts

    def read_others() -> None:
        bus.between.wait(10)
        read["others"] = others.convert().volts
        bus.other_read.set()

    threads = [threading.Thread(target=target, daemon=True) for target in (read_mine, read_others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert {name: round(volts, 2) for name, volts in read.items()} == {"mine": 1.0, "others": 3.0}


def test_a_divider_is_multiplied_back() -> None:
    wires = Wires()
    wires.volts[0] = 2.0
    barometer = Bp20(wires, Bp20Options(divider=2.0))  # type: ignore[arg-type] # the part of a board it uses
    barometer.start()
    measurement = barometer.read()[0]
    assert measurement.raw == pytest.approx(4.0, abs=2e-4)
    assert measurement.value == 21.79 * measurement.raw + 10.55
