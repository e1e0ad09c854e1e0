"""gpsd's lines: scripted, over TCP, and from the real gpsd where it is installed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from drivers.boards.pi import PiBoard
from drivers.gpsd import Fix, Gpsd, GpsdOptions, distance_m, parse_report, report_fix
from drivers.interface import BoardError, LineStream, ReadError
from drivers.line_stream import TcpLines

TPV = b'{"class":"TPV","mode":3,"time":"2026-03-01T00:00:0%d.000Z","lat":27.7%d,"lon":85.5,"altMSL":2101.5}\n'


def test_only_tpv_reports_count() -> None:
    assert parse_report(b'{"class":"SKY","satellites":[]}') is None
    assert parse_report(b"[]") is None
    with pytest.raises(ReadError, match="isn't JSON"):
        parse_report(b'{"class":"TPV"')


@pytest.mark.parametrize(
    ("report", "fix"),
    [
        ({"mode": 3, "lat": 1.5, "lon": 2.5, "altMSL": 10.0, "alt": 9.0}, Fix(1.5, 2.5, 10.0)),
        ({"mode": 3, "lat": 1.5, "lon": 2.5, "alt": 9}, Fix(1.5, 2.5, 9.0)),
        ({"mode": 2, "lat": 1, "lon": 2, "altMSL": 10.0}, Fix(1.0, 2.0, None)),
    ],
)
def test_fixes(report: dict[str, object], fix: Fix) -> None:
    assert report_fix(report) == fix


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
        report_fix(report)


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
        position = gpsd.read()[0].position
        assert position is not None
        latitudes.append(position[0])
        script.seconds += 60
    assert latitudes == [27.71, 27.72, 27.73]
    assert script.closed == 3


def test_a_position_to_measure_from_is_needed() -> None:
    gpsd = Gpsd(Script(), GpsdOptions())  # type: ignore[arg-type] # the part of a board it uses
    with pytest.raises(BoardError, match="latitude and longitude"):
        gpsd.start()


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def test_a_refused_connection_is_a_read_error_that_names_it() -> None:
    port = free_port()
    gpsd = Gpsd(PiBoard(), GpsdOptions(port=port, latitude=0.0, longitude=0.0))
    gpsd.start()
    with pytest.raises(ReadError, match=f"nothing answers at 127.0.0.1:{port}"):
        gpsd.read()


def test_lines_over_tcp_survive_a_timeout_in_their_middle() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        lines = TcpLines("127.0.0.1", server.getsockname()[1])
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
        lines = TcpLines("127.0.0.1", server.getsockname()[1])
        peer, _ = server.accept()
        sender = threading.Thread(target=peer.sendall, args=(b"x" * 100_000,))
        sender.start()
        with pytest.raises(OSError, match="a line of over"):
            lines.readline(5)
        lines.close()
        peer.close()
        sender.join(10)


def nmea(body: str) -> bytes:
    checksum = 0
    for byte in body.encode():
        checksum ^= byte
    return f"${body}*{checksum:02X}\r\n".encode()


def fixes(connection: socket.socket, stopped: threading.Event) -> None:
    """One position, five times a second, as NMEA 0183, until the other side or the test has enough."""
    fix = "2742.0000,N,08530.0600,E"
    while not stopped.wait(0.2):
        now = time.gmtime()
        utc, date = time.strftime("%H%M%S", now), time.strftime("%d%m%y", now)
        try:
            connection.sendall(
                nmea(f"GPGGA,{utc}.00,{fix},1,08,0.9,2101.5,M,-40.0,M,,")
                + nmea("GPGSA,A,3,01,02,03,04,05,06,07,08,,,,,1.5,0.9,1.2")
                + nmea(f"GPRMC,{utc}.00,A,{fix},0.0,0.0,{date},,,A")
            )
        except OSError:
            return


@contextmanager
def receiver() -> Iterator[int]:
    """A GPS receiver on a TCP port, for as many connections as gpsd makes, one after the other."""
    stopped = threading.Event()
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.1)

    def serve() -> None:
        while not stopped.is_set():
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            with connection:
                fixes(connection, stopped)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield int(server.getsockname()[1])
    finally:
        stopped.set()
        thread.join(10)
        server.close()


@pytest.mark.skipif(shutil.which("gpsd", path="/usr/sbin:/usr/bin") is None, reason="gpsd isn't installed")
def test_a_real_gpsd() -> None:
    port = free_port()
    with receiver() as nmea_port:
        gpsd = subprocess.Popen(
            ["/usr/sbin/gpsd", "-N", "-n", "-S", str(port), f"tcp://127.0.0.1:{nmea_port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            sensor = Gpsd(PiBoard(), GpsdOptions(port=port, latitude=27.7, longitude=85.5))
            sensor.start()
            deadline = time.monotonic() + 30
            while True:
                try:
                    measurement = sensor.read()[0]
                    break
                except ReadError:
                    assert time.monotonic() < deadline, "gpsd gave no fix"
                    threading.Event().wait(0.1)
            sensor.stop()
        finally:
            gpsd.terminate()
            gpsd.wait(10)
    assert measurement.position == pytest.approx((27.7, 85.501, 2101.5), abs=1e-6)
    assert measurement.value == pytest.approx(distance_m(27.7, 85.5, 27.7, 85.501), abs=0.01)
