"""Scores: how far each channel is from what the rest of its mast predicts for it.

Each channel in turn is hidden from the network, which predicts it from the others; the deviation is the root
mean square of its features' errors, in units of what the network is usually off at such a level (wind). A
fault of the channel can't help to explain itself that way. A channel's score is the second highest
deviation of the last three intervals: one odd interval is weather. The mast's score is its worst channel's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from spark_jobs.anomaly.features import Features, Layout, Scaler, features_of
from spark_jobs.anomaly.model import Model, ModelError, Packed, unpack
from spark_jobs.anomaly.observations import WINDOW, Flags, Numbers, Observations

Network = Callable[[Numbers], Numbers]
"""Inputs (n, inputs) to predictions (n, features), both standardised."""

_DIGITS: Final = 6
"""Scores are rounded: the last bits depend on how many rows a worker had at once, and a row that is computed
again would seem changed."""
_LEAST_SHARE: Final = 0.01


def bins_of(edges: Numbers, level: Numbers) -> Any:
    """The bin each level lies in; what is below the first, or unknown, is in the first."""
    return np.clip(np.searchsorted(edges, np.nan_to_num(level, nan=-np.inf), side="right") - 1, 0, None)


def scale_bins(layout: Layout, edges: Numbers, features: Features) -> Any:
    """For each interval and feature the bin of its group's level, (n, features)."""
    by_group = [bins_of(edges[number], features.levels[:, number]) for number in range(len(layout.groups))]
    return np.stack(by_group, axis=1)[:, layout.group_of()]


def hidden_errors(
    layout: Layout, scaler: Scaler, network: Network, seen: Observations, lag: int, channels: list[int]
) -> tuple[Numbers, Features]:
    """Errors (n, features) of the prediction without some channels; only theirs are meant."""
    hidden = ~seen.valid[:, lag, : len(layout.channels)]
    hidden[:, channels] = True
    features = features_of(layout, seen, lag, hidden)
    return scaler.targets(features) - network(scaler.inputs(layout, features, hidden)), features


def usual_errors(
    layout: Layout, scales: Numbers, absence: Numbers, bins: Any, gone: Flags, features: Any
) -> Numbers:
    """What the network is usually off (n, features given), with what is missing (``gone``: n, channels).

    A missing channel makes others harder to predict, its twin above all. Its own errors don't count.
    """
    owners = layout.owners()[features]
    factors = np.ones((len(gone), len(features)))
    for channel in range(len(layout.channels)):
        factors *= np.where(gone[:, channel, None] & (owners != channel), absence[channel, features], 1.0)
    return np.asarray(scales[bins[:, features], features] * factors)


def deviations(model: Model, network: Network, seen: Observations, lag: int) -> Numbers:
    """Each channel's deviation (n, channels) in the intervals ``lag`` before; NaN where it is missing."""
    layout = model.layout
    owners = layout.owners()
    gone = ~seen.valid[:, lag, : len(layout.channels)]
    result = np.full(gone.shape, np.nan)
    for channel in range(len(layout.channels)):
        errors, features = hidden_errors(layout, model.scaler, network, seen, lag, [channel])
        mine = np.flatnonzero(owners == channel)
        bins = scale_bins(layout, model.edges, features)
        usual = usual_errors(layout, model.scales, model.absence, bins, gone, mine)
        result[:, channel] = root_mean_square(errors[:, mine] / usual)
    return result


def root_mean_square(values: Numbers) -> Numbers:
    """Ignores what isn't known in each row; NaN where nothing is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.sqrt(np.nanmean(values**2, axis=1)))


def persistent(window: Numbers) -> Numbers:
    """The second highest of the last intervals' deviations (n, WINDOW, channels), the only one where one is.

    NaN where the interval itself has none.
    """
    in_order = -np.sort(-np.nan_to_num(window, nan=-1.0), axis=1)
    second = np.where(in_order[:, 1] >= 0, in_order[:, 1], in_order[:, 0])
    return np.where(np.isnan(window[:, 0]), np.nan, second)


@dataclass(frozen=True)
class Scores:
    """The scores of n intervals: the mast's (NaN where nothing could be judged), and each channel's.

    ``missing``: which of the model's channels, then of its context, had no valid mean.
    """

    score: Numbers
    by_channel: Numbers
    missing: Flags

    def deviating(self, row: int, channels: tuple[str, ...]) -> list[tuple[str, float]]:
        """The channels of an interval with their shares of the squared scores, the most deviating first."""
        squares = np.nan_to_num(self.by_channel[row], nan=0.0) ** 2
        total = squares.sum()
        if not total > 0:
            return []
        in_order = sorted(zip(-squares / total, channels, strict=True))
        return [(name, round(float(-share), _DIGITS)) for share, name in in_order if -share >= _LEAST_SHARE]


def score(model: Model, network: Network, seen: Observations) -> Scores:
    """Scores of intervals with their windows."""
    seen = seen.of((*model.layout.channels, *model.layout.context))
    window = np.stack([deviations(model, network, seen, lag) for lag in range(WINDOW)], axis=1)
    by_channel = np.round(persistent(window), _DIGITS)
    highest = np.nan_to_num(by_channel, nan=-1.0).max(axis=1, initial=-1.0)
    return Scores(np.where(highest < 0, np.nan, highest), by_channel, ~seen.valid[:, 0])


def onnx_network(content: bytes, features: int) -> Network:
    """The network in ONNX bytes. Raises ModelError when they are none."""
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, InvalidProtobuf

    options = onnxruntime.SessionOptions()
    # A worker has one core; more threads would take those of its neighbours.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except (Fail, InvalidGraph, InvalidProtobuf) as error:
        raise ModelError(f"the network is damaged ({error}): train again") from error
    name = session.get_inputs()[0].name

    def predict(inputs: Numbers) -> Numbers:
        # skl2onnx ends the graph of a network with several outputs with a reshape to one column.
        return np.asarray(session.run(None, {name: inputs})[0]).reshape(len(inputs), features)

    return predict


@lru_cache(maxsize=256)
def ready(packed: Packed) -> tuple[Model, Network]:
    """A model ready for use, made once in each Python worker."""
    model = unpack(packed)
    return model, onnx_network(packed.network, len(model.layout.features))
