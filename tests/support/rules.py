"""Rules of alerts, by the text of their file."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from spark_jobs.alerting.rules import Rules, load_rules


def rules_of(text: str) -> Rules:
    """The rules of a file ``r.toml`` with this text. Raises SettingsError."""
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        Path("r.toml").write_text(text, encoding="utf-8")
        return load_rules(Path("r.toml"))
