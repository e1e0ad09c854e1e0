"""gpsd's lines: scripted, over TCP, and from the real gpsd where it is installed."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from cloud.local.process import free_port
from drivers.boards.pi import PiBoard
from drivers.gpsd import Gpsd, GpsdOptions, distance_m, parse_report, report_position
from drivers.hardware.lines import SocketLines
from drivers.interface import BoardError, LineStream, Measurement, Position, ReadError
from tests.unit.drivers.nmea import second, second_without_fix

TPV = b'{"class":"TPV","mode":3,"time":"2026-03-01T00:00:0%d.000Z","lat":27.7%d,"lon":85.5,"altMSL":2101.5}\n'


def test_only_tpv_reports_count() -> None:
    assert parse_report(b'{"class":"SKY","satellites":[]}') is None
    assert parse_report(b"[]") is None
    with pytest.raises(ReadError, match="isn't JSON"):
        parse_report(b'{"class":"TPV"')


@pytest.mark.parametrize(
    ("report", "position"),
    [
        ({"mode": 3, "lat": 1.5, "lon": 2.5, "altMSL": 10.0, "alt": 9.0}, (1.5, 2.5, 10.0)),
        ({"mode": 3, "lat": 1.5, "lon": 2.5, "alt": 9}, (1.5, 2.5, 9.0)),
        ({"mode": 2, "lat": 1, "lon": 2, "altMSL": 10.0}, (1.0, 2.0, None)),
    ],
)
def test_fixes(report: dict[str, object], position: Position) -> None:
    assert report_position(report) == position


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"mode": 0},
        {"mode": 1, "lat": 1.0, "lon": 2.0},
        {"mode": 3, "lat": 1.0},
        {"mode": 3, "lat": float("nan"), "lon": 2.0},
        {"mode": 3, "lat": "1.0", "lon": 2.0},
        {"mode": 3, "lat": True, "lon": 2.0},
    ],
)
def test_no_fix(report: dict[str, object]) -> None:
    with pytest.raises(ReadError, match="no fix"):
        report_position(report)


class Script:
    """A board and its gpsd at once: each connection has its own lines; b"" closes it, None is silence."""

    def __init__(self, *connections: list[bytes | None]) -> None:
        self.connections = list(connections)
        self.lines: list[bytes | None] = []
        self.sent: list[bytes] = []
        self.seconds = 0.0
        self.closed = 0

    def connect_gpsd(self, host: str, port: int) -> LineStream:
        assert (host, port) == ("127.0.0.1", 2947)
        self.lines = self.connections.pop(0)
        return self

    def monotonic(self) -> float:
        return self.seconds

    def write(self, line: bytes) -> None:
        self.sent.append(line)

    def readline(self, timeout_s: float) -> bytes:
        line = self.lines.pop(0) if self.lines else None
        if line is None:
            self.seconds += timeout_s
            raise TimeoutError
        return line

    def close(self) -> None:
        self.closed += 1


def driver(script: Script) -> Gpsd:
    gpsd = Gpsd(script, GpsdOptions(latitude=27.7, longitude=85.5))  # type: ignore[arg-type] # part of a board
    gpsd.start()
    return gpsd


def test_the_newest_report_wins_and_is_not_read_twice() -> None:
    script = Script([b'{"class":"VERSION"}\n', TPV % (1, 1), b'{"class":"SKY"}\n', TPV % (2, 2), None, None])
    gpsd = driver(script)
    measurement = gpsd.read()[0]
    assert script.sent == [b'?WATCH={"enable":true,"json":true}\n']
    assert measurement.position == (27.72, 85.5, 2101.5)
    assert measurement.value == measurement.raw == distance_m(27.7, 85.5, 27.72, 85.5)
    with pytest.raises(ReadError, match="no new report"):
        gpsd.read()
    assert script.seconds == 2.5


def tpv(device: str, latitude: float | None) -> bytes:
    fix = '"mode":1' if latitude is None else f'"mode":3,"lat":{latitude},"lon":85.5'
    return b'{"class":"TPV","device":"%s",%s}\n' % (device.encode(), fix.encode())


A, B = "/dev/ttyACM0", "/dev/ttyACM1"


def latitude_of(gpsd: Gpsd) -> float:
    position = gpsd.read()[0].position
    assert position is not None
    return position[0]


@pytest.mark.parametrize(
    "lines",
    [
        [tpv(B, 27.5), tpv(A, None), None],
        [tpv(A, None), tpv(B, 27.5), None],
        [tpv(A, None), tpv(A, None), tpv(B, 27.5), None],
        [tpv(A, None), tpv(B, 27.4), tpv(A, None), tpv(B, 27.5), tpv(A, None), None],
    ],
)
def test_a_receiver_with_a_fix_comes_before_one_without(lines: list[bytes | None]) -> None:
    assert latitude_of(driver(Script(lines))) == 27.5


def test_the_receiver_that_is_read_stays_the_same_while_it_has_a_fix() -> None:
    lines = [tpv(B, 27.5), None, tpv(B, 27.6), tpv(A, 28.5), None, tpv(A, 28.6), tpv(B, 27.7), None]
    lines += [tpv(A, 28.7), tpv(B, None), tpv(A, 28.8), None]
    gpsd = driver(Script(lines))
    assert [latitude_of(gpsd) for _ in range(4)] == [27.5, 27.6, 27.7, 28.8]


def test_the_key_chooses_a_receiver() -> None:
    script = Script([tpv(B, 27.5), tpv(A, 28.5), tpv(B, 27.6), None, tpv(A, 28.6), tpv(B, None), None])
    gpsd = Gpsd(script, GpsdOptions(latitude=27.7, longitude=85.5, receiver=A))  # type: ignore[arg-type]
    gpsd.start()
    assert [latitude_of(gpsd), latitude_of(gpsd)] == [28.5, 28.6]
    gpsd = Gpsd(script, GpsdOptions(latitude=27.7, longitude=85.5, receiver=B))  # type: ignore[arg-type]
    script.connections = [[tpv(A, 28.5), tpv(A, 28.6), None]]
    with pytest.raises(ReadError, match="no new report of /dev/ttyACM1, but of /dev/ttyACM0"):
        gpsd.read()


def test_a_receiver_without_a_fix_doesnt_keep_a_reading_long() -> None:
    script = Script([tpv(A, None), tpv(A, None), tpv(A, None)])
    with pytest.raises(ReadError, match="no fix"):
        driver(script).read()
    assert script.seconds <= 2.5


def test_a_lost_connection_is_a_read_error_and_the_next_read_connects_again() -> None:
    script = Script([TPV % (1, 1), b""], [TPV % (2, 2)])
    gpsd = driver(script)
    with pytest.raises(ReadError, match="closed the connection"):
        gpsd.read()
    assert gpsd.read()[0].position == (27.72, 85.5, 2101.5)


def test_read_seldom_it_connects_for_each_read() -> None:
    script = Script([TPV % (1, 1)], [TPV % (2, 2)], [TPV % (3, 3)])
    gpsd = driver(script)
    latitudes = []
    for _ in range(3):
        latitudes.append(latitude_of(gpsd))
        script.seconds += 60
    assert latitudes == [27.71, 27.72, 27.73]
    assert script.closed == 3


def test_a_position_to_measure_from_is_needed() -> None:
    gpsd = Gpsd(Script(), GpsdOptions())  # type: ignore[arg-type] # the part of a board it uses
    with pytest.raises(BoardError, match="latitude and longitude"):
        gpsd.start()


def test_a_refused_connection_is_a_read_error_that_names_it(nowhere: str) -> None:
    port = int(nowhere.partition(":")[2])
    gpsd = Gpsd(PiBoard(), GpsdOptions(port=port, latitude=0.0, longitude=0.0))
    gpsd.start()
    with pytest.raises(ReadError, match=f"nothing answers at {nowhere}"):
        gpsd.read()


def test_lines_over_tcp_survive_a_timeout_in_their_middle() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        lines = SocketLines.connect("127.0.0.1", server.getsockname()[1])
        peer, _ = server.accept()
        peer.sendall(b"one\ntw")
        assert lines.readline(5) == b"one\n"
        with pytest.raises(TimeoutError):
            lines.readline(0)
        peer.sendall(b"o\n")
        assert lines.readline(5) == b"two\n"
        lines.write(b"hello\n")
        assert peer.recv(100) == b"hello\n"
        peer.close()
        assert lines.readline(5) == b""
        lines.close()


def test_an_endless_line_is_refused() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        lines = SocketLines.connect("127.0.0.1", server.getsockname()[1])
        peer, _ = server.accept()
        sender = threading.Thread(target=peer.sendall, args=(b"x" * 100_000,))
        sender.start()
        with pytest.raises(OSError, match="a line of over"):
            lines.readline(5)
        lines.close()
        peer.close()
        sender.join(10)


class Receiver:
    """A GPS receiver on a TCP port, for as many connections as gpsd makes, one after the other."""

    def __init__(self) -> None:
        self.position: tuple[float, float] | None = (27.7, 85.501)
        self.plugged_in = True
        self._stopped = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(0.1)
        self.port = int(self._server.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._thread.join(10)
        self._server.close()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._server.accept()
            except TimeoutError:
                continue
            with connection:
                self._report(connection)

    def _report(self, connection: socket.socket) -> None:
        """Five times a second, until the other side or the test has enough."""
        while self.plugged_in and not self._stopped.wait(0.2):
            now_s = time.time()
            sent = second(now_s, *self.position) if self.position is not None else second_without_fix(now_s)
            try:
                connection.sendall(sent)
            except OSError:
                return


class RealGpsd:
    """The real gpsd with one receiver, and our sensor on it."""

    def __init__(self, receiver: Receiver) -> None:
        self._source = f"tcp://127.0.0.1:{receiver.port}"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.sensor = Gpsd(PiBoard(), GpsdOptions(port=self.port, latitude=27.7, longitude=85.5))

    def start(self) -> None:
        self._process = subprocess.Popen(
            ["/usr/sbin/gpsd", "-N", "-n", "-S", str(self.port), self._source],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)

    def reading(self, until: Callable[[Measurement | ReadError], bool]) -> Measurement | ReadError:
        """Read until a measurement, or the error in its place, is the one waited for."""
        deadline = time.monotonic() + 30
        while True:
            try:
                got: Measurement | ReadError = self.sensor.read()[0]
            except ReadError as error:
                got = error
                threading.Event().wait(0.1)
            if until(got):
                return got
            assert time.monotonic() < deadline, f"the last one: {got!r}"

    def measured(self, metres: float) -> Measurement:
        """The first measurement that far from the configured position, to a metre."""
        got = self.reading(lambda one: isinstance(one, Measurement) and abs(one.value - metres) < 1)
        assert isinstance(got, Measurement)
        return got

    def missing(self, pattern: str) -> None:
        """The first read error with this message."""
        self.reading(lambda one: isinstance(one, ReadError) and re.search(pattern, str(one)) is not None)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def gpsd(receiver: Receiver) -> Iterator[RealGpsd]:
    gpsd = RealGpsd(receiver)
    gpsd.sensor.start()
    gpsd.start()
    yield gpsd
    gpsd.sensor.stop()
    gpsd.stop()


real_gpsd = pytest.mark.skipif(
    shutil.which("gpsd", path="/usr/sbin:/usr/bin") is None, reason="gpsd isn't installed"
)


@real_gpsd
def test_a_real_gpsd_and_a_receiver_that_is_carried_away(gpsd: RealGpsd, receiver: Receiver) -> None:
    away_m = distance_m(27.7, 85.5, 27.7, 85.501)
    there = gpsd.measured(away_m)
    assert there.position == pytest.approx((27.7, 85.501, 2101.5), abs=1e-6)
    assert there.value == pytest.approx(away_m, abs=0.01)
    receiver.position = (27.71, 85.501)
    assert gpsd.measured(distance_m(27.7, 85.5, 27.71, 85.501)).value > 1100


@real_gpsd
def test_a_receiver_that_is_unplugged_is_never_read_from_memory(gpsd: RealGpsd, receiver: Receiver) -> None:
    receiver.position = (27.7, 85.5)
    gpsd.measured(0)
    receiver.plugged_in = False
    gpsd.missing("gpsd has no new report: is a receiver connected")
    with pytest.raises(ReadError):
        gpsd.sensor.read()
