"""What goes wrong between a sensor and its converter: seen, named, and never taken for a measurement."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from drivers.ads1115 import AdcOptions, AdcPins
from drivers.bp20 import TYPE as BP20, Bp20, Bp20Options
from drivers.driver_type import Nameplate
from drivers.emulation.board import EmulatedI2c
from drivers.interface import Board, Measurement, ReadError
from drivers.pyranometer import TYPE as PYRANOMETER, Pyranometer, PyranometerAdcOptions, PyranometerOptions
from tests.unit.drivers.test_adc import Wires, opened


class Station(Wires):
    """The wires of one chip, and a clock moved by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    @property
    def board(self) -> Board:
        return self  # type: ignore[return-value] # the part of a board these sensors use


def barometer(station: Station, **options: Any) -> Bp20:
    sensor = Bp20(station.board, Bp20Options(**options))
    sensor.start()
    return sensor


def pyranometer(station: Station, **options: Any) -> Pyranometer:
    sensor = Pyranometer(station.board, PyranometerOptions(**options))
    sensor.start()
    return sensor


def only(read: tuple[Measurement, ...]) -> Measurement:
    assert len(read) == 1
    return read[0]


@pytest.mark.parametrize("adc_input", [0, "0-1", "2-3"])
@pytest.mark.parametrize("gain", ["6.144V", "2.048V", "0.256V"])
def test_a_chip_that_started_again_is_never_believed(adc_input: AdcPins, gain: str) -> None:
    station = Station()
    station.volts[adc_input] = 0.1
    adc = opened(station, adc_input, gain)
    first = adc.convert()
    write = station.chip.write
    writes: list[bytes] = []

    def broken_down(sent: bytes) -> None:
        write(sent)
        writes.append(sent)
        if len(sent) == 3:
            station.chip.brown_out()

    station.chip.write = broken_down  # type: ignore[method-assign] # the supply breaks down after the start
    with pytest.raises(ReadError, match=r"0x48 has lost its settings \(0x0583 instead of 0x"):
        adc.convert()
    assert writes
    station.chip.write = write  # type: ignore[method-assign] # and is well again
    assert adc.convert() == first


def test_settings_that_another_program_changes_are_seen() -> None:
    station = Station()
    adc = opened(station, 0)
    read = station.chip.read
    # Another gain, set between the end of the conversion and the reading of the settings.
    station.chip.read = lambda count: (  # type: ignore[method-assign]
        read(count) if station.chip._pointer != 1 else (0xC383 | 0x0008).to_bytes(2, "big")
    )
    with pytest.raises(ReadError, match=r"lost its settings .*or another program uses it"):
        adc.convert()


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EREMOTEIO, "nothing acknowledges: is it powered, are SDA and SCL"),
        (errno.ENXIO, "nothing acknowledges"),
        (errno.ETIMEDOUT, "the bus is stuck"),
        (errno.EIO, "the transfer broke off"),
        (errno.ENODEV, "No such device"),
    ],
)
@pytest.mark.parametrize("transaction", [1, 2, 3, 4])
def test_a_bus_that_fails_in_any_transaction_is_a_read_error_with_clear_words(
    transaction: int, number: int, words: str
) -> None:
    station = Station()
    station.volts[0] = 1.0
    adc = opened(station)
    device = EmulatedI2c._device
    left = [transaction]

    class FailingBus(EmulatedI2c):
        def _device(self, address: int) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise OSError(number, "No such device")
            return device(self, address)

    station.bus.__class__ = FailingBus
    with pytest.raises(ReadError, match=f"0x48 doesn't answer: .*{words}"):
        adc.convert()
    assert adc.convert().volts == pytest.approx(1.0, abs=1e-4)


def test_the_rate_is_the_chips() -> None:
    station = Station()
    for rate, bits in ((8, 0), (128, 4), (860, 7)):
        adc = opened(station)
        adc = type(adc)(station.board, AdcOptions(data_rate=rate))  # type: ignore[arg-type] # a literal
        adc.convert()
        assert station.chip._registers[1] >> 5 & 7 == bits


