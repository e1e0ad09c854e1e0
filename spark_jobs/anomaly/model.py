"""A trained model: what is stored beside the network, and how it travels to where it is used."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from py4j.protocol import Py4JJavaError

from spark_jobs.anomaly.features import Features, Group, Layout, Scaler
from spark_jobs.anomaly.observations import Numbers
from spark_jobs.platform.errors import JobError
from spark_jobs.platform.files import Files

FORMAT: Final = 1
log = logging.getLogger("fieldgate.jobs.models")

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


_CURRENT: Final = re.compile(r"current-(\d+)\.json")


class ModelStore:
    """The models under one URI, on a disk or in an object store. Owned by one thread.

    ``VERSION/`` holds ``GATEWAY.json`` and ``GATEWAY.onnx`` and ``card.md``, and never changes; until it is
    complete nothing names it. ``current-N.json`` is ``{"GATEWAY": "VERSION"}``: each change is a new file
    with the next number, and the highest counts. Nothing is renamed or replaced, which object stores can't do
    at once. One that was cut short is no JSON object and is ignored. Going back is one more file. One
    training at a time.
    """

    def __init__(self, files: Files, root: str) -> None:
        self.root = root.rstrip("/")
        self._files = files
        self._passed_over: set[str] = set()

    def current(self) -> dict[str, str]:
        """The version in use by gateway; nothing where nothing was trained. Raises ModelError."""
        names = [name for _, name in sorted(self._pointers(), reverse=True)]
        for name in names:
            try:
                fields = json.loads(self._read(name) or b"")
            except ValueError:
                fields = None
            if isinstance(fields, dict) and all(isinstance(value, str) for value in fields.values()):
                return fields
            if name not in self._passed_over:
                self._passed_over.add(name)
                log.warning("event=models.passed_over file=%s/%s is no JSON object", self.root, name)
        if names:
            raise ModelError(f"{self.root}/{names[0]} is no JSON object of gateways and versions")
        return {}

    def load(self, gateway: str, version: str) -> Packed:
        """The bytes of a model. Raises ModelError when they aren't there."""
        contents = []
        for suffix in ("json", "onnx"):
            name = f"{version}/{gateway}.{suffix}"
            if (content := self._read(name)) is None:
                raise ModelError(
                    f"{self.root}/{name} is missing, though it is the current one: train again, or name a "
                    "version that is there in a further current-N.json"
                )
            contents.append(content)
        return Packed(gateway, version, *contents)

    def publish(self, version: str, models: Iterable[Packed], card: Callable[[], str]) -> None:
        """Stores a version and makes it the current one of its gateways; those of others stay.

        ``card`` gives the text of the card once all models are stored.
        """
        gateways = []
        for model in models:
            self._files.write(f"{self.root}/{version}/{model.gateway}.json", model.document)
            self._files.write(f"{self.root}/{version}/{model.gateway}.onnx", model.network)
            gateways.append(model.gateway)
        self._files.write(f"{self.root}/{version}/card.md", card())
        self.activate(dict.fromkeys(gateways, version))

    def activate(self, versions: Mapping[str, str]) -> None:
        """Makes these versions the current ones of their gateways."""
        content = json.dumps({**self.current(), **versions}, indent=1, sort_keys=True)
        number = max((number for number, _ in self._pointers()), default=0) + 1
        self._files.write(f"{self.root}/current-{number:06d}.json", content)

    def _pointers(self) -> list[tuple[int, str]]:
        """Number and name of each file that names current versions."""
        matches = (_CURRENT.fullmatch(entry.name) for entry in self._files.entries(self.root))
        return [(int(found[1]), found[0]) for found in matches if found]

    def _read(self, name: str) -> bytes | None:
        try:
            return self._files.read_bytes(f"{self.root}/{name}")
        except Py4JJavaError as error:
            raise ModelError(f"{self.root}/{name} can't be read: {error.java_exception}") from error
