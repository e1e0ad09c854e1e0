"""A model of a made-up mast: trained once, and held against what was put into its data."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from spark_jobs.anomaly.model import ModelError, Packed, unpack
from spark_jobs.anomaly.observations import FIELDS, Flags, Observations
from spark_jobs.anomaly.scoring import Scores, deviations, persistent, ready, score
from spark_jobs.anomaly.training import (
    Choices,
    TooLittleDataError,
    Trained,
    alarm_events,
    choose_threshold,
    clean_intervals,
    folds_of,
    train,
    windowed,
)
from tests.support.anomaly_mast import CUPS, INTERVAL_S, START, Mast, dead_cup, icing, weather

NAN = float("nan")
LEARNT, DAYS = 30, 50
ICED = START + timedelta(days=34, hours=2)
THAWED = ICED + timedelta(hours=8)
DEATH = START + timedelta(days=42, hours=3)


def days_of(mast: Mast, begin: int, end: int) -> tuple[Observations, Flags]:
    rows = np.zeros(len(mast.avg), dtype=bool)
    rows[begin * 144 : end * 144] = True
    return mast.observations().rows(rows), mast.starts_s[rows]


def trained_on(mast: Mast, days: int, seed: int = 0) -> Trained:
    seen, starts = days_of(mast, 0, days)
    return train("mast-07", INTERVAL_S, seen, starts, np.zeros(len(seen), dtype=bool), Choices(seed))


@pytest.fixture(scope="module")
def trained() -> Trained:
    return trained_on(weather(DAYS, seed=1), LEARNT)


@pytest.fixture(scope="module")
def packed(trained: Trained) -> Packed:
    return Packed("mast-07", "v1", trained.model.document(), trained.network())


def scores_of(packed: Packed, seen: Observations) -> Scores:
    return score(*ready(packed), seen)


def test_dead_and_iced_cups_are_found_and_clean_days_are_quiet(packed: Packed) -> None:
    mast = weather(DAYS, seed=1)
    icing(mast, CUPS[1], ICED, THAWED)
    dead_cup(mast, CUPS[2], DEATH)
    seen, starts = days_of(mast, LEARNT, DAYS)
    scores = scores_of(packed, seen)
    model = ready(packed)[0]
    alarms = scores.score > model.threshold
    since_death = starts - int(DEATH.timestamp())
    first = int(np.flatnonzero(alarms & (since_death >= 0))[0])
    assert since_death[first] <= 7200 - INTERVAL_S
    assert alarms[since_death >= 7200].mean() > 0.99
    assert scores.deviating(first + 3, model.layout.channels)[0][0] == CUPS[2]
    assert scores.deviating(first + 3, model.layout.channels)[0][1] > 0.5
    iced = (starts >= ICED.timestamp()) & (starts < THAWED.timestamp())
    assert alarms[iced].mean() > 0.6
    worst = [scores.deviating(int(row), model.layout.channels)[0][0] for row in np.flatnonzero(alarms & iced)]
    assert worst.count(CUPS[1]) > 0.9 * len(worst)
    # A cup that deviated in the last two intervals does so for one more: that isn't clean weather.
    clean = (
        ~iced & (since_death < 0) & ~((starts >= THAWED.timestamp()) & (starts < THAWED.timestamp() + 1200))
    )
    assert clean.sum() > 1600
    assert alarm_events(alarms & clean, starts) <= 2


def test_a_missing_cup_is_found_and_the_others_are_still_judged(packed: Packed) -> None:
    mast = weather(DAYS, seed=1)
    dead_cup(mast, CUPS[2], DEATH)
    mast.avg[:, 1] = NAN
    seen, starts = days_of(mast, LEARNT, DAYS)
    scores = scores_of(packed, seen)
    model = ready(packed)[0]
    assert scores.missing[:, :4].tolist() == [[False, True, False, False]] * len(seen)
    assert np.isnan(scores.by_channel[:, 1]).all()
    alarms = scores.score > model.threshold
    dead = starts >= DEATH.timestamp() + 7200
    assert alarms[dead].mean() > 0.99
    assert alarm_events(alarms & (starts < DEATH.timestamp()), starts) <= 2
    # Alone, with nothing to compare, none can be judged by a mean; nor on an empty mast.
    alone = seen.of(CUPS[:1])
    by_channel = scores_of(packed, alone).by_channel
    assert np.isfinite(by_channel[:, 0]).all()
    assert np.isnan(scores_of(packed, seen.of(())).score).all()
    assert scores_of(packed, seen.of(())).deviating(0, model.layout.channels) == []


def test_onnx_gives_what_scikit_learn_does(trained: Trained, packed: Packed) -> None:
    inputs = np.random.default_rng(0).normal(size=(500, len(trained.model.layout.inputs)))
    assert np.abs(ready(packed)[1](inputs) - trained.regressor.predict(inputs)).max() < 1e-5
    # The same object in one process, however often a task needs it.
    assert ready(Packed("mast-07", "v1", packed.document, packed.network)) is ready(packed)


def test_rows_score_the_same_alone_and_among_others(packed: Packed) -> None:
    seen, _ = days_of(weather(DAYS, seed=1), LEARNT, LEARNT + 1)
    together = scores_of(packed, seen).score
    alone = [scores_of(packed, seen.rows(np.arange(len(seen)) == row)).score[0] for row in range(0, 144, 7)]
    assert together[::7].tolist() == alone


def test_the_same_data_and_seed_give_the_same_model() -> None:
    mast = weather(9, seed=4)
    first, again = (trained_on(mast, 9, seed=7) for _ in range(2))
    assert (first.model.document(), first.network()) == (again.model.document(), again.network())
    assert first.model.facts["seed"] == 7
    assert unpack(Packed("mast-07", "v", first.model.document(), b"")).document() == first.model.document()


def test_deviations_are_in_units_of_what_is_usual(trained: Trained) -> None:
    """With a network that predicts "as always", and unit scales, they are the standardised features' own."""
    model = replace(trained.model, scales=np.ones_like(trained.model.scales))
    seen, _ = days_of(weather(DAYS, seed=1), LEARNT, LEARNT + 1)
    found = deviations(model, lambda inputs: np.zeros((len(inputs), len(model.layout.features))), seen, 0)
    avg, sd, top = (np.array(getattr(seen, name)[:, 0, :4]) for name in ("avg", "sd", "max"))
    others = [1, 2, 3]
    own = np.stack(
        [
            np.log(avg[:, 0] + 0.5) - np.median(np.log(avg[:, others] + 0.5), axis=1),
            np.log(sd[:, 0] + 0.05) - np.median(np.log(sd[:, others] + 0.05), axis=1),
            np.log((top - avg)[:, 0] + 0.05) - np.log(sd[:, 0] + 0.05),
        ],
        axis=1,
    )
    mine = [0, 4, 8]
    standard = (own - model.scaler.mean.own[mine]) / model.scaler.sd.own[mine]
    assert found[:, 0] == pytest.approx(np.sqrt((standard**2).mean(axis=1)), rel=1e-12)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ((9.0, 1.0, 2.0), 2.0),
        ((1.0, 9.0, 8.0), 8.0),
        ((9.0, 7.0, NAN), 7.0),
        ((9.0, NAN, NAN), 9.0),
        ((NAN, 9.0, 9.0), NAN),
    ],
)
def test_one_odd_interval_is_weather(window: tuple[float, ...], expected: float) -> None:
    assert persistent(np.array(window).reshape(1, 3, 1))[0, 0] == pytest.approx(expected, nan_ok=True)