# The barometer.


def test_an_open_barometer_input_is_under_range_and_named() -> None:
    station = Station()
    station.volts[0] = 4.1
    sensor = barometer(station)
    assert only(sensor.read()).reasons == ()
    assert sensor.diagnose() == ()
    station.chip.loose = dict.fromkeys({0}, lambda: True)
    found = only(sensor.read())
    # The value is kept as it is.
    assert (round(found.value, 2), round(found.raw, 3), found.reasons) == (22.97, 0.57, ("UNDER_RANGE",))
    assert sensor.diagnose() == (
        "input 0 of the converter at 0x48 reads 0.570 V, or 23.0 kPa, which is no air pressure: so does an"
        " input"
        " that nothing drives; check the wire, and fit 100 kΩ from the input to ground",
    )
    station.chip.loose = {}
    assert only(sensor.read()).reasons == ()
    assert sensor.diagnose() == ()


def test_a_barometer_without_supply_is_named() -> None:
    sensor = barometer(Station())
    found = only(sensor.read())
    assert (found.value, found.raw, found.reasons) == (10.55, 0.0, ("UNDER_RANGE",))
    assert len(sensor.diagnose()) == 1
    assert "less than a BP-20 ever gives" in sensor.diagnose()[0]


def test_over_range_is_seen_at_the_converters_own_full_scale_and_at_its_supply() -> None:
    station = Station()
    station.volts[0] = 4.5
    sensor = barometer(station, adc=AdcOptions(gain="4.096V"))
    found = only(sensor.read())
    assert found.reasons == ("OVER_RANGE",)
    assert found.raw == 4.096 * 32767 / 32768
    assert "is at its upper end, 4.096 V" in sensor.diagnose()[0]
    # 3.6 V at a chip on 3.3 V is what its protection diodes leave of it.
    station.volts[0] = 3.61
    assert only(barometer(station, adc=AdcOptions(vdd_v=3.3)).read()).reasons == ("OVER_RANGE",)
    station.volts[0] = 3.59
    assert only(barometer(station, adc=AdcOptions(vdd_v=3.3)).read()).reasons == ()


# The pyranometer.


def test_night_offset_is_kept() -> None:
    station = Station()
    station.volts["2-3"] = -0.00003
    found = only(pyranometer(station).read())
    assert found.value == pytest.approx(-3.125)
    assert found.raw < 0
    assert found.reasons == ()


def test_a_pyranometer_that_is_unplugged_doesnt_pass_for_night() -> None:
    station = Station()
    sensor = pyranometer(station)
    assert only(sensor.read()).reasons == ()
    station.chip.loose = dict.fromkeys({2, 3}, lambda: True)
    # It is looked for every ten seconds, and each time while it lasts.
    station.now_s = 9.9
    assert only(sensor.read()).reasons == ()
    station.now_s = 10.0
    for _ in range(3):
        found = only(sensor.read())
        assert (found.value, found.reasons) == (0.0, ("NOISY",))
    (sentence,) = sensor.diagnose()
    assert sentence == (
        "both wires of input 2-3 of the converter at 0x48 float (0.57 V and 0.57 V to ground): the"
        " pyranometer is"
        " not connected, or nothing ties it to ground; connect its negative wire to ground through 10 kΩ"
    )
    station.chip.loose = {}
    assert only(sensor.read()).reasons == ()
    assert sensor.diagnose() == ()


def test_wires_shorted_to_the_supply_are_named() -> None:
    station = Station()
    station.volts[2] = station.volts[3] = 4.95
    sensor = pyranometer(station)
    found = only(sensor.read())
    assert (found.value, found.reasons) == (0.0, ("NOISY",))
    assert sensor.diagnose() == (
        "input 2-3 of the converter at 0x48 is at the converter's supply (4.95 V and 4.95 V to ground): a"
        " wire is shorted to it, or vdd_v isn't the supply",
    )
    station.volts[2] = station.volts[3] = 0.0
    assert only(sensor.read()).reasons == ()
    assert sensor.diagnose() == ()


