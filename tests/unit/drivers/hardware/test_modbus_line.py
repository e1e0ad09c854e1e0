"""Lines against another project's devices: over a pair of pseudo-terminals, and over TCP."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from pymodbus.framer import FramerRTU

from drivers.boards.pi import PiBoard
from drivers.emulation.parts import EmulatedModbus, crc16, respond
from drivers.hardware.modbus_line import ModbusLine, ModbusLines, open_port, rtu_frames
from drivers.interface import ByteStream, ChecksumError, ModbusPort, ReadError, SilentError
from tests.support.modbus_simulator import UNIT, Cable, simulated
from tests.support.servers import eventually

SHORT_S = 0.3
BROKEN_S = 2.0
"""Where a part of an answer comes, and not the rest."""
LONG_S = 20.0
"""Only where an answer comes: a busy machine may take its time."""
WORDS = tuple(range(100))
GOOD = bytes.fromhex("0000 0005 01 03 02 002a")
"""One register that holds 42, after the transaction's id."""


@pytest.fixture
def cable() -> Iterator[Cable]:
    with closing(Cable()) as cable:
        yield cable


@pytest.fixture
def board() -> Iterator[PiBoard]:
    with closing(PiBoard()) as board:
        yield board


def serial(path: str) -> ModbusPort:
    # A pseudo-terminal has no parity.
    return ModbusPort(path, parity="none")


def test_registers_over_a_serial_line(board: PiBoard, cable: Cable) -> None:
    line = board.modbus(serial(cable.ends[0]))
    with simulated(cable.ends[1]) as simulator:
        assert line.read_registers(UNIT, "holding", 0, 3, LONG_S) == (0, 1, 2)
        assert line.read_registers(UNIT, "input", 98, 2, LONG_S) == (2, 1)
        simulator.set([0xFFFF] * 60)
        # Longer than what a pseudo-terminal hands over at once on a busy machine.
        assert line.read_registers(UNIT, "holding", 0, 60, LONG_S) == (0xFFFF,) * 60


def test_registers_over_tcp(board: PiBoard, free_port: int) -> None:
    line = board.modbus(ModbusPort(None, "127.0.0.1", free_port))
    with pytest.raises(SilentError, match=r"127\.0\.0\.1:\d+: nothing listens there"):
        line.read_registers(UNIT, "holding", 0, 3, SHORT_S)
    for _ in range(2):
        # It ends the connection when it is killed; the second one is found by the same line.
        with simulated(str(free_port)):
            assert line.read_registers(UNIT, "holding", 0, 3, LONG_S) == (0, 1, 2)
            assert line.read_registers(UNIT, "input", 98, 2, LONG_S) == (2, 1)
        with pytest.raises(SilentError):
            line.read_registers(UNIT, "holding", 0, 3, SHORT_S)


def test_a_device_that_is_absent_and_one_that_refuses(board: PiBoard, cable: Cable) -> None:
    line = board.modbus(serial(cable.ends[0]))
    with simulated(cable.ends[1]):
        with pytest.raises(SilentError, match=r"unit 2 at /dev/\S+ doesn't answer within 0.3 s: .*A and B"):
            line.read_registers(2, "holding", 0, 3, SHORT_S)
        with pytest.raises(
            ReadError, match=r"holding registers 98 to 100 with exception 2: .*gap = 0"
        ) as caught:
            line.read_registers(UNIT, "holding", 98, 3, LONG_S)
        assert not isinstance(caught.value, SilentError)
        assert line.read_registers(UNIT, "holding", 7, 1, LONG_S) == (7,)


def test_damaged_answers(board: PiBoard, cable: Cable) -> None:
    line = board.modbus(serial(cable.ends[0]))
    with simulated(cable.ends[1]):
        cable.damage = lambda answer: answer[:-3] + bytes([answer[-3] ^ 1]) + answer[-2:]
        with pytest.raises(ChecksumError, match=r"damaged \(CRC\)"):
            line.read_registers(UNIT, "holding", 0, 3, LONG_S)
        cable.damage = lambda answer: answer[:-1]
        with pytest.raises(ChecksumError, match="broke off after 10 bytes"):
            line.read_registers(UNIT, "holding", 0, 3, BROKEN_S)
        cable.damage = lambda answer: answer
        assert line.read_registers(UNIT, "holding", 0, 3, LONG_S) == (0, 1, 2)


