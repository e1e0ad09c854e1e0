"""What people can do about an alert of the packaged rules: one remedy for the pages and the messages."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path


@cache
def remedies() -> Mapping[str, Mapping[str, str]]:
    """Remedies by rule; findings of its ``area`` that have ``says`` in their words are of the same cause."""
    with Path(__file__).with_name("remedies.csv").open(newline="") as file:
        return {row["rule"]: row for row in csv.DictReader(file)}


def remedy_of(event: str) -> str:
    """What to do about a gateway's event of that kind; '' where there is nothing to do."""
    return next((row["remedy"] for row in remedies().values() if event in row["events"].split()), "")
