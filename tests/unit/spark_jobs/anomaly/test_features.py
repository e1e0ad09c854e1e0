"""The network's inputs, against numbers worked out by hand."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given, strategies as st

from spark_jobs.anomaly.features import Group, Layout, Scaler, features_of, layout_of
from spark_jobs.anomaly.observations import FIELDS, WINDOW, Observations, gather
from tests.support.anomaly_mast import CHANNELS, CUPS, THERMOMETER, weather

NAN = float("nan")


def observed(channels: tuple[str, ...], *rows: dict[str, list[float]]) -> Observations:
    """Intervals by field and channel, each its own predecessor; what isn't given is 0, recovery 1."""
    usual = {"avg": 0.0, "sd": 0.0, "max": 0.0, "recovery": 1.0, "doubted": 0.0}
    arrays = []
    for name in FIELDS:
        values = np.array([row.get(name, [usual[name]] * len(channels)) for row in rows], dtype=float)
        arrays.append(np.repeat(values[:, None, :], WINDOW, axis=1))
    return Observations(channels, tuple(name.partition(".")[2] for name in channels), *arrays)


def test_cups_are_described_by_how_they_differ_from_the_others() -> None:
    seen = observed(
        ("a.wind_speed", "b.wind_speed", "c.wind_speed", "t.temperature"),
        {"avg": [7.5, 9.5, 3.5, 12.0], "sd": [0.95, 1.95, 0.45, NAN], "max": [9.45, 13.45, 4.45, NAN]},
    )
    layout = layout_of(seen)
    assert layout == Layout(
        (Group("wind_speed", ("a.wind_speed", "b.wind_speed", "c.wind_speed"), ("avg", "sd", "gust")),),
        ("t.temperature",),
    )
    none = np.zeros((1, 3), dtype=bool)
    features = features_of(layout, seen, 0, none)
    # (avg + 0.5): 8, 10, 4; (sd + 0.05): 1, 2, 0.5; (max - avg + 0.05): 2, 4, 1. The medians are a's.
    assert features.own[0] == pytest.approx(
        [0, log(10 / 8), log(0.5), 0, log(2), log(0.5), log(2), log(2), log(2)]
    )
    assert features.levels[0] == pytest.approx([log(8), log(1) - log(8)])
    assert features.context.tolist() == [[12.0]]
    # Without b the medians are those of a and c; b is held against them.
    hidden = np.array([[False, True, False]])
    features = features_of(layout, seen, 0, hidden)
    middle, spread = (log(8) + log(4)) / 2, (log(1) + log(0.5)) / 2
    speeds = [log(8) - middle, log(10) - middle, log(4) - middle]
    spreads = [log(1) - spread, log(2) - spread, log(0.5) - spread]
    assert features.own[0] == pytest.approx([*speeds, *spreads, log(2), log(2), log(2)])
    assert features.levels[0] == pytest.approx([middle, spread - middle])
    assert layout.features[3:5] == ("sd/a.wind_speed", "sd/b.wind_speed")
    assert [layout.channels[owner] for owner in layout.owners()[:4]] == [*layout.channels, "a.wind_speed"]


def test_twins_of_other_quantities_are_compared_by_difference() -> None:
    seen = observed(("t.temperature", "u.temperature"), {"avg": [12.0, 11.0]}, {"avg": [-3.0, NAN]})
    layout = layout_of(seen)
    assert layout == Layout((Group("temperature", seen.channels, ("avg",)),), ())
    first = features_of(layout, seen, 0, np.array([[True, False], [False, True]]))
    assert first.own[0].tolist() == [1.0, 0.0]
    assert first.own[1, 0] == 0.0
    assert np.isnan(first.own[1, 1])


def test_a_channel_that_is_mostly_absent_is_not_compared() -> None:
    rows = [{"avg": [5.0, 5.0, value]} for value in (5.0, NAN, NAN)]
    layout = layout_of(observed(("a.wind_speed", "b.wind_speed", "c.wind_speed"), *rows))
    assert layout.channels == ("a.wind_speed", "b.wind_speed")
    # Too few readings are none, and without any sd or maximum there are no such features.
    bare = observed(
        ("a.wind_speed", "b.wind_speed", "c.wind_speed"),
        {"avg": [5.0] * 3, "recovery": [1.0, 0.5, 0.49], "sd": [NAN] * 3, "max": [NAN] * 3},
    )
    assert layout_of(bare).groups == (Group("wind_speed", ("a.wind_speed", "b.wind_speed"), ("avg",)),)


