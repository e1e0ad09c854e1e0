"""A trained model: what is stored beside the network, and how it travels to where it is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from spark_jobs.anomaly.features import Features, Group, Layout, Scaler
from spark_jobs.anomaly.observations import Numbers
from spark_jobs.platform.errors import JobError

FORMAT: Final = 1
_ARRAYS: Final = ("edges", "scales", "absence")


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
            "scaler": {
                f"{part}_{figure}": getattr(getattr(self.scaler, figure), part).tolist()
                for part in Features._fields
                for figure in ("mean", "sd")
            },
            **{name: getattr(self, name).tolist() for name in _ARRAYS},
            "threshold": self.threshold,
            "facts": dict(self.facts),
        }
        return json.dumps(fields, indent=1, allow_nan=False).encode()


def unpack(packed: Packed) -> Model:
    """The model in its bytes. Raises ModelError with what is wrong with them."""
    where = f"model {packed.version} of {packed.gateway}"
    try:
        fields = json.loads(packed.document)
        if fields["format"] != FORMAT:
            raise ModelError(
                f"{where} has format {fields['format']}, this program reads {FORMAT}: train again"
            )
        groups = (
            Group(str(group["quantity"]), tuple(group["channels"]), tuple(group["kinds"]))
            for group in fields["groups"]
        )
        layout = Layout(tuple(groups), tuple(fields["context"]))
        mean, sd = (
            Features(*(np.array(fields["scaler"][f"{part}_{figure}"], float) for part in Features._fields))
            for figure in ("mean", "sd")
        )
        model = Model(
            gateway=str(fields["gateway"]),
            interval_s=int(fields["interval_s"]),
            layout=layout,
            scaler=Scaler(mean, sd),
            **{name: np.array(fields[name], float) for name in _ARRAYS},
            threshold=float(fields["threshold"]),
            facts=fields["facts"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{where} is damaged ({type(error).__name__}: {error}): train again") from error
    if list(layout.features) != fields["features"] or list(layout.inputs) != fields["inputs"]:
        raise ModelError(f"{where} has other features than this program computes: train again")
    shapes = (model.scales.shape[1:], model.absence.shape, model.edges.shape[:1])
    features = len(layout.features)
    if shapes != ((features,), (len(layout.channels), features), (len(layout.groups),)):
        raise ModelError(f"{where} is damaged (its scales are not those of its features): train again")
    return model
