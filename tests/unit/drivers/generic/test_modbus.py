"""The driver: numbers of registers, requests, silent devices; against another project's devices."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cloud.wire.quantities import QUANTITIES, Quantity
from drivers.boards.pi import PiBoard
from drivers.boards.registry import BOARDS, open_board
from drivers.driver_type import Nameplate, OptionError
from drivers.emulation.environment import Fault
from drivers.generic.modbus import (
    TYPE,
    Block,
    Modbus,
    ModbusOptions,
    ModbusRegister,
    RegisterType,
    WordOrder,
    claims,
    concerns,
    decode,
    encode,
    is_missing,
    limits,
    number_of,
    plan,
    width,
)
from drivers.interface import BoardError, ChecksumError, ModbusPort, ReadError, SilentError
from tests.support.masts import AS_FAST_AS_POSSIBLE, SECOND_NS, fitted, replayed, simulated
from tests.support.modbus_simulator import Cable, simulated as simulator

WHOLE: Sequence[RegisterType] = ("u16", "s16", "u32", "s32", "u64", "s64")
ORDERS: st.SearchStrategy[WordOrder] = st.sampled_from(("big", "little"))


@pytest.mark.parametrize(
    ("words", "kind", "order", "number"),
    [
        ([0xFFFE], "u16", "big", 65534),
        ([0xFFFE], "s16", "big", -2),
        ([0x0001, 0x86A0], "u32", "big", 100_000),
        ([0x86A0, 0x0001], "u32", "little", 100_000),
        ([0xFFFF, 0xFFFE], "s32", "big", -2),
        ([0x42F6, 0xE979], "f32", "big", 123.45600128173828),
        ([0, 0, 1, 0], "u64", "big", 65536),
        ([0x3FF8, 0, 0, 0], "f64", "big", 1.5),
    ],
)
def test_numbers(words: list[int], kind: RegisterType, order: WordOrder, number: float) -> None:
    assert decode(words, kind, order) == number
    assert encode(number, kind, order) == tuple(words)
    assert width(kind) == len(words)


@pytest.mark.parametrize(
    ("words", "order", "byte_order"),
    [
        ([0x42F6, 0xE979], "big", "big"),
        ([0xE979, 0x42F6], "little", "big"),
        ([0xF642, 0x79E9], "big", "little"),
        ([0x79E9, 0xF642], "little", "little"),
    ],
)
def test_each_order_of_a_floats_bytes(words: list[int], order: WordOrder, byte_order: WordOrder) -> None:
    """As manuals call them: ABCD, CDAB, BADC, DCBA."""
    assert decode(words, "f32", order, byte_order) == pytest.approx(123.456)


def test_a_scale_factor_has_the_registers_byte_order() -> None:
    words = {("holding", 0): 0xFD08, ("holding", 1): 0xFFFF}
    assert number_of(register("voltage", 0, scale_address=1, byte_order="little"), words) == (230.1, -1)


@given(st.data(), st.sampled_from(WHOLE), ORDERS, ORDERS)
def test_whole_numbers_go_there_and_back(
    data: st.DataObject, kind: RegisterType, order: WordOrder, byte_order: WordOrder
) -> None:
    number = data.draw(st.integers(*limits(kind)))
    assert decode(encode(number, kind, order, byte_order), kind, order, byte_order) == number
    assert not is_missing(number, kind, (), sunspec=True)


@pytest.mark.parametrize(
    ("word", "kind"), [(0xFFFF, "u16"), (0x8000, "s16"), (0xFFFFFFFF, "u32"), (0x80000000, "s32")]
)
def test_sunspecs_codes_for_not_implemented(word: int, kind: RegisterType) -> None:
    bits = int(kind[1:])
    number = word - (1 << bits) if kind[0] == "s" else word
    assert is_missing(number, kind, (), sunspec=True)
    assert not is_missing(number, kind, (), sunspec=False)
    assert is_missing(number, kind, (word,), sunspec=False)
    assert is_missing(number, kind, (number,), sunspec=False)


def test_a_float_that_is_none_is_missing() -> None:
    for number in (math.nan, math.inf, -9999.0):
        assert is_missing(number, "f32", (-9999,), sunspec=False)
    assert not is_missing(-9998.0, "f32", (-9999,), sunspec=False)


SPANS = st.lists(
    st.builds(Block, st.sampled_from(("holding", "input")), st.integers(0, 300), st.integers(1, 4)),
    max_size=12,
)


@given(SPANS, st.integers(0, 30), st.integers(4, 125))
def test_each_span_is_read_whole_by_one_request_of_few(spans: list[Block], gap: int, most: int) -> None:
    blocks = plan(spans, gap, most)

    def holds(block: Block, span: Block) -> bool:
        return (
            block.table == span.table
            and block.address <= span.address
            and span.address + span.count <= block.address + block.count
        )

    for span in spans:
        assert any(holds(block, span) for block in blocks)
    for block in blocks:
        assert block.count <= most
        inside = {
            at
            for span in spans
            if holds(block, span)
            for at in range(span.address, span.address + span.count)
        }
        edges = sorted(inside)
        assert (edges[0], edges[-1]) == (block.address, block.address + block.count - 1)
        assert all(after - before - 1 <= gap for before, after in pairwise(edges))
    for first, second in pairwise(blocks):
        apart = second.address - (first.address + first.count)
        together = second.address + second.count - first.address
        assert first.table != second.table or apart > gap or together > most


def register(quantity: str, address: int, kind: RegisterType = "s16", **options: Any) -> ModbusRegister:
    return ModbusRegister(QUANTITIES[quantity], address, kind, **options)


@pytest.mark.parametrize(
    ("code", "scale", "number"),
    [
        (2301, -1, 230.1),
        (-5, 2, -500.0),
        (7, 0, 7.0),
        (7, 11, math.nan),
        (7, -32768, math.nan),
        (-32768, 0, math.nan),
    ],
)
def test_scale_factors(code: int, scale: int, number: float) -> None:
    words = {("holding", 0): code & 0xFFFF, ("holding", 1): scale & 0xFFFF}
    found, _ = number_of(register("voltage", 0, scale_address=1), words)
    assert found == pytest.approx(number, nan_ok=True, abs=0)


# An inverter's registers by SunSpec (model 103), here from 0 on: current, voltage, power, temperature.
INVERTER = (
    register("current", 2, "u16", scale_address=6),
    register("voltage", 10, "u16", scale_address=13),
    register("power", 14, scale_address=15),
    register("module_temperature", 33, scale_address=37),
)
WORDS = [103, 50, 873, 291, 291, 291, 0x10000 - 2, 0, 0, 0, 2304, 2301, 2299, 0x10000 - 1, 603, 1]
WORDS += [0] * 17 + [0x8000, 0x8000, 0x8000, 0x8000, 0x10000 - 1]


@contextmanager
def started(board: PiBoard, options: ModbusOptions) -> Iterator[Modbus]:
    driver = Modbus(board, options)
    driver.start()
    try:
        yield driver
    finally:
        driver.stop()


def test_an_inverter_over_tcp(free_port: int) -> None:
    options = ModbusOptions(INVERTER, host="127.0.0.1", port=free_port, timeout_s=5.0)
    with (
        closing(PiBoard()) as board,
        simulator(str(free_port), WORDS) as device,
        started(board, options) as driver,
    ):
        *values, temperature = driver.read()
        assert [(each.quantity, each.value) for each in values] == [
            ("current", 8.73),
            ("voltage", 230.4),
            ("power", 6030.0),
        ]
        # It measures no temperature there: that channel alone has no value.
        assert math.isnan(temperature.value)
        [fault] = driver.diagnose()
        assert fault.startswith("the device has no module_temperature at present: holding register 33")
        device.set([*WORDS[:33], 415])
        assert driver.read()[3].value == 41.5
        assert driver.diagnose() == ()
        device.set([0xFFFF if each in (2, 10) else 0x8000 for each in range(40)])
        with pytest.raises(ReadError, match=r"no current at present.*; .*no power"):
            driver.read()


def test_a_pyranometer_and_an_anemometer_on_one_line() -> None:
    """Each with its own registers; one request each, across the registers between."""
    sun = ModbusOptions(
        (register("irradiance", 2, "s32", slope=0.01), register("temperature", 6, slope=0.01))
    )
    wind = ModbusOptions(
        (register("wind_speed", 20, "u32", slope=0.1), register("wind_direction", 24, "u32", slope=0.1))
    )
    words = [1, 5, 0x0001, 0x86A0, 0, 0, 2150, *[0] * 13, 0, 74, 0, 0, 0, 2703]
    with closing(Cable()) as cable, closing(PiBoard()) as board, simulator(cable.ends[1], words):
        here: dict[str, Any] = {"device": cable.ends[0], "parity": "none", "timeout_s": 5.0}
        with started(board, replace(sun, **here)) as first, started(board, replace(wind, **here)) as second:
            for _ in range(2):
                assert [each.value for each in first.read()] == [1000.0, 21.5]
                assert [each.value for each in second.read()] == pytest.approx([7.4, 270.3])
            requested = bytes(cable.requests)
            assert len(requested) == 4 * 8
            assert requested[2:6] == bytes((0, 2, 0, 5))
            first.stop()
            assert second.read()[0].raw == 74
            cable.damage = lambda answer: answer[:-1] + b"?"
            with pytest.raises(ChecksumError):
                second.read()
            assert second.diagnose()[0].startswith("1 of 4 answers were damaged")


def test_energy_is_what_a_counter_counts(free_port: int) -> None:
    energy = register("energy", 0, "u32", slope=0.001, scale_address=2)
    options = ModbusOptions((energy,), host="127.0.0.1", port=free_port, timeout_s=5.0)
    with (
        closing(PiBoard()) as board,
        simulator(str(free_port), [0, 5000, 1]) as device,
        started(board, options) as driver,
    ):
        assert driver.accumulates
        [read] = driver.read()
        assert (read.value, read.raw) == (0.0, 50_000.0)
        device.set([0, 5025, 1])
        [read] = driver.read()
        assert (read.value, read.raw) == (0.25, 50_250.0)
        device.set([0xFFFF, 0xFFFF, 1])
        with pytest.raises(ReadError, match="no energy at present"):
            driver.read()
        device.set([0, 5026, 1])
        assert driver.read()[0].value == 0.01
        # It boots.
        device.set([0, 0, 1])
        assert driver.read()[0].value == 0
        device.set([0, 5027, 1])
        assert driver.read()[0].value == 0.01


class Unanswered:
    """A board whose device never answers; its time is set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.requests: list[float] = []
        self.answers = False
        self.words: tuple[int, ...] = (7,) * 10

    def monotonic(self) -> float:
        return self.now_s

    def modbus(self, port: ModbusPort) -> Unanswered:
        return self

    def read_registers(
        self, unit_id: int, table: str, address: int, count: int, timeout_s: float
    ) -> tuple[int, ...]:
        self.requests.append(self.now_s)
        if not self.answers:
            raise SilentError("unit 1 doesn't answer")
        return self.words[:count]

    def close(self) -> None:
        pass


