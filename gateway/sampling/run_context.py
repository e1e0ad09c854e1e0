"""What all samplers of one run share."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from cloud.wire.schema import Reading
from gateway.ports import Clock
from gateway.quality.minute_means import MinuteMeans
from gateway.sampling.compensation import Compensation
from gateway.sequences import Sequences


@dataclass(frozen=True, slots=True)
class Mast:
    """One run's mast. ``emit`` takes a reading and its sensor's name; it may block.

    ``boot`` is the kernel's id of this boot; ``mates`` is what its channels know of one another, ``feeds``
    what drivers are told of others' readings; ``jitter`` gives random numbers from 0 to 1; ``retries``
    counts, by sensor, what was asked again.
    """

    gateway: str
    run: str
    clock: Clock
    sequences: Sequences
    emit: Callable[[Reading, str], None]
    boot: str
    mates: MinuteMeans = field(default_factory=MinuteMeans)
    jitter: Callable[[], float] = random.random
    retries: Counter[str] = field(default_factory=Counter)
    feeds: Compensation = field(default_factory=Compensation)
