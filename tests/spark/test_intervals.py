from __future__ import annotations

from spark_jobs.state.intervals import OpenIntervals

CUP, BARO = ("mast", "cup.wind_speed"), ("mast", "baro.pressure")
M = 60_000_000


def test_a_newer_reading_closes_the_intervals_before_it_and_only_those_of_its_channel() -> None:
    intervals = OpenIntervals(60)
    assert intervals.touch([(CUP, 0), (BARO, 0)], 1.0) == {(CUP, 0): False, (BARO, 0): False}
    assert intervals.touch([(CUP, M)], 2.0) == {(CUP, M): False, (CUP, 0): True}
    assert intervals.touch([(CUP, M)], 3.0) == {(CUP, M): False}


def test_late_readings_find_their_interval_closed() -> None:
    intervals = OpenIntervals(60)
    intervals.touch([(CUP, 5 * M)], 1.0)
    assert intervals.touch([(CUP, 2 * M)], 2.0) == {(CUP, 2 * M): True}


def test_silence_closes_60_s_after_the_end_and_after_the_last_reading() -> None:
    intervals = OpenIntervals(60)
    intervals.touch([(CUP, 0)], 100.0)
    assert intervals.silent(2 * M - 1, 1000.0) == {}
    assert intervals.silent(2 * M, 159.9) == {}
    assert intervals.silent(2 * M, 160.0) == {(CUP, 0): True}
    assert intervals.silent(2 * M, 1000.0) == {}


def test_what_was_open_before_a_restart_is_closed_after_it() -> None:
    intervals = OpenIntervals(60)
    intervals.restore(CUP, 3 * M, is_open=False, now_s=0.0)
    intervals.restore(CUP, 2 * M, is_open=True, now_s=0.0)
    assert intervals.touch([(BARO, 0)], 1.0) == {(BARO, 0): False}
    assert intervals.touch([(CUP, 3 * M)], 1.0) == {(CUP, 3 * M): False, (CUP, 2 * M): True}
    assert intervals.all() == {(CUP, 3 * M): True, (BARO, 0): True}
    assert intervals.all() == {}
