"""The kernel's IIO devices: its interface is files, so here are such files, and its drivers' errors."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cloud.wire.quantities import QUANTITIES
from drivers.driver_type import OptionError
from drivers.hardware.sysfs import SysfsIio
from drivers.iio import TYPE, IioChannel, IioOptions, IioSensor, find_device
from drivers.interface import BoardError, ReadError
from tests.support.masts import SECOND_NS, fitted, simulated


def measured(quantity: str, attribute: str, **keys: float) -> IioChannel:
    return IioChannel(QUANTITIES[quantity], attribute, **keys)


BARO = measured("pressure", "in_voltage0", slope=21.79, offset=10.55)
DHT = (measured("temperature", "in_temp"), measured("humidity", "in_humidityrelative"))


class Kernel:
    """A tree like /sys/bus/iio/devices: links into /sys/devices, attributes as files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.root = directory / "bus/iio/devices"
        self.root.mkdir(parents=True)

    def add(self, node: str, name: str, chip: str, **attributes: str) -> Path:
        device = self._directory / "devices/platform/soc/i2c-1" / chip / node
        device.mkdir(parents=True)
        (device / "name").write_text(name + "\n")
        for attribute, text in attributes.items():
            (device / attribute).write_text(text + "\n")
        (self.root / node).symlink_to(device)
        return device

    def remove(self, node: str) -> None:
        (self.root / node).unlink()

    def iio(self) -> SysfsIio:
        return SysfsIio(self.root)

    def sensor(self, device: str, *channels: IioChannel, where: str | None = None) -> IioSensor:
        # Nothing else of a board is used.
        return IioSensor(self, IioOptions(device, channels, where))  # type: ignore[arg-type]

    def started(self, device: str, *channels: IioChannel, where: str | None = None) -> IioSensor:
        sensor = self.sensor(device, *channels, where=where)
        sensor.start()
        return sensor


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def ads1015(kernel: Kernel, raw: str, node: str = "iio:device0", chip: str = "1-0048") -> Path:
    return kernel.add(node, "ads1015", chip, in_voltage0_raw=raw, in_voltage0_scale="3.000000000")


def test_a_barometer_on_a_converter(kernel: Kernel) -> None:
    ads1015(kernel, "1100")
    sensor = kernel.started("ads1015", BARO)
    [read] = sensor.read()
    # 1100 steps of 3 mV.
    assert read.raw == pytest.approx(3.3, abs=1e-12)
    assert read.value == pytest.approx(21.79 * 3.3 + 10.55, abs=1e-9)
    assert read.reasons == ()
    [channel] = sensor.channels
    assert (channel.quantity, channel.unit, channel.raw_unit) == ("pressure", "kPa", "V")


@pytest.mark.parametrize(
    ("raw", "reasons"), [("2047", ("OVER_RANGE",)), ("2046", ()), ("-2047", ()), ("-2048", ("UNDER_RANGE",))]
)
def test_a_code_at_the_end_of_the_converter_is_over_range(
    kernel: Kernel, raw: str, reasons: tuple[str, ...]
) -> None:
    ads1015(kernel, raw)
    sensor = kernel.started("ads1015", BARO)
    assert sensor.read()[0].reasons == reasons


def test_chips_with_the_quantity_itself_and_with_a_code(kernel: Kernel) -> None:
    kernel.add("iio:device3", "bme280", "1-0077", in_temp_input="-6300", in_humidityrelative_input="42100")
    both = kernel.started("bme280", *DHT)
    assert [each.value for each in both.read()] == pytest.approx([-6.3, 42.1])
    kernel.add("iio:device0", "bmp280", "1-0076", in_pressure_input="79.327402343", in_temp_input="12340")
    kernel.add(
        "iio:device1", "scd4x", "1-0062", in_concentration_co2_raw="431", in_concentration_co2_scale="0.0001"
    )
    baro = kernel.started("bmp280", measured("pressure", "in_pressure"))
    air = kernel.started("scd4x", measured("co2", "in_concentration_co2"))
    assert baro.read()[0].value == pytest.approx(79.327402343)
    assert air.read()[0].value == pytest.approx(431)