SEEN = weather(days=1, seed=3).observations()
LAYOUT = layout_of(SEEN)
SCALER = Scaler.of(features_of(LAYOUT, SEEN, 0, np.zeros((len(SEEN), len(CUPS)), dtype=bool)))


@given(st.integers(0, 3), st.one_of(st.just(NAN), st.floats(0, 75)), st.floats(0, 20), st.floats(0, 100))
def test_the_network_sees_nothing_of_a_hidden_channel(
    channel: int, avg: float, sd: float, top: float
) -> None:
    """Whatever it reads, or nothing at all: a fault can't help to explain itself."""
    row = slice(70, 71)
    parts = {name: getattr(SEEN, name)[row].copy() for name in FIELDS}
    for name, value in (("avg", avg), ("sd", sd), ("max", top)):
        parts[name][:, :, channel] = value
    faulty = Observations(SEEN.channels, SEEN.quantities, *parts.values())
    before = Observations(SEEN.channels, SEEN.quantities, *(getattr(SEEN, name)[row] for name in FIELDS))
    hidden = np.zeros((1, len(CUPS)), dtype=bool)
    hidden[0, channel] = True
    inputs = [SCALER.inputs(LAYOUT, features_of(LAYOUT, one, 0, hidden), hidden) for one in (before, faulty)]
    assert inputs[0].tolist() == inputs[1].tolist()
    assert len(LAYOUT.inputs) == inputs[0].shape[1]
    assert np.isfinite(inputs[1]).all()
    names = dict(zip(LAYOUT.inputs, inputs[0][0], strict=True))
    assert [names[f"hidden/{name}"] for name in CUPS] == [float(index == channel) for index in range(4)]


def test_a_context_beyond_all_that_was_seen_is_limited_and_an_unknown_one_is_reported() -> None:
    parts = {name: getattr(SEEN, name)[:2].copy() for name in FIELDS}
    parts["avg"][0, :, 4], parts["avg"][1, :, 4] = -60.0, NAN
    cold = Observations(SEEN.channels, SEEN.quantities, *parts.values())
    hidden = np.zeros((2, len(CUPS)), dtype=bool)
    inputs = SCALER.inputs(LAYOUT, features_of(LAYOUT, cold, 0, hidden), hidden)
    at = [LAYOUT.inputs.index(f"{word}/{THERMOMETER}") for word in ("context", "unknown")]
    assert inputs[:, at].tolist() == [[-3.0, 0.0], [0.0, 1.0]]


def test_entries_are_put_where_they_belong() -> None:
    windows = {
        "lag": [[0, 0, 2], [0]],
        "channel": [["b.wind_speed", "t.temperature", "b.wind_speed"], ["a.wind_speed"]],
        **{name: [[1.0, 2.0, 3.0], [4.0]] for name in FIELDS},
    }
    seen = gather(windows)
    assert seen.channels == ("a.wind_speed", "b.wind_speed", "t.temperature")
    assert seen.quantities == ("wind_speed", "wind_speed", "temperature")
    expected = np.full((2, WINDOW, 3), NAN)
    expected[0, 0, 1], expected[0, 0, 2], expected[0, 2, 1], expected[1, 0, 0] = 1, 2, 3, 4
    assert np.array_equal(seen.sd, expected, equal_nan=True)
    # Other channels in another order; one that isn't there is missing.
    other = seen.of(("t.temperature", "x.wind_speed", "b.wind_speed"))
    assert np.array_equal(other.avg[0, 0], [2, NAN, 1], equal_nan=True)
    assert other.valid[0, 0].tolist() == [True, False, True]
    assert len(gather({"lag": [], "channel": [], **{name: [] for name in FIELDS}})) == 0
    assert weather(1, 0).observations().channels == CHANNELS
