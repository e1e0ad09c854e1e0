"""Trains a mast's model: which intervals are clean, the network, what it is usually off, the threshold.

Whole days go into one of five folds. Each fold's days are predicted by a network that was trained on the
other four. These errors of four folds give the scales and the threshold; on the fifth, which decided neither,
the model is judged. The network that is kept is trained on all of them. Same data, same seed: same model on
the same machine.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from spark_jobs.anomaly import scoring
from spark_jobs.anomaly.features import Layout, Scaler, features_of, layout_of
from spark_jobs.anomaly.model import Model
from spark_jobs.anomaly.observations import FIELDS, WINDOW, Flags, Numbers, Observations, broken_rules
from spark_jobs.platform.errors import JobError

HIDDEN_UNITS: Final = (64,)
FOLDS: Final = 5
LEAST_INTERVALS: Final = 1000
"""Clean intervals a model needs: a week of ten minutes. Enough to run, far from enough for all seasons."""
_EXAMPLES: Final = 3
"""Each interval is shown so often, with other channels hidden."""
_EPOCHS: Final = 20
_ALSO_HIDDEN: Final = 0.15
"""The chance with which each channel is hidden as well in half the examples: masts with a missing channel."""
_BIN_QUANTILES: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
_LEAST_IN_BIN: Final = 50
_ABSENCE_ROWS: Final = 2000
"""How many intervals of each fold are predicted once more for each channel that could be missing."""
_USUAL: Final = 0.95
_NORMAL_AT_USUAL: Final = 1.959963985
"""95 % of a normal distribution lie within this many standard deviations. The scale is taken there, not as a
root mean square: that would be made of the few anomalies that are left in every training period."""
_LEAST_SCALE: Final = 0.02
_DAY_S: Final = 86_400
_MONTH_S: Final = 30 * _DAY_S
_ONE_EVENT_S: Final = 3600
"""Alarms at most an hour apart are one event: one visit."""


class TooLittleDataError(JobError):
    """No model can be trained of what there is."""


@dataclass(frozen=True)
class Trained:
    """A model with its network as scikit-learn made it, and what the training reports."""

    model: Model
    regressor: Any

    def network(self) -> bytes:
        """The network as ONNX, in double precision."""
        from skl2onnx import to_onnx

        sample = np.zeros((1, len(self.model.layout.inputs)))
        return bytes(to_onnx(self.regressor, sample, target_opset=18).SerializeToString())


@dataclass(frozen=True)
class Choices:
    """The options of a training. ``false_alarms``: alarm events allowed in 30 clean days."""

    seed: int = 0
    false_alarms: float = 1.0


def clean_intervals(seen: Observations, excluded: Flags) -> Flags:
    """Intervals to learn from: not excluded, and neither they nor the ones before break a rule.

    ``excluded`` (n) are known to the operator to be wrong.
    """
    chosen: Flags = ~excluded & seen.valid[:, 0].any(axis=1)
    for lag in range(WINDOW):
        fields = (np.repeat(getattr(seen, name)[:, lag : lag + 1], WINDOW, axis=1) for name in FIELDS)
        alone = Observations(seen.channels, seen.quantities, *fields)
        chosen &= np.array([not broken for broken in broken_rules(alone)], dtype=bool)
    return chosen


def _examples(layout: Layout, scaler: Scaler, seen: Observations, seed: int) -> tuple[Numbers, Numbers]:
    """Inputs with hidden channels, and what is to be predicted of them."""
    chance = np.random.default_rng(seed)
    absent = ~seen.valid[:, 0, : len(layout.channels)]
    inputs, targets = [], []
    for _ in range(_EXAMPLES):
        hidden = absent.copy()
        hidden[np.arange(len(seen)), chance.integers(0, absent.shape[1], len(seen))] = True
        hidden |= (chance.random(absent.shape) < _ALSO_HIDDEN) & (chance.random(len(seen)) < 0.5)[:, None]
        features = features_of(layout, seen, 0, hidden)
        inputs.append(scaler.inputs(layout, features, hidden))
        # What isn't known can't be learnt: 0, the mean, teaches the network nothing.
        targets.append(np.nan_to_num(scaler.targets(features), nan=0.0))
    return np.vstack(inputs), np.vstack(targets)


def _fit(layout: Layout, scaler: Scaler, seen: Observations, seed: int) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    inputs, targets = _examples(layout, scaler, seen, seed)
    regressor = MLPRegressor(
        hidden_layer_sizes=HIDDEN_UNITS,
        activation="tanh",
        batch_size=256,
        learning_rate_init=2e-3,
        max_iter=_EPOCHS,
        n_iter_no_change=5,
        tol=1e-5,
        random_state=seed,
    )
    with warnings.catch_warnings():
        # Twenty rounds are what it gets; twice as many changed the scales by a per cent or two.
        warnings.simplefilter("ignore", ConvergenceWarning)
        regressor.fit(inputs, targets)
    return regressor


def folds_of(starts_s: Any) -> Any:
    """The fold of each interval: whole UTC days in turn, since neighbouring intervals are alike."""
    days = np.asarray(starts_s) // _DAY_S
    return np.unique(days, return_inverse=True)[1] % FOLDS


@dataclass
class _Unseen:
    """Errors (n, features) of each channel by a network that hasn't seen the day, and how they were made.

    ``without[channel]``: the same (of some of the rows), with that channel missing.
    """

    edges: Numbers
    errors: Numbers
    bins: Any
    without: list[Numbers]

    def rows(self, chosen: Flags) -> _Unseen:
        """Some of the intervals."""
        without = [errors[chosen] for errors in self.without]
        return _Unseen(self.edges, self.errors[chosen], self.bins[chosen], without)


def _unseen_errors(layout: Layout, scaler: Scaler, seen: Observations, folds: Any, seed: int) -> _Unseen:
    owners = layout.owners()
    channels = range(len(layout.channels))
    levels = features_of(layout, seen, 0, ~seen.valid[:, 0, : len(channels)]).levels[:, : len(layout.groups)]
    edges = np.nanquantile(levels, _BIN_QUANTILES, axis=0).T
    unknown = np.full((len(seen), len(owners)), np.nan)
    result = _Unseen(
        edges, unknown, np.zeros(unknown.shape, dtype=np.int64), [unknown.copy() for _ in channels]
    )
    for fold in range(FOLDS):
        out = np.flatnonzero(folds == fold)
        network: scoring.Network = _fit(layout, scaler, seen.rows(folds != fold), seed).predict
        some = out[:: max(1, len(out) // _ABSENCE_ROWS)]
        rest, few = seen.rows(out), seen.rows(some)
        for channel in channels:
            mine = np.flatnonzero(owners == channel)
            errors, features = scoring.hidden_errors(layout, scaler, network, rest, 0, [channel])
            result.errors[np.ix_(out, mine)] = errors[:, mine]
            result.bins[np.ix_(out, mine)] = scoring.scale_bins(layout, edges, features)[:, mine]
            for gone in channels:
                if gone != channel:
                    errors, _ = scoring.hidden_errors(layout, scaler, network, few, 0, [channel, gone])
                    result.without[gone][np.ix_(some, mine)] = errors[:, mine]
    return result


def _usual(values: Numbers) -> float:
    known = np.abs(values[np.isfinite(values)])
    spread = np.quantile(known, _USUAL) / _NORMAL_AT_USUAL if len(known) else 1.0
    return float(max(spread, _LEAST_SCALE))


def _scales(errors: Numbers, bins: Any) -> Numbers:
    """What the network is usually off, by bin and feature; a bin with too little takes that of all."""
    scales = np.empty((len(_BIN_QUANTILES), errors.shape[1]))
    for feature in range(errors.shape[1]):
        everywhere = _usual(errors[:, feature])
        for number in range(len(scales)):
            inside = errors[bins[:, feature] == number, feature]
            enough = np.isfinite(inside).sum() >= _LEAST_IN_BIN
            scales[number, feature] = _usual(inside) if enough else everywhere
    return scales


def _absence(unseen: _Unseen) -> Numbers:
    """How many times as far off the network is with a channel missing (channels, features), at least once."""
    factors = np.ones((len(unseen.without), unseen.errors.shape[1]))
    for channel, errors in enumerate(unseen.without):
        for feature in range(errors.shape[1]):
            both = np.isfinite(errors[:, feature]) & np.isfinite(unseen.errors[:, feature])
            if both.sum() >= _LEAST_IN_BIN:
                there = _usual(unseen.errors[both, feature])
                factors[channel, feature] = max(1.0, _usual(errors[both, feature]) / there)
    return factors


def windowed(values: Numbers, starts_s: Any, interval_s: int) -> Numbers:
    """Each row with the rows of the intervals before it: (n, WINDOW, columns); NaN where there is none."""
    at = {int(start): row for row, start in enumerate(starts_s)}
    result = np.full((len(values), WINDOW, values.shape[1]), np.nan)
    for lag in range(WINDOW):
        rows = np.array([at.get(int(start) - lag * interval_s, -1) for start in starts_s])
        result[rows >= 0, lag] = values[rows[rows >= 0]]
    return result


def alarm_events(alarms: Flags, starts_s: Any) -> int:
    """How many separate times there was an alarm; those at most an hour apart are one."""
    times = np.sort(np.asarray(starts_s)[alarms])
    return int(len(times) > 0) + int((np.diff(times) > _ONE_EVENT_S).sum())


def choose_threshold(scores: Numbers, starts_s: Any, interval_s: int, false_alarms: float) -> float:
    """The lowest threshold that clean days exceed at most so often in 30 days.

    At least one event is allowed, or the threshold would be the highest score that ever was.
    """
    months = np.isfinite(scores).sum() * interval_s / _MONTH_S
    allowed = max(1, int(false_alarms * months))
    known = np.nan_to_num(scores, nan=-np.inf)
    chosen = float(known.max())
    for candidate in np.unique(known[np.isfinite(known)])[::-1]:
        if alarm_events(known > candidate, starts_s) > allowed:
            break
        chosen = float(candidate)
    return chosen


def train(
    gateway: str, interval_s: int, seen: Observations, starts_s: Any, excluded: Flags, choices: Choices
) -> Trained:
    """Trains on the clean ones of these intervals (``starts_s``: their starts, seconds since the epoch).

    Raises TooLittleDataError when there are too few, or nothing that could be compared.
    """
    clean = clean_intervals(seen, excluded)
    days = len(np.unique(np.asarray(starts_s)[clean] // _DAY_S))
    if clean.sum() < LEAST_INTERVALS or days < FOLDS:
        raise TooLittleDataError(
            f"{gateway} has {clean.sum()} clean intervals of {interval_s} s on {days} days; a model needs "
            f"{LEAST_INTERVALS} on {FOLDS} days: take a longer period (--from, --to)"
        )
    layout = layout_of(seen.rows(clean))
    if not layout.groups:
        raise TooLittleDataError(
            f"{gateway} has no two channels of one quantity in this period: there is nothing to compare"
        )
    learnt = seen.of((*layout.channels, *layout.context)).rows(clean)
    times = np.asarray(starts_s)[clean]
    gone = ~learnt.valid[:, 0, : len(layout.channels)]
    scaler = Scaler.of(features_of(layout, learnt, 0, gone))
    folds = folds_of(times)
    unseen = _unseen_errors(layout, scaler, learnt, folds, choices.seed)
    held_out = folds == FOLDS - 1
    fitted = unseen.rows(~held_out)
    scales, absence = _scales(fitted.errors, fitted.bins), _absence(fitted)
    owners = layout.owners()
    usual = scoring.usual_errors(layout, scales, absence, unseen.bins, gone, np.arange(len(owners)))
    relative = unseen.errors / usual
    by_channel = np.column_stack(
        [scoring.root_mean_square(relative[:, owners == channel]) for channel in range(len(layout.channels))]
    )
    windows = scoring.persistent(windowed(by_channel, times, interval_s))
    scores = np.nan_to_num(windows, nan=-np.inf).max(axis=1)
    scores[np.isneginf(scores)] = np.nan
    threshold = choose_threshold(scores[~held_out], times[~held_out], interval_s, choices.false_alarms)
    alarms = np.nan_to_num(scores, nan=-np.inf) > threshold
    regressor = _fit(layout, scaler, learnt, choices.seed)
    facts = {
        "intervals": len(starts_s),
        "excluded": int(excluded.sum()),
        "unclean": int((~clean & ~excluded).sum()),
        "clean": int(clean.sum()),
        "days": days,
        "seed": choices.seed,
        "false_alarms_asked": choices.false_alarms,
        "false_alarm_events": alarm_events(alarms & ~held_out, times),
        "held_out_days": len(np.unique(times[held_out] // _DAY_S)),
        "held_out_events": alarm_events(alarms & held_out, times),
        "scores": {str(q): round(float(np.nanquantile(scores, q)), 3) for q in (0.5, 0.9, 0.99, 0.999)},
        "loss": float(regressor.loss_),
    }
    model = Model(gateway, interval_s, layout, scaler, unseen.edges, scales, absence, threshold, facts)
    return Trained(model, regressor)