@pytest.mark.parametrize(("pin", "reason"), [(2, "OVER_RANGE"), (3, "UNDER_RANGE")])
def test_one_broken_wire_is_the_end_of_the_range(pin: int, reason: str) -> None:
    station = Station()
    station.chip.loose = dict.fromkeys({pin}, lambda: True)
    sensor = pyranometer(station)
    assert only(sensor.read()).reasons == (reason,)
    assert "at the end of its range: one wire is broken" in sensor.diagnose()[0]


@pytest.mark.parametrize(
    "options", [{"open_check": False}, {"adc": PyranometerAdcOptions(input=2)}], ids=["off", "single-ended"]
)
def test_without_the_check_the_inputs_arent_looked_at(options: dict[str, Any]) -> None:
    station = Station()
    station.chip.loose = dict.fromkeys({2, 3}, lambda: True)
    assert "NOISY" not in only(pyranometer(station, **options).read()).reasons


def test_a_sensor_biased_elsewhere_is_not_open() -> None:
    station = Station()
    station.volts[2], station.volts[3], station.volts["2-3"] = 2.51, 2.5, 0.01
    found = only(pyranometer(station).read())
    assert (round(found.value), found.reasons) == (1000, ())


# What `check` warns of.


def concerns(options: Bp20Options | PyranometerOptions, model: str | None = None) -> list[str]:
    kind = BP20 if isinstance(options, Bp20Options) else PYRANOMETER
    nameplate = Nameplate(model=model, interval_s=0.2 if options.adc.data_rate == 8 else 1.0)
    return [f"{'.'.join(one.key)}: {one.message}" for one in kind.concerns(options, nameplate)]


def test_what_fits_is_no_concern() -> None:
    assert concerns(Bp20Options()) == concerns(Bp20Options(), "NRG BP-20") == []
    assert concerns(Bp20Options(AdcOptions(vdd_v=3.3, gain="4.096V"), divider=1.5)) == []
    assert concerns(Bp20Options(AdcOptions(), 1.0, 54.2, 10.4), "MPX4250A") == []
    assert concerns(PyranometerOptions()) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            Bp20Options(AdcOptions(gain="4.096V")),
            'adc: the sensor outputs up to 4.79 V; gain "4.096V" clips it at 99.8 kPa: use "6.144V" or a'
            " divider",
        ),
        (
            Bp20Options(AdcOptions(vdd_v=3.3)),
            "adc: the sensor outputs up to 4.79 V; an input sees no more than the converter's supply (vdd_v),"
            " 3.3 V or 82.5 kPa, and is destroyed 0.3 V above it: use a divider",
        ),
        (
            Bp20Options(AdcOptions(data_rate=8)),
            "adc: a conversion takes 125 ms at data_rate = 8, the interval is 200 ms",
        ),
        (
            Bp20Options(slope=43.58),
            "slope: 43.58 kPa per V is far from the datasheet's 21.79: a divider belongs into divider, and"
            " another sensor's name into model",
        ),
        (Bp20Options(offset=105.5), "offset: 105.5 kPa is far from the datasheet's 10.55: is it in kPa?"),
        (
            PyranometerOptions(slope=800.0),
            'adc: the sensor outputs up to 2.5 V; gain "0.256V" clips it at 205 W/m2: use "4.096V" or a'
            " divider",
        ),
        (
            PyranometerOptions(PyranometerAdcOptions(gain="6.144V")),
            'adc: one step of the converter is 18.8 W/m2 at gain "6.144V"; use "0.256V"',
        ),
        (
            PyranometerOptions(PyranometerAdcOptions(input=2)),
            "adc: single-ended, each millivolt along the ground wire is 100 W/m2; use a differential input,"
            ' as "2-3"',
        ),
        (
            PyranometerOptions(slope=70_000.0),
            "slope: 70000 W/m2 per V is far from the datasheet's 100000; if it is another sensor's, give"
            " its model",
        ),
    ],
)
def test_concerns(options: Bp20Options | PyranometerOptions, expected: str) -> None:
    assert expected in concerns(options)
