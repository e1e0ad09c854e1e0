"""What the cloud side raises on purpose, and why a record was given up."""

from __future__ import annotations

from dataclasses import dataclass


class CloudError(Exception):
    """Something the operator can act on; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class Undelivered:
    """Why a record was given up: ``problem`` in words, with the error's name.

    ``record_at_fault`` where trying again can't help; ``topic_at_fault`` where a topic has to be mended, and
    others may go on.
    """

    problem: str
    record_at_fault: bool
    topic_at_fault: bool