def test_windows_look_back_over_gaps_as_gaps() -> None:
    starts = np.array([1200, 0, 600, 2400])
    values = np.array([[3.0], [1.0], [2.0], [4.0]])
    expected: list[list[float]] = [[3, 2, 1], [1, NAN, NAN], [2, 1, NAN], [4, NAN, 3]]
    assert np.array_equal(windowed(values, starts, 600)[:, :, 0], expected, equal_nan=True)


def test_the_threshold_is_the_lowest_with_so_few_alarm_events() -> None:
    starts = np.arange(4320) * 600
    scores = np.ones(4320)
    # Three events: 9 for half an hour, 7 once, and 5 twice an hour apart, which is one.
    scores[[100, 101, 102]], scores[2000], scores[[3000, 3006]] = 9.0, 7.0, 5.0
    assert alarm_events(scores > 1, starts) == 3
    assert [choose_threshold(scores, starts, 600, allowed) for allowed in (0, 1, 2, 3)] == [7, 7, 5, 1]
    # Rows that could not be judged count for no time and are no alarms.
    scores[4000:] = NAN
    assert choose_threshold(scores, starts, 600, 2) == 7


def test_days_that_are_held_out_decide_nothing_and_judge() -> None:
    usual, odd = weather(10, seed=4), weather(10, seed=4)
    for day in (4, 9):
        for hours in (2, 8, 14, 20):
            rows = slice(day * 144 + hours * 6, day * 144 + hours * 6 + 6)
            odd.avg[rows, 0] *= 0.6
    found, expected = (trained_on(mast, 10).model for mast in (odd, usual))
    # With them the threshold would be above all but one of their events, as it is for the days it is made of.
    assert found.facts["held_out_days"] == 2
    assert found.facts["held_out_events"] >= 4
    assert found.facts["false_alarm_events"] <= 1
    assert found.threshold < 1.3 * expected.threshold


