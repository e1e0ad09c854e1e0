"""What every driver must do, on the simulated board."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pytest

from cloud.wire.quantities import QUANTITIES
from drivers import registry
from drivers.conformance import CHECKS, Subject
from drivers.driver_type import Claim, DriverType
from drivers.interface import (
    Board,
    BoardError,
    Channel,
    DriverError,
    FittedSensor,
    I2cBus,
    Measurement,
    ReadError,
)
from drivers.option_docs import Meaning
from drivers.registry import DRIVERS, driver_type
from tests.support.masts import ALL_KINDS

BY_NAME = pytest.mark.parametrize("sensor", ALL_KINDS, ids=lambda sensor: sensor.driver)


def test_every_registered_driver_is_here() -> None:
    assert {sensor.driver for sensor in ALL_KINDS} == set(DRIVERS)


@BY_NAME
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_what_every_driver_must_do(sensor: FittedSensor, check: Callable[[Subject], None]) -> None:
    check(Subject(driver_type(sensor.driver), sensor.options))


@BY_NAME
def test_quantities_and_units_are_the_wires(sensor: FittedSensor) -> None:
    assert [QUANTITIES[each.quantity].unit for each in sensor.channels] == [
        each.unit for each in sensor.channels
    ]


def test_the_libraries_write_nothing_on_standard_output() -> None:
    program = """
import json
from tests.support.masts import ALL_KINDS, simulated
from drivers.registry import driver_type
board = simulated(ALL_KINDS)
for sensor in ALL_KINDS:
    driver = driver_type(sensor.driver).make(board, sensor.options)
    driver.start()
    driver.stop()