def test_scales_and_offsets_shared_by_a_kind(kernel: Kernel) -> None:
    attributes = {"in_voltage2-voltage3_raw": "-40", "in_voltage-voltage_scale": "0.0078125"}
    kernel.add("iio:device0", "ads1115", "1-0048", **attributes)
    attributes = {"in_temp_raw": "16384", "in_temp_scale": "2.670328831", "in_temp_offset": "-16852"}
    kernel.add("iio:device1", "sht3x", "1-0044", **attributes)
    sun = kernel.started("ads1115", measured("irradiance", "in_voltage2-voltage3", slope=100_000))
    air = kernel.started("sht3x", measured("temperature", "in_temp_raw"))
    # A night's offset: −40 steps of 7.8125 µV, at 10 µV per W/m².
    assert sun.read()[0].value == pytest.approx(-31.25)
    assert air.read()[0].value == pytest.approx((16384 - 16852) * 2.670328831e-3)


def test_which_of_several(kernel: Kernel) -> None:
    ads1015(kernel, "100", "iio:device0", "1-0048")
    labelled = ads1015(kernel, "200", "iio:device1", "1-0049")
    (labelled / "label").write_text("sun\n")
    with pytest.raises(
        BoardError, match="there are 2 IIO devices named 'ads1015': set where to one of 1-0048, sun"
    ):
        kernel.sensor("ads1015", BARO).start()
    for where, volts in {"1-0048": 0.3, "1-0049": 0.6, "sun": 0.6, "iio:device0": 0.3}.items():
        sensor = kernel.started("ads1015", BARO, where=where)
        assert sensor.read()[0].raw == pytest.approx(volts)
    with pytest.raises(
        BoardError, match=r"is at '1-004a'; there is ads1015 at 1-0048 = iio:device0, ads1015 at sun"
    ):
        kernel.sensor("ads1015", BARO, where="1-004a").start()


def test_a_device_that_is_not_there_lists_those_that_are(kernel: Kernel, tmp_path: Path) -> None:
    ads1015(kernel, "0")
    with pytest.raises(BoardError) as caught:
        kernel.sensor("bmp280", *DHT).start()
    assert str(caught.value) == (
        "the kernel has no IIO device named 'bmp280'; there are ads1015:"
        " on a Raspberry Pi dtoverlay=i2c-sensor,bmp280 in config.txt loads its driver"
    )
    with pytest.raises(BoardError, match="there are no others"):
        find_device(SysfsIio(tmp_path / "no such directory"), "ads1015", None)
    with pytest.raises(BoardError, match="has no in_voltage3; there are in_voltage0_raw"):
        kernel.sensor("ads1015", measured("pressure", "in_voltage3", slope=1.0)).start()


class Failing(SysfsIio):
    """The kernel drivers' errors when a sensor doesn't answer."""

    code: int = 0

    def read(self, node: str, attribute: str) -> str:
        if self.code:
            raise OSError(self.code, os.strerror(self.code))
        return super().read(node, attribute)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (errno.EIO, r"bme280 in_temp_input: the sensor's answer could not be decoded"),
        (errno.ETIMEDOUT, r"the sensor didn't answer \(Connection timed out\): check its wiring"),
        (errno.EACCES, "this user may not read it"),
        (errno.EBUSY, "another program has the device's buffer enabled"),
        (errno.ENODEV, "the device has gone"),
        (errno.EREMOTEIO, "Remote I/O error"),
    ],
)
def test_an_error_of_the_kernel_is_a_read_error_and_the_next_read_tries_again(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, code: int, message: str
) -> None:
    kernel.add("iio:device0", "bme280", "1-0076", in_temp_input="21000", in_humidityrelative_input="50000")
    iio = Failing(kernel.root)
    monkeypatch.setattr(kernel, "iio", lambda: iio)
    sensor = kernel.started("bme280", *DHT)
    iio.code = code
    with pytest.raises(ReadError, match=message):
        sensor.read()
    iio.code = 0
    assert [one.value for one in sensor.read()] == [21.0, 50.0]


@pytest.mark.parametrize("text", ["", "nan", "inf", "21.5 C", "0x12"])
def test_what_is_no_number_is_a_read_error(kernel: Kernel, text: str) -> None:
    kernel.add("iio:device0", "bmp280", "1-0076", in_pressure_input=text)
    sensor = kernel.started("bmp280", measured("pressure", "in_pressure"))
    with pytest.raises(ReadError, match="is no number"):
        sensor.read()