@pytest.mark.parametrize("stray", [b"\x00", b"\xff", b"\x00\xff", b"\x01", b"\x01\x03", b"\x05\x03\x02"])
def test_stray_bytes_about_an_answer(board: PiBoard, cable: Cable, stray: bytes) -> None:
    """A transceiver that is switched makes a byte or two; units are numbers of functions, too."""
    line = board.modbus(serial(cable.ends[0]))
    with simulated(cable.ends[1]):
        cable.damage = lambda answer: stray + answer + stray
        assert line.read_registers(UNIT, "holding", 0, 3, LONG_S) == (0, 1, 2)
        with pytest.raises(ReadError, match="exception 2"):
            line.read_registers(UNIT, "holding", 98, 3, LONG_S)
        assert line.read_registers(UNIT, "input", 98, 2, LONG_S) == (2, 1)
        cable.echoes = True
        assert line.read_registers(UNIT, "holding", 5, 2, LONG_S) == (5, 6)


class Scripted:
    """Answers each request by a function of it."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._received = b""

    def write(self, sent: bytes) -> None:
        self._received = self._answer(sent)

    def read(self, timeout_s: float) -> bytes:
        # A byte at a time, as it may come.
        received, self._received = self._received[:1], self._received[1:]
        return received

    def close(self) -> None:
        pass


def rtu(frame: bytes) -> bytes:
    return frame + crc16(frame).to_bytes(2, "little")


def scripted(port: ModbusPort, answer: Callable[[bytes], bytes]) -> ModbusLine:
    return ModbusLine(port, lambda port, timeout_s: Scripted(answer))


SERIAL = ModbusPort("/dev/ttyUSB0")


def test_stray_bytes_before_any_units_answer() -> None:
    for unit in range(1, 248):
        for stray in (b"\x00", b"\xff", bytes([unit]), bytes([unit, 3]), b"\x03"):
            answer = stray + rtu(bytes([unit, 3, 2, 0, 42]))
            line = scripted(SERIAL, lambda sent, answer=answer: answer)  # type: ignore[misc]
            assert line.read_registers(unit, "holding", 0, 1, SHORT_S) == (42,)


@given(
    st.integers(1, 247),
    st.binary(max_size=30),
    st.binary(max_size=30),
    st.lists(st.integers(0, 65535), max_size=9),
)
def test_an_answer_is_found_whatever_is_about_it(
    unit: int, before: bytes, after: bytes, words: list[int]
) -> None:
    answer = rtu(bytes([unit, 4, 2 * len(words)]) + b"".join(word.to_bytes(2, "big") for word in words))
    found = list(rtu_frames(before + answer + after, FramerRTU.compute_CRC))
    # What looks like a frame by chance, with its CRC, hypothesis doesn't find.
    assert [(each.unit_id, each.words("input", len(words))) for each in found] == [(unit, tuple(words))]


def test_an_answer_of_another_unit_is_said_to_be_one() -> None:
    answer = rtu(bytes.fromhex("0703 02 002a"))
    with pytest.raises(ReadError, match=r"unit 7 answers in place of unit 1 .*any_ids = true") as caught:
        scripted(SERIAL, lambda sent: answer).read_registers(1, "holding", 0, 1, SHORT_S)
    assert type(caught.value) is ReadError
    lenient = replace(SERIAL, any_ids=True)
    assert scripted(lenient, lambda sent: answer).read_registers(1, "holding", 0, 1, SHORT_S) == (42,)


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (lambda sent: b"\xab\xcd" + GOOD, "transaction 43981 of unit 1"),
        (lambda sent: sent[:2] + GOOD[:4] + b"\xff" + GOOD[5:], "transaction 1 of unit 255"),
        (lambda sent: b"\x00\x02" + GOOD[:4] + b"\x00" + GOOD[5:], "transaction 2 of unit 0"),
    ],
)
def test_tcp_answers_with_other_ids_are_said_to_be_such(answer: Callable[[bytes], bytes], what: str) -> None:
    port = ModbusPort(None, "plant")
    with pytest.raises(
        ReadError, match=f"answers as {what}, not as transaction 1 of unit 1: .*any_ids"
    ) as caught:
        scripted(port, answer).read_registers(1, "holding", 0, 1, SHORT_S)
    assert type(caught.value) is ReadError
    assert scripted(replace(port, any_ids=True), answer).read_registers(1, "holding", 0, 1, SHORT_S) == (42,)


@pytest.mark.parametrize("table", ["coil", "discrete"])
def test_single_bits(board: PiBoard, cable: Cable, table: str) -> None:
    line = board.modbus(serial(cable.ends[0]))
    with simulated(cable.ends[1]):
        assert line.read_registers(UNIT, table, 3, 1, LONG_S) == (1,)
        assert line.read_registers(UNIT, table, 0, 11, LONG_S) == (1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0)
        with pytest.raises(ReadError, match=f"{table} registers 98 to 100 with exception 2"):
            line.read_registers(UNIT, table, 98, 3, LONG_S)


def test_what_comes_too_late_is_no_later_answer(board: PiBoard, cable: Cable) -> None:
    """An answer of the right form, of an earlier request: dropped before the next one is sent."""
    line = board.modbus(serial(cable.ends[0]))
    with simulated(cable.ends[1]):
        late: list[bytes] = []

        def keep(answer: bytes) -> bytes:
            late.append(answer)
            return b""

        cable.damage = keep
        with pytest.raises(SilentError):
            line.read_registers(UNIT, "holding", 1, 1, SHORT_S)
        eventually(lambda: late)
        cable.damage = lambda answer: answer
        os.write(cable._masters[0], b"".join(late))
        assert line.read_registers(UNIT, "holding", 2, 1, LONG_S) == (2,)


def test_a_port_that_isnt_there_or_is_anothers(board: PiBoard, cable: Cable) -> None:
    with pytest.raises(SilentError, match="/dev/ttyUSB99: there is no such device"):
        board.modbus(serial("/dev/ttyUSB99")).read_registers(UNIT, "holding", 0, 1, SHORT_S)
    with closing(PiBoard()) as other, simulated(cable.ends[1]):
        other.modbus(serial(cable.ends[0])).read_registers(UNIT, "holding", 0, 1, LONG_S)
        with pytest.raises(SilentError, match="another program has it"):
            board.modbus(serial(cable.ends[0])).read_registers(UNIT, "holding", 0, 1, SHORT_S)


def test_many_sensors_on_one_line_take_turns(board: PiBoard, cable: Cable) -> None:
    """Their frames would otherwise mix, and no answer be right."""
    wrong: list[object] = []
    start = threading.Barrier(4)

    def read(first: int) -> None:
        start.wait()
        for _ in range(10):
            words = board.modbus(serial(cable.ends[0])).read_registers(UNIT, "holding", first, 5, LONG_S)
            if words != WORDS[first : first + 5]:
                wrong.append(words)

    with simulated(cable.ends[1]):
        threads = [threading.Thread(target=read, args=(first,)) for first in (0, 20, 40, 60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
            assert not thread.is_alive()
    assert not wrong
    assert len(cable.requests) == 40 * 8


@contextmanager
def tcp_device(*answers: bytes) -> Iterator[ModbusPort]:
    """A TCP server that sends these bytes, one for each request, whatever is requested."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            left = list(answers)
            while left:
                connection, _ = server.accept()
                with connection:
                    while left and (request := connection.recv(260)):
                        connection.sendall(request[:2] + left.pop(0))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield ModbusPort(None, "127.0.0.1", server.getsockname()[1])
        thread.join(LONG_S)


