"""A file comes back through pulses, codes and frames: row by row, at the right instants."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from drivers.boards.registry import ReplayColumn
from drivers.interface import BoardError, ReadError
from tests.support.masts import NRG_CUP, SECOND_NS, fitted, replayed, sample


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mast.csv"
    path.write_text(text, encoding="utf-8")
    return path


CUP = fitted("cup", "hall-anemometer", pin=17, **NRG_CUP)
CUP_ROWS = "timestamp,v\n" + "".join(
    f"2024-01-11T13:00:0{second}Z,{0.765 * hz + 0.35:.4f}\n" for second, hz in enumerate((3, 0, 7, 2, 5, 4))
)


def test_a_longer_period_gathers_its_rows_pulses(tmp_path: Path) -> None:
    samples = sample(replayed(write(tmp_path, CUP_ROWS), [CUP], {"cup": "v"}), [CUP], {"cup": 2.0})["cup"]
    assert [one.value for one in samples] == [0.765 * hz + 0.35 for hz in (1.5, 4.5, 4.5)]


def test_a_shorter_period_shares_its_rows_pulses_out(tmp_path: Path) -> None:
    samples = sample(replayed(write(tmp_path, CUP_ROWS), [CUP], {"cup": "v"}), [CUP], {"cup": 0.5})["cup"]
    pulses = [round((one.value - 0.35) / 0.765 / 2) for one in samples]
    together = [first + second for first, second in zip(pulses[::2], pulses[1::2], strict=True)]
    assert together == [3, 0, 7, 2, 5, 4]


def test_an_incomplete_last_period_is_not_sampled(tmp_path: Path) -> None:
    board = replayed(write(tmp_path, CUP_ROWS), [CUP], {"cup": "v"})
    samples = sample(board, [CUP], {"cup": 4.0})["cup"]
    assert [one.value for one in samples] == [0.765 * 3 + 0.35]


BARO = fitted("baro", "bp20")
DHT = fitted("dht", "dht11", pin=4)


def test_missing_cells_and_missing_rows_are_read_errors_never_calm_or_old_values(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "timestamp,v,p,t,h\n"
        "2024-01-11T13:00:00Z,2.645,90,5,50\n"
        "2024-01-11T13:00:01Z,,,,\n"
        "2024-01-11T13:00:02Z,1.115,92,7,50\n"
        # Two rows are missing here.
        "2024-01-11T13:00:05Z,1.88,95,10,50\n"
        "2024-01-11T13:00:06Z,NaN,nan,11,50\n"
        "2024-01-11T13:00:07Z,1.115,97,12,50\n",
    )
    columns = {"cup": "v", "baro": "p", "dht.temperature": "t", "dht.humidity": "h"}
    samples = sample(replayed(path, [CUP, BARO, DHT], columns), [CUP, BARO, DHT], {"dht": 2.0})

    def values(name: str) -> list[float | None]:
        return [None if isinstance(one.got, ReadError) else round(one.value, 3) for one in samples[name]]

    assert values("cup") == [2.645, None, 1.115, None, None, 1.88, None, 1.115]
    assert [kpa and round(kpa) for kpa in values("baro")] == [90, None, 92, None, None, 95, None, 97]
    # At 4 s there was nothing to convert, so the line is silent at 6 s.
    assert values("dht") == [5.0, 5.0, 7.0, None]


def test_a_scale_and_an_offset_turn_figures_into_units(tmp_path: Path) -> None:
    path = write(tmp_path, "time,f\n2024-01-11T13:00:00Z,180\n2024-01-11T13:00:01Z,190\n")
    board = replayed(path, [BARO], {"baro": ReplayColumn("f", scale=0.5, offset=-2.0)})
    assert [round(one.value, 1) for one in sample(board, [BARO])["baro"]] == [88.0, 93.0]


def test_another_timestamp_column_a_utc_offset_a_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    path = tmp_path / "mast.csv"
    path.write_bytes(
        "\ufeffP2m,Timestamp\r\n95.1,2016-02-01 00:00:00\r\n95.2,2016-02-01 00:10:00\r\n".encode()
    )
    board = replayed(path, [BARO], {"baro": "P2m"}, timestamp_column="Timestamp", utc_offset_h=5.75)
    samples = sample(board, [BARO], {"baro": 300.0})["baro"]
    assert samples[0].time_ns == round(datetime(2016, 1, 31, 18, 15, tzinfo=UTC).timestamp()) * SECOND_NS
    assert [round(one.value, 1) for one in samples] == [95.1, 95.1, 95.2, 95.2]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: no header"),
        ("timestamp,p\n", "no rows"),
        ("timestamp,q\n2024-01-11T13:00:00Z,1\n", "line 1: no column 'p'; there are timestamp, q"),
        (
            "timestamp,p\n2024-01-11T13:00:00Z,1\n2024-01-11T13:00:01Z,x\n",
            "line 3: column 'p': 'x' is no number",
        ),
        ("timestamp,p\n2024-01-11T13:00:00Z,inf\n", "line 2: column 'p': 'inf' isn't finite"),
        ("timestamp,p\nyesterday,1\n", "line 2: column 'timestamp': 'yesterday' isn't an RFC 3339 time"),
        ("timestamp,p\n2024-01-11T13:00:00,1\n", "line 2: column 'timestamp': .* has no time zone"),
        (
            "timestamp,p\n2024-01-11T13:00:01Z,1\n2024-01-11T13:00:01Z,1\n",
            "line 3: column 'timestamp': '2024-01-11T13:00:01Z' isn't after the row before",
        ),
        ("timestamp,p\n2024-01-11T13:00:00Z,1,2\n", "line 2: 3 cells where the header has 2"),
    ],
)
def test_what_is_wrong_is_named_with_file_line_and_column(tmp_path: Path, text: str, problem: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(BoardError, match=rf"mast\.csv: {problem}"):
        replayed(path, [BARO], {"baro": "p"})


@pytest.mark.parametrize("scale", [100.0, -100.0])
def test_a_figure_that_is_finite_only_before_it_is_scaled_is_refused(tmp_path: Path, scale: float) -> None:
    path = write(tmp_path, "timestamp,p\n2024-01-11T13:00:00Z,1e307\n")
    column = ReplayColumn("p", scale)
    with pytest.raises(BoardError, match=r"mast\.csv: line 2: column 'p': '1e307' isn't finite"):
        replayed(path, [BARO], {"baro": column})
    # A value the logger hadn't stays that, whatever its scale.
    replayed(write(tmp_path, "timestamp,p\n2024-01-11T13:00:00Z,NaN\n"), [BARO], {"baro": column})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match=r"nowhere\.csv: can't be read: No such file"):
        replayed(tmp_path / "nowhere.csv", [BARO], {"baro": "p"})