def test_a_module_loaded_again_gives_another_number_and_the_sensor_is_found_again(kernel: Kernel) -> None:
    ads1015(kernel, "100")
    sensor = kernel.started("ads1015", BARO)
    assert sensor.read()[0].raw == pytest.approx(0.3)
    kernel.remove("iio:device0")
    with pytest.raises(ReadError, match="the device has gone: was its module unloaded"):
        sensor.read()
    with pytest.raises(ReadError, match="no IIO device named 'ads1015'"):
        sensor.read()
    ads1015(kernel, "200", "iio:device1", "2-0048")
    assert sensor.read()[0].raw == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("channel", "key", "message"),
    [
        (measured("pressure", "in_voltage0"), (), "in_voltage0 is in V, pressure in kPa: slope is required"),
        (measured("pressure", "in_voltage0", slope=0.0), ("slope",), "must not be 0"),
        (measured("pressure", "voltage0"), ("attribute",), "must be one of in_voltage, in_current"),
        (measured("pressure", "in_voltage0/../x"), ("attribute",), "must be one of"),
        (measured("temperature", "in_temp", min=70.0), ("min",), "leaves no range: 70 to 60 Cel"),
        (measured("temperature", "in_temp", max=-100.0), ("max",), "leaves no range"),
    ],
)
def test_what_cannot_be_made_of_an_attribute(channel: IioChannel, key: tuple[str, ...], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        TYPE.settle(IioOptions("ads1015", (channel,)), None)
    assert caught.value.key == ("channels", 0, *key)
    assert caught.value.message.startswith(message)


def test_no_channel_one_twice_one_that_is_summed_up_and_a_chip_with_a_driver_of_its_own() -> None:
    with pytest.raises(OptionError, match=r"channels\.0\.quantity: energy is summed up"):
        TYPE.settle(IioOptions("ads1015", (measured("energy", "in_voltage0", slope=1.0),)), None)
    with pytest.raises(OptionError, match='device: a dht11 is read by driver = "dht11"'):
        TYPE.settle(IioOptions("dht11", DHT), None)
    with pytest.raises(OptionError, match="channels: must have one table for each quantity"):
        TYPE.settle(IioOptions("ads1015", ()), None)
    with pytest.raises(OptionError, match=r"channels\.1\.quantity: there is another temperature"):
        TYPE.settle(IioOptions("sht3x", (DHT[0], measured("temperature", "in_temp1"))), None)


def test_ranges_are_the_configs_or_what_occurs() -> None:
    ranges = {
        channel.quantity: (channel.lower, channel.upper)
        for channel in TYPE.channels_of(
            IioOptions("bme280", (measured("temperature", "in_temp", min=0.0), DHT[1]))
        )
    }
    assert ranges == {"temperature": (0.0, 60.0), "humidity": (0.0, 105.0)}


def test_two_sensors_on_one_attribute_clash() -> None:
    [one] = TYPE.claims(IioOptions("ads1015", (BARO,)))
    [raw] = TYPE.claims(IioOptions("ads1015", (measured("irradiance", "in_voltage0_raw", slope=1.0),)))
    [other] = TYPE.claims(IioOptions("ads1015", (BARO,), "1-0049"))
    assert one.clashes(raw)
    assert not one.clashes(other)


def test_an_emulated_converter_has_the_kernels_steps() -> None:
    sensors = [
        fitted("baro", "iio", device="ads1015", channels=(BARO,)),
        fitted(
            "sun", "iio", device="ads1015", channels=(measured("irradiance", "in_voltage1", slope=400.0),)
        ),
    ]
    board = simulated(sensors)
    drivers = [TYPE.make(board, sensor.options) for sensor in sensors]
    for driver in drivers:
        driver.start()
    board.clock.join()
    assert board.clock.wait_until(board.clock.now_ns() + 7200 * SECOND_NS)
    [pressure], [sun] = (driver.read() for driver in drivers)
    steps = pressure.raw / 0.003
    assert steps == pytest.approx(round(steps), abs=1e-9)
    assert 60 < pressure.value < 105
    assert -20 < sun.value < 1400
    board.refit(sensors[:1])()
    with pytest.raises(ReadError, match=r"the device has gone|no IIO device"):
        drivers[1].read()
    assert drivers[0].read()[0].value == pressure.value
