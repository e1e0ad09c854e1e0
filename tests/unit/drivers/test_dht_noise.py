"""A DHT11's data line as it is received, through the library's decoder: no wrong value goes unnoticed."""

from __future__ import annotations

from array import array
from collections import Counter

import pytest
from hypothesis import example, given, strategies as st

from drivers.emulation.board import dht11_frame, frame_edges
from drivers.interface import ChecksumError, DriverError, ReadError
from tests.unit.drivers.dht_lines import bits_of, level_changes, polled
from tests.unit.drivers.test_dht11 import Line, started, values

TENTHS = st.integers(-200, 600), st.integers(1, 1000)


def outcome(line: Line, edges: array[int]) -> tuple[float, ...] | type[ReadError]:
    line.answer = edges
    try:
        return values(line.sensor)
    except ChecksumError:
        return ChecksumError
    except ReadError:
        return ReadError


def new_line() -> Line:
    return started()[0]


# A Pi's polls are some µs apart; the datasheets' own times are 50, 26 to 28 and 70 µs; in the widest of them
# 48 to 55, 22 to 30 and 68 to 75.
@example(1, 1, 14, 48, 23, 68)
@given(*TENTHS, st.integers(1, 15), st.integers(48, 55), st.integers(22, 30), st.integers(68, 75))
def test_times_within_the_datasheets_tolerance_decode_exactly(
    temperature: int, humidity: int, poll_us: int, low_us: int, zero_us: int, one_us: int
) -> None:
    frame = dht11_frame(temperature / 10, humidity / 10)
    edges = polled(level_changes(frame, low_us, zero_us, one_us), poll_us)
    assert len(edges) == 81
    assert outcome(new_line(), edges) == (temperature / 10, humidity / 10)


@given(*TENTHS, st.lists(st.integers(-15, 15), min_size=81, max_size=81))
def test_jitter_of_each_pulse_decodes_exactly(temperature: int, humidity: int, jitter: list[int]) -> None:
    edges = frame_edges(dht11_frame(temperature / 10, humidity / 10))
    late = array("H", (duration + off for duration, off in zip(edges, jitter, strict=True)))
    close = sum(49 <= high <= 53 for high in late[1:80:2])
    expected = (temperature / 10, humidity / 10) if close < 2 else ReadError
    assert outcome(new_line(), late) == expected


@given(*TENTHS, st.integers(0, 39), st.integers(49, 53))
def test_one_bit_too_close_to_call_is_right_or_a_checksum_error(
    temperature: int, humidity: int, bit: int, high_us: int
) -> None:
    frame = dht11_frame(temperature / 10, humidity / 10)
    edges = frame_edges(frame)
    edges[2 * bit + 1] = high_us
    taken = high_us > 51
    expected = (temperature / 10, humidity / 10) if taken == bits_of(frame)[bit] else ChecksumError
    assert outcome(new_line(), edges) == expected


def test_two_bits_too_close_to_call_are_never_believed() -> None:
    # 0 and 1 at the same place of two bytes, each taken for the other: the sum stays right.
    frame = bytes([52, 0, 36, 0, 88])
    edges = frame_edges(frame)
    for bit, high_us in ((3, 49), (19, 53)):
        edges[2 * bit + 1] = high_us
    assert outcome(new_line(), edges) is ReadError
    # The same two bits, clearly wrong, pass the sum: 36 % and 52 °C.
    clearly = frame_edges(bytes([36, 0, 52, 0, 88]))
    assert outcome(new_line(), clearly) == (52.0, 36.0)


FRAMES = [(21.7, 55.0), (-6.3, 72.8), (0.0, 90.0), (35.5, 20.1), (50.0, 33.3), (12.8, 64.0)]


def test_a_poll_that_stalls_never_gives_a_wrong_value() -> None:
    """Another program has the processor for a while, from half a bit's length to a whole frame's."""
    found: Counter[str] = Counter()
    for weather in FRAMES:
        line = new_line()
        changes = level_changes(dht11_frame(*weather))
        for length_us in (30, 60, 100, 150, 400, 4000):
            for start_us in range(0, changes[-1], 97):
                got = outcome(line, polled(changes, 3, [(start_us, length_us)]))
                assert isinstance(got, type) or got == weather
                found["right" if isinstance(got, tuple) else got.__name__] += 1
    assert set(found) == {"right", "ChecksumError", "ReadError"}


@pytest.mark.parametrize("weather", FRAMES)
def test_an_edge_too_many_or_too_few_is_never_a_value(weather: tuple[float, float]) -> None:
    """Then highs are taken for lows; all lows are alike, so the frame is all zeros and its sum is right."""
    edges = frame_edges(dht11_frame(*weather))
    for slipped in (array("H", [80, *edges]), array("H", [*edges[1:], 50])):
        assert outcome(new_line(), slipped) is ReadError
    # The newer datasheet's lows are 54 µs: all ones.
    high_lows = frame_edges(dht11_frame(*weather))
    for at in range(0, 81, 2):
        high_lows[at] = 54
    assert outcome(new_line(), array("H", [80, *high_lows])) is ChecksumError


