"""A trained model: what is stored beside the network, and how it travels to where it is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from spark_jobs.anomaly.features import Group, Layout, Scaler
from spark_jobs.anomaly.observations import Numbers
from spark_jobs.errors import JobError

FORMAT: Final = 1
_SCALER: Final = ("own_mean", "own_sd", "levels_mean", "levels_sd", "context_mean", "context_sd")


class ModelError(JobError):
    """A stored model that can't be used."""


@dataclass(frozen=True)
class Packed:
    """A model as bytes: what is stored, and what travels to the workers."""

    gateway: str
    version: str
    document: bytes
    network: bytes


@dataclass(frozen=True)
class Model:
    """One mast's model but for its network.

    ``edges`` (groups, bins): where each bin of a group's level begins. ``scales`` (bins, features): how far
    off the network usually is in that bin, in standard deviations. ``absence`` (channels, features): how
    many times that when a channel is missing. ``threshold``: scores above it are anomalies.
    """

    gateway: str
    interval_s: int
    layout: Layout
    scaler: Scaler
    edges: Numbers
    scales: Numbers
    absence: Numbers
    threshold: float
    facts: Mapping[str, Any]

    def document(self) -> bytes:
        """The model as JSON; the floats come back exactly."""
        fields = {
            "format": FORMAT,
            "gateway": self.gateway,
            "interval_s": self.interval_s,
            "groups": [asdict(group) for group in self.layout.groups],
            "context": self.layout.context,
            "features": self.layout.features,
            "inputs": self.layout.inputs,
            "scaler": {name: getattr(self.scaler, name).tolist() for name in _SCALER},
            "edges": self.edges.tolist(),
            "scales": self.scales.tolist(),
            "absence": self.absence.tolist(),
            "threshold": self.threshold,
            "facts": dict(self.facts),
        }
        return json.dumps(fields, indent=1, allow_nan=False).encode()


def _layout(fields: Mapping[str, Any]) -> Layout:
    groups = (
        Group(str(group["quantity"]), tuple(group["channels"]), tuple(group["kinds"]))
        for group in fields["groups"]
    )
    return Layout(tuple(groups), tuple(fields["context"]))


def unpack(packed: Packed) -> Model:
    """The model in its bytes. Raises ModelError with what is wrong with them."""
    where = f"model {packed.version} of {packed.gateway}"
    try:
        fields = json.loads(packed.document)
        if fields["format"] != FORMAT:
            raise ModelError(
                f"{where} has format {fields['format']}, this program reads {FORMAT}: train anew"
            )
        layout = _layout(fields)
        scaler = Scaler(*(np.asarray(fields["scaler"][name], dtype=np.float64) for name in _SCALER))
        model = Model(
            str(fields["gateway"]),
            int(fields["interval_s"]),
            layout,
            scaler,
            np.asarray(fields["edges"], dtype=np.float64),
            np.asarray(fields["scales"], dtype=np.float64),
            np.asarray(fields["absence"], dtype=np.float64),
            float(fields["threshold"]),
            fields["facts"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{where} is damaged ({type(error).__name__}: {error}): train anew") from error
    if list(layout.features) != fields["features"] or list(layout.inputs) != fields["inputs"]:
        raise ModelError(f"{where} has other features than this program computes: train anew")
    shapes = (model.scales.shape[1:], model.absence.shape, model.edges.shape[:1])
    features = len(layout.features)
    if shapes != ((features,), (len(layout.channels), features), (len(layout.groups),)):
        raise ModelError(f"{where} is damaged (its scales are not those of its features): train anew")
    return model
