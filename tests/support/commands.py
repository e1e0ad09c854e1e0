"""The commands over a lake, called as a user calls them; each returns the exit code."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.cli import main


def query(words: Sequence[str]) -> int:
    return main(["query", *words])


def import_files(words: Sequence[str]) -> int:
    return main(["import", *words])


def cleaning(words: Sequence[str]) -> int:
    return main(["cleaning", *words])


def export(words: Sequence[str]) -> int:
    return main(["export", *words])


def report(words: Sequence[str]) -> int:
    return main(["report", *words])


def dashboard(words: Sequence[str]) -> int:
    return main(["dashboard", *words])


def notify(words: Sequence[str]) -> int:
    return main(["notify", *words])
