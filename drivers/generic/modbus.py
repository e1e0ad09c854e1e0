"""Any instrument with Modbus registers: RTU on a serial line (RS-485), or TCP.

A register's number, times ten to its scale factor where it has one, is raw; value = slope · raw + offset.
Registers that are near each other come in one request. A quantity that the device reports as not implemented
has no value, the others have theirs. Several sensors may be on one port, also several parts of one device:
their requests take turns, and a device that stays silent is asked less and less often, up to 30 s.

An accumulated quantity (energy) is a counter of the device: its raw is the count, its value slope · what was
counted since the reading before.

Source: MODBUS Application Protocol Specification V1.1b3; SunSpec Device Information Model Specification.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from annotated_types import Ge, Le

from drivers.driver_type import Claim, Concern, DriverType, EmulatedHardware, Nameplate, OptionError, Remove
from drivers.interface import (
    BITS,
    Board,
    Channel,
    ChecksumError,
    FittedSensor,
    Located,
    Measurement,
    ModbusPort,
    ModbusRegisters,
    ReadError,
    SilentError,
)
from drivers.option_docs import Figure, Meaning, MeasuredQuantity
from drivers.running_total import Total, added

RegisterType = Literal["u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64"]
WordOrder = Literal["big", "little"]
ByteOrder = Literal["big", "little"]
Table = Literal["holding", "input", "coil", "discrete"]

_FORMATS: Final[Mapping[RegisterType, str]] = {
    "u16": ">H", "s16": ">h", "u32": ">I", "s32": ">i", "u64": ">Q", "s64": ">q", "f32": ">f", "f64": ">d",
}  # fmt: skip
_ENDS: Final[Mapping[ByteOrder, str]] = {"big": ">", "little": "<"}
SCALE_LIMIT: Final = 10
"""SunSpec's scale factors are powers of ten from -10 to 10."""


@dataclass(frozen=True, slots=True)
class Block:
    """Adjacent registers of one table, read by one request."""

    table: Table
    address: int
    count: int


def width(kind: RegisterType) -> int:
    """How many registers a number has."""
    return struct.calcsize(_FORMATS[kind]) // 2


def decode(
    words: Sequence[int], kind: RegisterType, order: WordOrder = "big", byte_order: ByteOrder = "big"
) -> float:
    """The number in its words (0 to 65535 each), as the device sent it."""
    ordered = words if order == "big" else words[::-1]
    packed = struct.pack(f"{_ENDS[byte_order]}{len(words)}H", *ordered)
    number: float = struct.unpack(_FORMATS[kind], packed)[0]
    return number


def encode(
    number: float, kind: RegisterType, order: WordOrder = "big", byte_order: ByteOrder = "big"
) -> tuple[int, ...]:
    """The words of a number; one beyond the type's range becomes the nearest that stands for a value."""
    if kind[0] != "f":
        lowest, highest = limits(kind)
        number = min(max(round(number), lowest), highest)
    packed = struct.pack(_FORMATS[kind], number)
    words = struct.unpack(f"{_ENDS[byte_order]}{len(packed) // 2}H", packed)
    return words if order == "big" else words[::-1]