@pytest.mark.parametrize("missing", range(0, 80, 2))
def test_a_missing_pulse_is_a_read_error_or_a_checksum_error(missing: int) -> None:
    """A bit's high pulse is never seen: the lows around it are one."""
    for weather in FRAMES:
        edges = list(frame_edges(dht11_frame(*weather)))
        shorter = [*edges[:missing], sum(edges[missing : missing + 3]), *edges[missing + 3 :]]
        assert len(shorter) == 79
        assert outcome(new_line(), array("H", shorter)) is ReadError
        # With the response's pulses before it there are 81 again, and the response counts as a bit.
        assert outcome(new_line(), array("H", [80, 80, *shorter])) in (ReadError, ChecksumError)


@pytest.mark.parametrize("duration_us", [0, 1, 27, 50, 51, 52, 70, 65535])
def test_81_equal_pulses_are_never_a_value(duration_us: int) -> None:
    assert outcome(new_line(), array("H", [duration_us] * 81)) in (ReadError, ChecksumError)


@given(*TENTHS, *TENTHS)
def test_two_frames_glued_together_are_the_last_one(
    temperature: int, humidity: int, other_temperature: int, other_humidity: int
) -> None:
    first = level_changes(dht11_frame(other_temperature / 10, other_humidity / 10))
    second = level_changes(dht11_frame(temperature / 10, humidity / 10))
    glued = polled([*first, *(first[-1] + change for change in second)])
    assert outcome(new_line(), glued) == (temperature / 10, humidity / 10)


def dht22_frame(temperature_tenths: int, humidity_tenths: int) -> bytes:
    sign = 0x80 if temperature_tenths < 0 else 0
    high, low = divmod(abs(temperature_tenths), 256)
    body = bytes([*divmod(humidity_tenths, 256), high | sign, low])
    return body + bytes([sum(body) & 0xFF])


def test_a_dht22_gives_nothing_that_passes_for_good_once_it_is_known() -> None:
    """Its frames of 0.4 % of all weathers could be a DHT11's, at a humidity that no DHT11 is made for."""
    line = new_line()
    passed = 0
    for temperature in range(-400, 800, 13):
        for humidity in range(0, 1001, 7):
            got = outcome(new_line(), frame_edges(dht22_frame(temperature, humidity)))
            if isinstance(got, tuple):
                passed += 1
                assert got[1] < 4.0
            assert outcome(line, frame_edges(dht22_frame(temperature, humidity))) is ReadError
    assert passed == 48
    assert line.sensor.diagnose() == ("the DHT11 on pin 4 sends a DHT22's frames: only a DHT11 is supported",)
    # A DHT11 in its place is believed at once.
    assert outcome(line, frame_edges(dht11_frame(21.7, 55.0))) == (21.7, 55.0)
    assert line.sensor.diagnose() == ()


@given(st.lists(st.one_of(st.integers(0, 100), st.integers(0, 65535)), max_size=200))
def test_any_noise_is_a_driver_error_or_a_whole_frame(durations: list[int]) -> None:
    line = new_line()
    line.answer = array("H", durations)
    try:
        got = values(line.sensor)
    except DriverError:
        return
    highs = durations[1:80:2]
    body = [sum((high > 51) << 7 - at for at, high in enumerate(highs[8 * n : 8 * n + 8])) for n in range(5)]
    assert sum(body[:4]) & 0xFF == body[4]
    assert any(body)
    assert sum(49 <= high <= 53 for high in highs) < 2
    assert got[1] == body[0] + body[1] / 10


# How old an answer is.


def reasons(line: Line) -> set[tuple[str, ...]]:
    return {measurement.reasons for measurement in line.sensor.read()}


def test_an_answer_older_than_the_air_takes_to_change_the_sensor_is_warming_up() -> None:
    line = new_line()
    line.answer = frame_edges(dht11_frame(21.7, 55.0))
    for now_s, expected in ((10.0, ()), (20.0, ()), (30.1, ("WARMING_UP",)), (32.1, ())):
        line.now_s = now_s
        assert reasons(line) == {expected}


def test_priming_makes_an_answer_young() -> None:
    line = new_line()
    line.answer = frame_edges(dht11_frame(21.7, 55.0))
    for minute in range(1, 4):
        line.now_s = 60.0 * minute - 2
        line.sensor.prime()
        line.now_s = 60.0 * minute
        assert reasons(line) == {()}
    assert line.requests == 6


def test_a_failed_request_began_a_conversion_too() -> None:
    line = new_line()
    line.now_s = 60.0
    with pytest.raises(ReadError):
        line.sensor.read()
    line.now_s = 62.0
    line.answer = frame_edges(dht11_frame(21.7, 55.0))
    assert reasons(line) == {()}


# Messages for the installer at the mast.


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ([], "the DHT11 on pin 4 doesn't answer (0 of 81 pulses): is it powered"),
        (
            [50] * 40,
            "the DHT11 on pin 4 is received badly (A full buffer was not returned. Try again.; 40 of 81",
        ),
        ([51] * 81, "the DHT11 on pin 4 is received badly (the frame is all zeros"),
    ],
)
def test_wiring_mistakes_are_named(edges: list[int], words: str) -> None:
    line = new_line()
    assert line.sensor.diagnose() == ()
    assert outcome(line, array("H", edges)) is ReadError
    (sentence,) = line.sensor.diagnose()
    assert sentence.startswith(words)
    line.sensor.stop()
    assert line.sensor.diagnose() == ()
