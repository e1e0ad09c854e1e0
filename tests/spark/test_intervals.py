from __future__ import annotations

from spark_jobs.state.intervals import OpenIntervals

CUP, BARO = ("mast", "cup.wind_speed"), ("mast", "baro.pressure")
M = 60_000_000


def test_a_newer_reading_closes_the_intervals_before_it_and_only_those_of_its_channel() -> None:
    intervals = OpenIntervals(60)
    assert intervals.touch([(CUP, 0), (BARO, 0)], 1.0) == {(CUP, 0): False, (BARO, 0): False}
    assert intervals.over() == []
    assert intervals.touch([(CUP, M)], 2.0) == {(CUP, M): False}
    assert intervals.over() == [(CUP, 0)]
    assert intervals.touch([(CUP, M)], 3.0) == {(CUP, M): False}
    assert intervals.over() == []


def test_what_is_over_is_closed_beside_the_query_if_its_row_is_there_and_at_once_if_not() -> None:
    intervals = OpenIntervals(60)
    assert intervals.touch([(CUP, 0), (CUP, M), (CUP, 2 * M)], 1.0) == {
        (CUP, 0): True,
        (CUP, M): True,
        (CUP, 2 * M): False,
    }
    assert intervals.over() == []
    # Its last readings come with the first ones of the next: its row is there from before.
    assert intervals.touch([(CUP, 2 * M), (CUP, 3 * M)], 2.0) == {(CUP, 2 * M): False, (CUP, 3 * M): False}
    assert intervals.over() == [(CUP, 2 * M)]
    assert intervals.closed([(CUP, 2 * M), (CUP, 3 * M)]) == {(CUP, 2 * M)}
    assert intervals.closed([(CUP, 2 * M)]) == set()


def test_a_late_reading_takes_an_interval_from_those_that_are_being_closed() -> None:
    intervals = OpenIntervals(60)
    intervals.touch([(CUP, 0), (BARO, 0)], 1.0)
    intervals.touch([(CUP, M), (BARO, M)], 2.0)
    assert sorted(intervals.over()) == [(BARO, 0), (CUP, 0)]
    assert intervals.touch([(CUP, 0)], 3.0) == {(CUP, 0): True}
    assert intervals.closed([(CUP, 0), (BARO, 0)]) == {(BARO, 0)}
    assert intervals.over() == []


def test_late_readings_find_their_interval_closed() -> None:
    intervals = OpenIntervals(60)
    intervals.touch([(CUP, 5 * M)], 1.0)
    assert intervals.touch([(CUP, 2 * M)], 2.0) == {(CUP, 2 * M): True}


def test_silence_closes_60_s_after_the_end_and_after_the_last_reading() -> None:
    intervals = OpenIntervals(60)
    intervals.touch([(CUP, 0)], 100.0)
    assert intervals.silent(2 * M - 1, 1000.0) == []
    assert intervals.silent(2 * M, 159.9) == []
    assert intervals.silent(2 * M, 160.0) == [(CUP, 0)]
    assert intervals.silent(2 * M, 1000.0) == []
    # It comes back just then: open as before.
    assert intervals.touch([(CUP, 0)], 161.0) == {(CUP, 0): False}
    assert intervals.closed([(CUP, 0)]) == set()
    assert intervals.silent(2 * M, 221.0) == [(CUP, 0)]


def test_what_was_open_before_a_restart_is_closed_after_it() -> None:
    intervals = OpenIntervals(60)
    intervals.restore(CUP, 3 * M, is_open=False, now_s=0.0)
    intervals.restore(CUP, 2 * M, is_open=True, now_s=0.0)
    assert intervals.touch([(BARO, 0)], 1.0) == {(BARO, 0): False}
    assert intervals.touch([(CUP, 3 * M)], 1.0) == {(CUP, 3 * M): False}
    assert sorted(intervals.all()) == [(BARO, 0), (CUP, 2 * M), (CUP, 3 * M)]
    assert intervals.all() == []
