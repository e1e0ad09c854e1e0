"""What the network sees of an interval, and what it is to predict: one definition for training and scoring.

Channels of one quantity form a group (cups, twin thermometers). Each is described by how it differs from the
median of the group's others, so that a fault of one shows however the wind blows:

- ``avg``: log((avg + 0.5 m/s) / the others'); for quantities other than wind speed the difference;
- ``sd`` (wind speed): log((sd + 0.05 m/s) / the others');
- ``gust`` (wind speed): log of (max - avg) in units of the sd, a shape that needs no neighbour.

The floors keep the noise of calms, where a cup's offset is all there is, from drowning everything else. What
a group does as a whole (``level``, and for cups ``intensity``, the log of the turbulence intensity), and
the quantities with one channel only (``context``: a lone thermometer), are input of the network and not
judged. A channel can be hidden: a flag marks it, its features are left out, and it is predicted all the same.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from spark_jobs.anomaly.observations import Flags, Numbers, Observations

SPEED_FLOOR_MPS: Final = 0.5
SD_FLOOR_MPS: Final = 0.05
CONTEXT_LIMIT: Final = 3.0
"""Most standard deviations of a lone channel that are input: a winter colder than any it was trained in is
"cold" to the network, not a number it would extrapolate from."""
_OFTEN: Final = 0.5
"""A channel, or what a feature is made of, must be there in this share of the training period."""


@dataclass(frozen=True)
class Group:
    """Channels of one quantity that are compared with each other; ``kinds`` are the features of each."""

    quantity: str
    channels: tuple[str, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """Which features a model has, in order: by group, then by kind, then by channel."""

    groups: tuple[Group, ...]
    context: tuple[str, ...]

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels that are judged."""
        return tuple(name for group in self.groups for name in group.channels)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of what is predicted: ``kind/channel``."""
        return tuple(
            f"{kind}/{name}" for group in self.groups for kind in group.kinds for name in group.channels
        )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of what the network is given."""
        levels = tuple(f"level/{group.quantity}" for group in self.groups)
        intensities = tuple(f"intensity/{group.quantity}" for group in self.groups if "sd" in group.kinds)
        hidden = tuple(f"hidden/{name}" for name in self.channels)
        context = tuple(f"context/{name}" for name in self.context)
        unknown = tuple(f"unknown/{name}" for name in self.context)
        return (*self.features, *levels, *intensities, *context, *hidden, *unknown)

    def owners(self) -> npt.NDArray[np.int64]:
        """The number of each feature's channel."""
        at = {name: index for index, name in enumerate(self.channels)}
        return np.array([at[name.partition("/")[2]] for name in self.features], np.int64)

    def group_of(self) -> npt.NDArray[np.int64]:
        """The number of each feature's group."""
        sizes = [len(group.kinds) * len(group.channels) for group in self.groups]
        return np.repeat(np.arange(len(sizes)), sizes)


def layout_of(seen: Observations) -> Layout:
    """What can be compared on this mast: quantities with two channels or more that are mostly there."""
    valid = seen.valid[:, 0]
    often = [bool(share >= _OFTEN) for share in valid.mean(axis=0)]
    by_quantity: dict[str, list[int]] = {}
    for index, quantity in enumerate(seen.quantities):
        if often[index]:
            by_quantity.setdefault(quantity, []).append(index)
    groups: list[Group] = []
    context: list[str] = []
    for quantity, members in sorted(by_quantity.items()):
        names = tuple(seen.channels[index] for index in members)
        if len(members) < 2:
            context += names
            continue
        kinds = ["avg"]
        if quantity == "wind_speed":
            known = np.isfinite(seen.sd[:, 0, members])[valid[:, members]].mean()
            kinds += ["sd"] if known >= _OFTEN else []
            known = np.isfinite((seen.max - seen.sd)[:, 0, members])[valid[:, members]].mean()
            kinds += ["gust"] if known >= _OFTEN else []
        groups.append(Group(quantity, names, tuple(kinds)))
    return Layout(tuple(groups), tuple(context))