print(json.dumps({"started": len(ALL_KINDS)}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == {"started": len(ALL_KINDS)}


NAME = "acme-chip"
TEMPERATURE = Channel("temperature", "Cel", "Cel", -40.0, 85.0)


@dataclass(frozen=True, slots=True)
class Options:
    address: Annotated[int, Meaning("I2C address")] = 0x20


class Chip:
    """Always 21.5."""

    def write(self, sent: bytes) -> None:
        pass

    def read(self, count: int) -> bytes:
        return (215).to_bytes(count, "big")


class Thermometer:
    """Nothing is wrong with this one."""

    channels: tuple[Channel, ...] = (TEMPERATURE,)
    accumulates = False

    def __init__(self, board: Board, options: Any) -> None:
        self.board = board
        self.options = options
        self.bus: I2cBus | None = None

    def start(self) -> None:
        bus = self.board.i2c()
        bus.try_lock()
        try:
            bus.writeto(self.options.address, b"\x00")
        except OSError as error:
            raise BoardError(f"nothing at {self.options.address}") from error
        finally:
            bus.unlock()
        self.bus = bus

    def read(self) -> tuple[Measurement, ...]:
        if self.bus is None:
            raise ReadError("not started")
        answer = bytearray(2)
        self.bus.readfrom_into(self.options.address, answer)
        value = int.from_bytes(answer, "big") / 10
        return (Measurement("temperature", value, value),)

    def stop(self) -> None:
        self.bus = None


def acme(make: type[Thermometer] = Thermometer, **changes: Any) -> DriverType:
    good = DriverType(
        NAME,
        Options,
        make.channels,
        1.0,
        make,
        lambda options: (Claim(f"I2C address {options.address}", ("address",)),),
        emulate=lambda hardware, sensor: hardware.add_chip(0x20, Chip()),
    )
    return replace(good, **changes)


@dataclass(frozen=True, slots=True)
class Silent:
    address: int = 0x20


class TouchesTheBoard(Thermometer):
    def __init__(self, board: Board, options: Any) -> None:
        super().__init__(board, options)
        board.i2c()


class ReadsTooSoon(Thermometer):
    def read(self) -> tuple[Measurement, ...]:
        if self.bus is None:
            raise AttributeError("bus")
        return super().read()


def measuring(**changes: Any) -> type[Thermometer]:
    """A driver that is right but for these fields of its measurements."""

    class Flawed(Thermometer):
        def read(self) -> tuple[Measurement, ...]:
            return (replace(super().read()[0], **changes),)

    return Flawed


class OnlyOnce(Thermometer):
    started = 0

    def start(self) -> None:
        self.started += 1
        if self.started > 1:
            raise BoardError("once is enough")
        super().start()


class StopsOnce(Thermometer):
    def stop(self) -> None:
        if self.bus is None:
            raise ReadError("stopped already")
        super().stop()


class KeepsTheChip(Thermometer):
    owner: KeepsTheChip | None = None

    def start(self) -> None:
        if KeepsTheChip.owner not in (None, self):
            raise BoardError("it is another's")
        KeepsTheChip.owner = self
        super().start()


class NeverMissesIt(Thermometer):
    def start(self) -> None:
        self.bus = self.board.i2c()

    def read(self) -> tuple[Measurement, ...]:
        return (Measurement("temperature", 21.5, 21.5),)


class BareError(Thermometer):
    def start(self) -> None:
        try:
            super().start()
        except BoardError as error:
            raise BoardError from error


def fails(check: Callable[[Subject], None], known: DriverType) -> str:
    with pytest.raises((AssertionError, DriverError, AttributeError)) as caught:
        check(Subject(known, known.options()))
    return str(caught.value)


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[DriverType], DriverType]:
    def register(known: DriverType) -> DriverType:
        monkeypatch.setitem(registry._loaded, NAME, known)
        return known

    return register


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_good_driver_passes(
    register: Callable[[DriverType], DriverType], check: Callable[[Subject], None]
) -> None:
    check(Subject(register(acme()), Options()))


@pytest.mark.parametrize(
    ("check", "flawed", "message"),
    [
        ("the_type_is_complete", acme(options=Silent), "without Annotated"),
        ("the_type_is_complete", acme(min_interval_s=0.0), ""),
        ("the_type_is_complete", acme(name="dht11"), "another driver's name"),
        ("the_type_is_complete", acme(channels=()), "it measures nothing"),
        ("the_type_is_complete", acme(channels=(TEMPERATURE, TEMPERATURE)), "each quantity once"),
        ("the_type_is_complete", acme(channels=(replace(TEMPERATURE, upper=-40.0),)), "temperature"),
        ("the_type_is_complete", acme(channels=(replace(TEMPERATURE, lower=-math.inf),)), "temperature"),
        ("its_claims_clash_with_themselves", acme(claims=lambda _: ("pin 4",)), ""),
        ("its_claims_clash_with_themselves", acme(claims=lambda _: (Claim("pin 4", ()),)), ": no key"),
        ("its_constructor_touches_nothing", acme(TouchesTheBoard), "used the board's i2c"),
        ("its_constructor_touches_nothing", acme(ReadsTooSoon), "bus"),
        ("its_constructor_touches_nothing", acme(channels=(replace(TEMPERATURE, upper=84.0),)), ""),
        ("reads_answer_for_every_channel", acme(measuring(value=85.1)), "85.1"),
        ("reads_answer_for_every_channel", acme(measuring(raw=math.nan)), "nan"),
        ("reads_answer_for_every_channel", acme(measuring(quantity="humidity")), ""),
        ("reads_answer_for_every_channel", acme(measuring(position=(27.7, 85.5, None))), "position"),
        ("it_starts_again_after_a_stop", acme(OnlyOnce), "once is enough"),
        ("it_starts_again_after_a_stop", acme(StopsOnce), "stopped already"),
        ("another_driver_takes_over", acme(KeepsTheChip), "it is another's"),
        ("an_absent_sensor_is_an_error", acme(NeverMissesIt), "read a sensor that isn't there"),
        ("an_absent_sensor_is_an_error", acme(BareError), "without a message"),
    ],
)
def test_each_flaw_is_found(
    register: Callable[[DriverType], DriverType], check: str, flawed: DriverType, message: str
) -> None:
    [chosen] = [each for each in CHECKS if each.__name__ == check]
    assert message in fails(chosen, register(flawed))