def test_tcp_answers_that_are_none(board: PiBoard) -> None:
    with tcp_device(
        bytes.fromhex("0001 0005 01 03 02 002a"),  # another protocol
        bytes.fromhex("0000 0007 01 03 04 002a 0007"),  # two registers
        bytes.fromhex("0000 0003 01 83 0b"),
        GOOD,
    ) as port:
        line = board.modbus(port)
        with pytest.raises(ChecksumError, match="broke off"):
            line.read_registers(UNIT, "holding", 0, 1, BROKEN_S)
        with pytest.raises(ChecksumError, match="2 registers instead of 1"):
            line.read_registers(UNIT, "holding", 0, 1, LONG_S)
        with pytest.raises(SilentError, match="exception 11: it doesn't answer the gateway"):
            line.read_registers(UNIT, "holding", 0, 1, LONG_S)
        assert line.read_registers(UNIT, "holding", 0, 1, LONG_S) == (42,)


def test_a_device_that_ends_each_connection_costs_no_reading(board: PiBoard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Semaphore(0)

        def serve() -> None:
            for _ in range(3):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(connection.recv(260)[:2] + GOOD)
                ended.release()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        line = board.modbus(ModbusPort(None, "127.0.0.1", server.getsockname()[1]))
        for _ in range(3):
            assert line.read_registers(UNIT, "holding", 0, 1, LONG_S) == (42,)
            assert ended.acquire(timeout=LONG_S)
        thread.join(LONG_S)


def test_an_answer_to_another_request_is_passed_over() -> None:
    def answers(sent: bytes) -> bytes:
        earlier = int.from_bytes(sent[:2], "big") + 9
        return earlier.to_bytes(2, "big") + GOOD[:-1] + b"\x07" + sent[:2] + GOOD

    line = scripted(ModbusPort(None, "plant"), answers)
    assert line.read_registers(UNIT, "holding", 0, 1, LONG_S) == (42,)


def test_an_answer_of_another_function_is_none() -> None:
    # To a request of input registers comes an answer of holding registers, or of a register that was written.
    for answer in (GOOD, bytes.fromhex("0000 0006 01 06 0000 002a")):
        with tcp_device(answer) as port, pytest.raises(ChecksumError, match=r"function \d, not 4"):
            ModbusLine(port, open_port).read_registers(UNIT, "input", 0, 1, LONG_S)


@pytest.mark.parametrize("host", ["plc..lan", "x" * 70])
def test_a_host_that_can_be_none_is_an_error(host: str) -> None:
    with pytest.raises(SilentError, match="no name of a host"):
        ModbusLine(ModbusPort(None, host), open_port).read_registers(UNIT, "input", 0, 1, SHORT_S)


def test_a_connection_is_kept_and_made_anew_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[ByteStream] = []
    devices = EmulatedModbus()
    port = ModbusPort("/dev/ttyUSB0")
    remove = devices.add(port, 1, lambda: {("holding", 0): 7}, lambda: False)

    def connect(port: ModbusPort, timeout_s: float) -> ByteStream:
        opened.append(devices.connect(port, timeout_s))
        return opened[-1]

    line = ModbusLines(connect).line(port)
    for _ in range(3):
        assert line.read_registers(1, "holding", 0, 1, SHORT_S) == (7,)
    assert len(opened) == 1

    def unplugged(timeout_s: float) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(opened[0], "read", unplugged)
    with pytest.raises(SilentError, match="the adapter was unplugged"):
        line.read_registers(1, "holding", 0, 1, SHORT_S)
    assert line.read_registers(1, "holding", 0, 1, SHORT_S) == (7,)
    assert len(opened) == 2
    remove()
    line.close()
    with pytest.raises(SilentError, match="there is no such device"):
        line.read_registers(1, "holding", 0, 1, SHORT_S)


@pytest.mark.parametrize(
    ("port", "connections"), [(ModbusPort("/dev/ttyUSB0"), 1), (ModbusPort(None, "plant"), 2)]
)
def test_a_tcp_connection_ends_with_a_request_unanswered(port: ModbusPort, connections: int) -> None:
    """Its answer may still come, and a converter's frames have no number that would show it."""
    opened: list[ModbusPort] = []
    devices = EmulatedModbus()
    devices.add(port, 1, lambda: {("holding", 0): 7}, lambda: False)

    def connect(port: ModbusPort, timeout_s: float) -> ByteStream:
        opened.append(port)
        return devices.connect(port, timeout_s)

    line = ModbusLine(port, connect)
    with pytest.raises(SilentError):
        line.read_registers(2, "holding", 0, 1, SHORT_S)
    assert line.read_registers(1, "holding", 0, 1, SHORT_S) == (7,)
    with pytest.raises(ReadError, match="exception 2"):
        line.read_registers(1, "holding", 9, 1, SHORT_S)
    assert line.read_registers(1, "holding", 0, 1, SHORT_S) == (7,)
    assert len(opened) == connections


def test_a_line_that_is_never_free_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivers.hardware.modbus_line._LONGEST_WAIT_S", 0.05)
    line = ModbusLine(ModbusPort("/dev/ttyUSB0"), EmulatedModbus().connect)
    assert line._lock.acquire()
    with pytest.raises(ReadError, match="busy with other sensors' requests"):
        line.read_registers(1, "holding", 0, 1, SHORT_S)


def test_a_line_that_sends_without_end_is_given_up() -> None:
    class Noise(Scripted):
        """Never quiet, never a frame."""

        def read(self, timeout_s: float) -> bytes:
            return b"\x00"

    line = ModbusLine(ModbusPort(None, "plant"), lambda port, timeout_s: Noise(lambda sent: b""))
    begin_s = time.monotonic()
    with pytest.raises(ChecksumError):
        line.read_registers(1, "holding", 0, 1, SHORT_S)
    assert time.monotonic() - begin_s < LONG_S


def test_what_the_emulated_device_refuses() -> None:
    assert respond(bytes.fromhex("06 0000 0001"), {("holding", 0): 1}) == b"\x86\x01"
    assert respond(bytes.fromhex("03 0001 0001"), {("holding", 0): 1}) == b"\x83\x02"
    assert respond(bytes.fromhex("02 0000 0009"), {("discrete", 8): 1}) == bytes.fromhex("02 02 0001")
    assert respond(bytes.fromhex("03 0000 0002"), {("holding", 0): 258}) == bytes.fromhex("03 04 0102 0000")