def test_a_silent_device_is_asked_less_and_less_often() -> None:
    board = Unanswered()
    driver = Modbus(board, ModbusOptions((register("power", 0),), device="/dev/ttyUSB0"))  # type: ignore[arg-type]
    driver.start()
    for second in range(120):
        board.now_s = float(second)
        with pytest.raises(SilentError, match="unit 1 doesn't answer"):
            driver.read()
    assert board.requests == [0, 1, 2, 3, 5, 9, 17, 33, 63, 93]
    board.answers = True
    board.now_s = 122.0
    with pytest.raises(SilentError):
        driver.read()
    board.now_s = 123.0
    assert driver.read()[0].value == 7
    board.answers = False
    board.now_s = 124.0
    with pytest.raises(SilentError):
        driver.read()
    board.now_s = 124.5
    board.answers = True
    assert driver.read()[0].value == 7


def test_a_counter_of_a_device_that_is_silent_at_the_start() -> None:
    board = Unanswered()
    driver = Modbus(board, ModbusOptions((register("energy", 0),), device="/dev/ttyUSB0"))  # type: ignore[arg-type]
    driver.start()
    board.answers = True
    assert math.isnan(driver.read()[0].value)
    assert driver.read()[0].value == 0


RTU = ModbusOptions((register("power", 0),), device="/dev/ttyUSB0")
OWN = Quantity("track", "m", "position", 0.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"device": None}, "device", "neither is given"),
        ({"host": "plant"}, "device", "both are given"),
        ({"unit_id": 0}, "unit_id", "1 to 247 on a serial line, not 0"),
        ({"registers": ()}, "registers", "one table for each"),
        ({"registers": RTU.registers * 2}, "registers.1.quantity", "another power"),
        ({"registers": (ModbusRegister(OWN, 0),)}, "registers.0.quantity", 'use driver = "gpsd"'),
        (
            {"registers": (*RTU.registers, register("energy", 2))},
            "registers.0.quantity",
            r"second \[\[sensor\]\]",
        ),
    ],
)
def test_options_that_dont_fit(changes: dict[str, Any], key: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        TYPE.settle(replace(RTU, **changes), None)
    assert ".".join(map(str, caught.value.key)) == key


@pytest.mark.parametrize(
    ("unfit", "key", "message"),
    [
        (register("energy", 2, offset=1.0), "offset", "no offset"),
        (register("power", 2, slope=0.0), "slope", "not be 0"),
        (register("power", 65535, "s32"), "address", "beyond the last"),
        (register("power", 0, "f32", scale_address=2), "scale_address", "has no scale"),
        (register("state", 0, "f32", table="coil"), "type", "a coil is one bit, 0 or 1: delete type"),
        (
            register("state", 0, "u16", table="discrete", scale_address=1),
            "scale_address",
            "a discrete is one bit",
        ),
        (register("power", 0, min=5.0, max=4.0), "min", "5 to 4 W"),
    ],
)
def test_a_register_that_doesnt_fit(unfit: ModbusRegister, key: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        TYPE.settle(replace(RTU, registers=(unfit,)), None)
    assert caught.value.key == ("registers", 0, key)


def test_what_sensors_may_share() -> None:
    def clash(first: ModbusOptions, second: ModbusOptions) -> list[str]:
        return [each.part for each in claims(first) for other in claims(second) if each.clashes(other)]

    other = replace(RTU, registers=(register("power", 1),))
    assert clash(RTU, other) == []
    assert clash(RTU, replace(RTU, unit_id=2)) == []
    assert clash(RTU, RTU) == ["holding register 0 of unit 1 at /dev/ttyUSB0"]
    assert clash(RTU, replace(other, baudrate=9600)) == ["serial port /dev/ttyUSB0"]
    assert clash(RTU, replace(other, any_ids=True)) == ["serial port /dev/ttyUSB0"]
    tcp = replace(RTU, device=None, host="plant")
    assert clash(tcp, replace(other, device=None, host="plant")) == []
    assert clash(tcp, replace(other, device=None, host="plant", rtu_over_tcp=True)) == ["Modbus at plant:502"]


def test_requests_that_fill_the_line() -> None:
    slow = replace(RTU, baudrate=1200, registers=(register("power", 0), register("voltage", 100)), gap=0)
    assert list(concerns(RTU, Nameplate())) == []
    [concern] = concerns(slow, Nameplate(interval_s=0.5))
    assert concern.message.startswith("2 requests take 0.42 s at 1200 Bd")


ROOF = fitted(
    "roof",
    "modbus",
    host="plant",
    registers=(register("irradiance", 2, "s32", slope=0.01), register("temperature", 9, scale_address=8)),
)


def test_the_emulated_device_has_the_weathers_values() -> None:
    with closing(simulated([ROOF])) as board:
        driver = TYPE.make(board, ROOF.options)
        driver.start()
        for _ in range(3):
            board.clock.wait_until(board.now_ns() + 60 * SECOND_NS)
            sun, air = driver.read()
            assert sun.value == pytest.approx(board.value("roof.irradiance"), abs=0.005)
            assert air.value == pytest.approx(board.value("roof.temperature"), abs=0.005)
        driver.stop()


def test_the_emulated_counter_counts_what_a_recording_adds(tmp_path: Path) -> None:
    """Rows of ten minutes, read each minute and a half: their sum, whatever the grid."""
    rows = "".join(f"2026-03-01T{at // 6:02}:{at % 6}0:00Z,{0.1 * at:.1f}\n" for at in range(12))
    (tmp_path / "rain.csv").write_text("time,mm\n" + rows)
    rain = register("precipitation", 0, "u32", slope=0.001)
    gauge = fitted("gauge", "modbus", host="plant", registers=(rain,))
    with closing(replayed(tmp_path / "rain.csv", [gauge], {"gauge": "mm"})) as board:
        driver = TYPE.make(board, gauge.options)
        driver.start()
        total, last = 0.0, math.nan
        for _ in range(79):
            board.clock.wait_until(board.now_ns() + 90 * SECOND_NS)
            [read] = driver.read()
            total, last = total + read.value, read.raw
        driver.stop()
    # Two hours less 90 s, of 6.6 mm the last row's 1.1 mm short by 90 of its 600 s.
    assert total == pytest.approx(6.6 - 1.1 * 90 / 600, abs=0.001)
    assert last == round(1000 * (1 + total))


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [("open-input", SilentError, "doesn't answer"), ("bit-errors", ChecksumError, "damaged")],
)
def test_faults_of_the_emulated_line(kind: Any, error: type[Exception], message: str) -> None:
    serial = fitted("roof", "modbus", device="/dev/ttyUSB0", registers=ROOF.options.registers)
    amount = 1.0 if kind == "bit-errors" else None
    options = BOARDS["simulated"](
        speed=AS_FAST_AS_POSSIBLE,
        start="2026-03-01T04:00:00Z",
        faults=(Fault("roof", kind, 5.0, 5.0, amount),),
    )
    with closing(open_board(options, [serial], Path())) as board:
        assert board.clock is not None
        driver = TYPE.make(board, serial.options)
        driver.start()
        driver.read()
        board.clock.wait_until(board.clock.now_ns() + 6 * SECOND_NS)
        with pytest.raises(error, match=message):
            driver.read()
        board.clock.wait_until(board.clock.now_ns() + 6 * SECOND_NS)
        driver.read()
        driver.stop()


def test_without_the_library_start_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == "pymodbus"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pymodbus", None)
    with closing(PiBoard()) as board, pytest.raises(BoardError, match=r"pip install 'fieldgate\[modbus\]'"):
        Modbus(board, RTU).start()