class Features(NamedTuple):
    """Of n intervals: ``own`` (n, features), ``levels`` (n, groups, then intensities), ``context``."""

    own: Numbers
    levels: Numbers
    context: Numbers


def _median(values: Numbers) -> Numbers:
    with warnings.catch_warnings():
        # Where all are hidden there is no median: NaN is the answer.
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanmedian(values, axis=1, keepdims=True)


def _group_features(
    group: Group, avg: Numbers, sd: Numbers, top: Numbers, hidden: Flags
) -> tuple[list[Numbers], list[Numbers]]:
    """Features by kind, and the group's levels; ``hidden`` channels count for no median."""

    def relative(values: Numbers) -> tuple[Numbers, Numbers]:
        middle = _median(np.where(hidden, np.nan, values))
        return values - middle, middle

    if group.quantity != "wind_speed":
        own, level = relative(avg)
        return [own], [level]
    own, level = relative(np.log(np.maximum(avg, 0.0) + SPEED_FLOOR_MPS))
    features, levels = [own], [level]
    spread = np.log(sd + SD_FLOOR_MPS)
    if "sd" in group.kinds:
        own, middle = relative(spread)
        features.append(own)
        levels.append(middle - level)
    if "gust" in group.kinds:
        features.append(np.log(np.maximum(top - avg, 0.0) + SD_FLOOR_MPS) - spread)
    return features, levels


def features_of(layout: Layout, seen: Observations, lag: int, hidden: Flags) -> Features:
    """Features of the intervals ``lag`` before; ``seen`` has the layout's channels and then its context.

    ``hidden`` (n, channels) are left out of every median. What can't be computed is NaN.
    """
    valid = seen.valid[:, lag]
    avg, sd, top = (np.where(valid, values[:, lag], np.nan) for values in (seen.avg, seen.sd, seen.max))
    own: list[Numbers] = []
    levels: list[Numbers] = []
    intensities: list[Numbers] = []
    begin = 0
    for group in layout.groups:
        part = slice(begin, begin + len(group.channels))
        mine, heights = _group_features(group, avg[:, part], sd[:, part], top[:, part], hidden[:, part])
        own += mine
        levels.append(heights[0])
        intensities += heights[1:]
        begin = part.stop
    empty = [np.empty((len(seen), 0))]
    return Features(np.hstack(own or empty), np.hstack([*levels, *intensities] or empty), avg[:, begin:])


@dataclass(frozen=True)
class Scaler:
    """Means and standard deviations of the training period, by which features become comparable numbers."""

    mean: Features
    sd: Features

    @classmethod
    def of(cls, features: Features) -> Scaler:
        """The scaler of a training period."""
        spreads = (np.nanstd(values, axis=0) for values in features)
        return cls(
            Features(*(np.nanmean(values, axis=0) for values in features)),
            Features(*(np.where(spread > 0, spread, 1.0) for spread in spreads)),
        )

    def targets(self, features: Features) -> Numbers:
        """What the network is to predict; NaN where unknown."""
        return np.asarray((features.own - self.mean.own) / self.sd.own)

    def inputs(self, layout: Layout, features: Features, hidden: Flags) -> Numbers:
        """What the network is given: 0, the mean of the training period, stands for what it can't see."""
        own = np.where(hidden[:, layout.owners()], np.nan, self.targets(features))
        levels = (features.levels - self.mean.levels) / self.sd.levels
        context = (features.context - self.mean.context) / self.sd.context
        context = np.clip(context, -CONTEXT_LIMIT, CONTEXT_LIMIT)
        known = [np.nan_to_num(part, nan=0.0) for part in (own, levels, context)]
        return np.hstack([*known, hidden.astype(float), np.isnan(context).astype(float)])