def limits(kind: RegisterType) -> tuple[int, int]:
    """The least and the greatest value of a whole-number type, without its code for "not implemented"."""
    bits = int(kind[1:])
    return (1 - (1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 2)


def is_missing(number: float, kind: RegisterType, codes: Sequence[int], *, sunspec: bool) -> bool:
    """Whether a number stands for no value: not finite, one of the device's codes, or SunSpec's of its type.

    A code is the number itself (-9999) or its bits as manuals print them (0x8000).
    """
    if not math.isfinite(number):
        return True
    if kind[0] == "f":
        return number in codes
    lowest, highest = limits(kind)
    bits = int(number) & ((1 << int(kind[1:])) - 1)
    return number in codes or bits in codes or (sunspec and not lowest <= number <= highest)


def scaled(number: float, scale: int) -> float:
    """A number times a power of ten; NaN where that is none of SunSpec's scale factors."""
    if abs(scale) > SCALE_LIMIT:
        return math.nan
    # A quotient of whole numbers is the nearest float: 2301 with -1 is 230.1.
    return number / 10**-scale if scale < 0 else float(number * 10**scale)


def counter_end(kind: RegisterType, scale: int = 0) -> float:
    """Where a counter of this type begins again at 0; NaN where that is nowhere."""
    return math.nan if kind[0] == "f" else 2.0 ** int(kind[1:]) * 10.0**scale


def plan(spans: Iterable[Block], gap: int, most: int) -> tuple[Block, ...]:
    """The requests that read all spans: those up to ``gap`` registers apart in one, of ``most`` at most."""
    planned: list[Block] = []
    for span in sorted(set(spans), key=lambda each: (each.table, each.address, each.count)):
        end = span.address + span.count
        last = planned[-1] if planned else None
        if (
            last is not None
            and last.table == span.table
            and span.address - (last.address + last.count) <= gap
            and end - last.address <= most
        ):
            planned[-1] = Block(last.table, last.address, max(last.count, end - last.address))
        else:
            planned.append(span)
    return tuple(planned)


_PATIENCE: Final = 3
"""A device is asked less often after so many unanswered requests in a row."""
_LONGEST_PAUSE_S: Final = 30.0
_LONGEST_READ_S: Final = 15.0
_HIGHEST_UNIT: Final = 247
"""Unit ids of a serial line end here; 0 is a broadcast there, which nothing answers."""
_FRAME_BYTES: Final = 13

Address = Annotated[int, Ge(0), Le(65535)]
_RANGE: Final = Meaning("the sensor's range; what can occur unless given", "the quantity's unit")
_SERIAL: Final = "the serial line's"


@dataclass(frozen=True, slots=True)
class ModbusRegister:
    """One quantity: where its number is and what it means."""

    quantity: MeasuredQuantity
    address: Annotated[Address, Meaning("of its first register, counted from 0")]
    type: Annotated[RegisterType, Meaning("unsigned, signed or floating point, and its bits")] = "u16"
    table: Annotated[Table, Meaning("function 3, 4, 1 or 2; the last two have single bits")] = "holding"
    word_order: Annotated[WordOrder, Meaning("which of several registers is first: the high one is big")] = (
        "big"
    )
    byte_order: Annotated[ByteOrder, Meaning("which of a register's bytes is first: the high one is big")] = (
        "big"
    )
    slope: Annotated[Figure, Meaning("value = slope · number + offset", "the quantity's unit")] = 1.0
    offset: Annotated[Figure, Meaning("value = slope · number + offset", "the quantity's unit")] = 0.0
    scale_address: Annotated[
        Address | None, Meaning("the register with its power of ten (SunSpec's scale factor)")
    ] = None
    missing: Annotated[tuple[int, ...], Meaning("numbers or bit patterns that are no value, as 0x8000")] = ()
    min: Annotated[Figure | None, _RANGE] = None
    max: Annotated[Figure | None, _RANGE] = None

    @property
    def spans(self) -> tuple[Block, ...]:
        """The registers it needs."""
        value = Block(self.table, self.address, width(self.type))
        return (value,) if self.scale_address is None else (value, Block(self.table, self.scale_address, 1))


@dataclass(frozen=True, slots=True)
class ModbusOptions:
    """A device on a serial line or in the network, and what is read from it."""

    registers: Annotated[tuple[ModbusRegister, ...], Meaning("one table for each quantity")]
    device: Annotated[str | None, Meaning("the serial port; /dev/serial/by-id/… stays the same")] = None
    host: Annotated[str | None, Meaning("name or address in the network, instead of device")] = None
    port: Annotated[int, Ge(1), Le(65535), Meaning("its TCP port")] = 502
    rtu_over_tcp: Annotated[bool, Meaning("frames as on a serial line, through a plain converter")] = False
    baudrate: Annotated[int, Ge(300), Le(4_000_000), Meaning(_SERIAL, "Bd")] = 19_200
    parity: Annotated[Literal["even", "odd", "none"], Meaning(_SERIAL)] = "even"
    stop_bits: Annotated[Literal[1, 2], Meaning(_SERIAL)] = 1
    unit_id: Annotated[int, Ge(0), Le(255), Meaning("the device's address on its line")] = 1
    timeout_s: Annotated[float, Ge(0.05), Le(5), Meaning("how long it may take to answer", "s")] = 1.0
    gap: Annotated[int, Ge(0), Le(120), Meaning("registers between two that are read along")] = 8
    largest_read: Annotated[int, Ge(4), Le(125), Meaning("registers that one request may have")] = 125
    any_ids: Annotated[bool, Meaning("an answer may have another unit or transaction id")] = False

    @property
    def line(self) -> ModbusPort:
        """The port, with what two sensors on it must agree on."""
        if self.device is None:
            return ModbusPort(None, self.host, self.port, self.rtu_over_tcp, any_ids=self.any_ids)
        settings = self.baudrate, self.parity, self.stop_bits, self.any_ids
        return ModbusPort(self.device, None, 502, False, *settings)

    @property
    def requests(self) -> tuple[Block, ...]:
        """What is requested at each read."""
        spans = (span for register in self.registers for span in register.spans)
        return plan(spans, self.gap, self.largest_read)


Words = dict[tuple[str, int], int]
"""What registers hold, by table and address."""


def number_of(register: ModbusRegister, words: Words) -> tuple[float, int]:
    """A register's number, scaled, and its scale factor; NaN where the device says that it has none."""
    number = decode(
        [words[register.table, register.address + at] for at in range(width(register.type))],
        register.type,
        register.word_order,
        register.byte_order,
    )
    sunspec = register.scale_address is not None
    if is_missing(number, register.type, register.missing, sunspec=sunspec):
        return math.nan, 0
    if register.scale_address is None:
        return float(number), 0
    scale = int(
        decode([words[register.table, register.scale_address]], "s16", byte_order=register.byte_order)
    )
    return scaled(number, scale), scale


def modbus_channels(options: ModbusOptions) -> tuple[Channel, ...]:
    """The channels of the configuration; raw is a plain number."""
    return tuple(Channel.of(each.quantity, "1", each.min, each.max) for each in options.registers)


class Modbus:
    """One device, or a part of it."""

    def __init__(self, board: Board, options: ModbusOptions) -> None:
        self.channels = modbus_channels(options)
        self.accumulates = _accumulates(options)
        self._counts: dict[str, Total] = {}
        self._board = board
        self._options = options
        self._requests = options.requests
        self._line: ModbusRegisters | None = None
        self._missing: tuple[ModbusRegister, ...] = ()
        self._reads = self._damaged = self._unanswered = 0
        self._again_s = -math.inf
        self._silence = ""

    def start(self) -> None:
        """Load the library, and see where counters stand. Raises BoardError."""
        self._line = self._board.modbus(self._options.line)
        if self.accumulates:
            # Where that fails, the first read that succeeds finds where they stand.
            with suppress(ReadError):
                self.read()

    def read(self) -> tuple[Measurement, ...]:
        """Each register, read now. Raises SilentError, ChecksumError, ReadError."""
        if self._line is None:
            raise ReadError("the Modbus device isn't started")
        now_s = self._board.monotonic()
        if now_s < self._again_s:
            raise SilentError(self._silence)
        self._reads += 1
        try:
            words = self._words(self._line, now_s)
        except SilentError as error:
            self._unanswered += 1
            if self._unanswered >= _PATIENCE:
                pause_s = min(2.0 ** (self._unanswered - _PATIENCE), _LONGEST_PAUSE_S)
                self._again_s, self._silence = self._board.monotonic() + pause_s, str(error)
            raise
        except ChecksumError:
            self._damaged += 1
            raise
        self._unanswered = 0
        numbers = [(each, *number_of(each, words)) for each in self._options.registers]
        self._missing = tuple(each for each, number, _ in numbers if math.isnan(number))
        if len(self._missing) == len(numbers):
            raise ReadError("; ".join(map(_not_implemented, self._missing)))
        return tuple(self._measurement(*each) for each in numbers)

    def _measurement(self, register: ModbusRegister, number: float, scale: int) -> Measurement:
        quantity, value = register.quantity.name, number
        if self.accumulates and not math.isnan(number):
            before = self._counts.get(quantity)
            self._counts[quantity] = Total(number) if before is None else before.then(number)
            step = None if before is None else added(before, number, counter_end(register.type, scale))
            value = math.nan if step is None else step
        return Measurement(quantity, register.slope * value + register.offset, number)

    def stop(self) -> None:
        """End the connection; other sensors on the port make a new one."""
        line, self._line = self._line, None
        if line is not None:
            line.close()
        self._again_s, self._counts = -math.inf, {}
        self._reads = self._damaged = self._unanswered = 0

    def diagnose(self) -> tuple[str, ...]:
        """Damaged answers among those since the start, and quantities that the device doesn't have."""
        damaged = (
            f"{self._damaged} of {self._reads} answers were damaged: check the termination at both ends of"
            " the line, its common ground and its way past other cables"
        )
        missing = tuple(map(_not_implemented, self._missing))
        return (damaged, *missing) if self._damaged else missing

    def _words(self, line: ModbusRegisters, begin_s: float) -> Words:
        words: Words = {}
        for block in self._requests:
            if self._board.monotonic() - begin_s > _LONGEST_READ_S:
                raise ReadError(f"{len(self._requests)} requests take over {_LONGEST_READ_S:g} s")
            read = line.read_registers(
                self._options.unit_id, block.table, block.address, block.count, self._options.timeout_s
            )
            words |= {(block.table, block.address + at): word for at, word in enumerate(read)}
        return words


def _accumulates(options: ModbusOptions) -> bool:
    return any(each.quantity.kind == "accumulated" for each in options.registers)


def _not_implemented(register: ModbusRegister) -> str:
    return (
        f"the device has no {register.quantity.name} at present: {register.table} register"
        f" {register.address} holds its code for that"
    )


def settle(options: ModbusOptions, _site: Located | None) -> ModbusOptions:
    """The options as they are. Raises OptionError where they can't be used together."""
    if (options.device is None) == (options.host is None):
        what = "both are given" if options.device is not None else "neither is given"
        raise OptionError(("device",), f"a serial device or a host, one of them: {what}")
    if options.device is not None and not 1 <= options.unit_id <= _HIGHEST_UNIT:
        raise OptionError(
            ("unit_id",), f"must be 1 to {_HIGHEST_UNIT} on a serial line, not {options.unit_id}"
        )
    if not options.registers:
        raise OptionError(("registers",), "must have one table for each quantity")
    seen: set[str] = set()
    for position, register in enumerate(options.registers):
        key, name = ("registers", position), register.quantity.name
        if name in seen:
            raise OptionError(
                (*key, "quantity"), f"there is another {name}: write a second [[sensor]] on the same port"
            )
        seen.add(name)
        if register.quantity.kind == "position":
            raise OptionError((*key, "quantity"), 'a position isn\'t read by Modbus: use driver = "gpsd"')
        if (register.quantity.kind == "accumulated") != _accumulates(options):
            raise OptionError(
                (*key, "quantity"),
                f"{name} is read when a period begins, what is accumulated when it ends: write a second"
                " [[sensor]] on the same port",
            )
        if register.quantity.kind == "accumulated" and register.offset != 0:
            raise OptionError((*key, "offset"), f"{name} is accumulated: what is counted has no offset")
        if register.slope == 0:
            raise OptionError((*key, "slope"), "must not be 0")
        if register.address + width(register.type) > 1 << 16:
            raise OptionError((*key, "address"), f"{register.type} ends beyond the last register, 65535")
        if register.table in BITS and (register.type, register.scale_address) != ("u16", None):
            given = "type" if register.type != "u16" else "scale_address"
            raise OptionError((*key, given), f"a {register.table} is one bit, 0 or 1: delete {given}")
        if register.scale_address is not None and register.type[0] == "f":
            raise OptionError((*key, "scale_address"), f"{register.type} has no scale factor: delete it")
        channel = Channel.of(register.quantity, "1", register.min, register.max)
        if channel.lower >= channel.upper:
            raise OptionError(
                (*key, "min" if register.min is not None else "max"),
                f"leaves no range: {channel.lower:g} to {channel.upper:g} {channel.unit}",
            )
    return options


def claims(options: ModbusOptions) -> Iterator[Claim]:
    """The port with its settings, and each register: read twice it would be one quantity twice."""
    line = options.line
    if line.device is not None:
        settings = f"{line.baudrate} Bd, parity {line.parity}, stop_bits {line.stop_bits}"
        settings += ", any_ids" if line.any_ids else ""
        yield Claim(f"serial port {line.device}", ("device",), shared=f"Modbus at {settings}")
    else:
        frames = ("RTU frames" if line.rtu else "TCP frames") + (", any_ids" if line.any_ids else "")
        yield Claim(f"Modbus at {line.name}", ("host",), shared=frames)
    for register in options.registers:
        place = f"{register.table} register {register.address} of unit {options.unit_id}"
        yield Claim(f"{place} at {line.name}", ("registers",))


def concerns(options: ModbusOptions, nameplate: Nameplate) -> Iterator[Concern]:
    """Requests that fill the line."""
    requests = options.requests
    seconds = options.line.character_s * sum(8 + _FRAME_BYTES + 2 * each.count for each in requests)
    if seconds > nameplate.interval_s / 2:
        yield Concern(
            ("interval_s",),
            f"{len(requests)} requests take {seconds:.2g} s at {options.baudrate} Bd without the device's own"
            f" time, the interval is {nameplate.interval_s:g} s: lengthen it",
        )


def emulate(hardware: EmulatedHardware, sensor: FittedSensor) -> Remove:
    """A device whose registers hold the environment's values; silent where it lacks one of them."""
    options: ModbusOptions = sensor.options
    # Up to when each counter has counted, and how much: 0 may be a device's code for none.
    counts: dict[str, tuple[int, float]] = {}

    def counted(channel: str) -> float:
        now_ns = hardware.now_ns()
        since_ns, count = counts.get(channel, (now_ns, 1.0))
        count += hardware.accumulated(channel, since_ns, now_ns)
        counts[channel] = now_ns, count
        return count

    def words() -> Words | None:
        found: Words = {}
        for register in options.registers:
            channel = f"{sensor.name}.{register.quantity.name}"
            value = hardware.value(channel)
            if value is None:
                return None
            if register.quantity.kind == "accumulated":
                value = counted(channel)
            found |= _registers_with(register, (value - register.offset) / register.slope)
        return found

    return hardware.add_modbus(options.line, options.unit_id, words, sensor.name)


def _registers_with(register: ModbusRegister, number: float) -> Words:
    """The words of a number, with hundredths where it has a scale factor and as far as it fits."""
    found: Words = {}
    if register.scale_address is not None:
        most = limits(register.type)[1]
        scale = next(
            (each for each in range(-2, SCALE_LIMIT) if abs(number) <= most * 10.0**each), SCALE_LIMIT
        )
        (word,) = encode(scale, "s16", byte_order=register.byte_order)
        found[register.table, register.scale_address] = word
        number /= 10.0**scale
    for at, word in enumerate(encode(number, register.type, register.word_order, register.byte_order)):
        found[register.table, register.address + at] = word
    return found


TYPE = DriverType(
    "modbus",
    ModbusOptions,
    modbus_channels,
    0.1,
    Modbus,
    claims,
    concerns,
    settle,
    emulate,
    # Its own reads, one request more, and the wait for the line.
    longest_read_s=35.0,
    # Noise on a line is over by then.
    retry_after_s=0.1,
    shaping=lambda options, quantity: [
        options,
        *(one for one in options.registers if one.quantity.name == quantity),
    ],
    # What changes no value; which register it is may.
    wiring=frozenset(
        {"device", "host", "port", "rtu_over_tcp", "baudrate", "parity", "stop_bits", "unit_id", "timeout_s"}
        | {"any_ids", "gap", "largest_read", "registers", "quantity"}
    ),
)