def test_folds_are_whole_days() -> None:
    folds = folds_of(np.arange(0, 12 * 86_400, 600) + 86_400 * 100)
    assert folds.reshape(12, 144).tolist() == [[day % 5] * 144 for day in range(12)]


def test_what_breaks_a_rule_or_was_excluded_is_not_learnt() -> None:
    mast = weather(2, seed=1)
    for values in (mast.avg, mast.sd, mast.max):
        values[100, 0] = 0.0
    mast.avg[100, 1] = 8.0
    seen = mast.observations()
    excluded = np.zeros(len(seen), dtype=bool)
    excluded[10:20] = True
    assert np.flatnonzero(~clean_intervals(seen, excluded)).tolist() == [*range(10, 20), 100, 101, 102]


def test_too_little_data_has_how_much_there_is() -> None:
    with pytest.raises(TooLittleDataError, match="mast-07 has 864 clean intervals of 600 s on 6 days"):
        trained_on(weather(6, seed=1), 6)
    seen, starts = days_of(weather(8, seed=1), 0, 8)
    none = np.zeros(len(seen), dtype=bool)
    with pytest.raises(TooLittleDataError, match="no two channels of one quantity"):
        train("mast-07", INTERVAL_S, seen.of((CUPS[0], "dht.temperature")), starts, none, Choices())


def test_damaged_models_are_refused(packed: Packed) -> None:
    def damaged(document: bytes | None = None, network: bytes | None = None) -> Packed:
        return replace(packed, document=document or packed.document, network=network or packed.network)

    for bad, words in (
        (damaged(document=packed.document[:-20]), "model v1 of mast-07 is damaged"),
        (damaged(document=packed.document.replace(b'"format": 1', b'"format": 2')), "has format 2"),
        (damaged(document=packed.document.replace(b'"gust"', b'"gusts"')), "other features|damaged"),
        (damaged(document=b"[]"), "damaged"),
        (damaged(network=packed.network[:100]), "network is damaged"),
        (damaged(network=b"\x00" * 100), "network is damaged"),
    ):
        with pytest.raises(ModelError, match=words):
            ready(bad)
    assert set(FIELDS) == {"avg", "sd", "max", "recovery", "doubted"}
