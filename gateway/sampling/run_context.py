"""What all samplers of one run share."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cloud.wire.reading_records import Reading
from gateway.ports import Clock
from gateway.quality.minute_means import MinuteMeans
from gateway.sampling.compensation import Compensation
from gateway.sequences import Sequences


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run of a mast. ``emit`` receives a reading and its sensor's name; it may block.

    ``boot`` is the kernel's id of this boot; ``jitter`` returns random numbers from 0 to 1; ``retries``
    counts repeated reads by sensor. ``extra`` are fields that each reading gets.
    """

    gateway: str
    run: str
    clock: Clock
    sequences: Sequences
    emit: Callable[[Reading, str], None]
    boot: str
    minute_means: MinuteMeans = field(default_factory=MinuteMeans)
    jitter: Callable[[], float] = random.random
    retries: Counter[str] = field(default_factory=Counter)
    extra: Mapping[str, Any] = field(default_factory=dict)
    compensation: Compensation = field(default_factory=Compensation)
