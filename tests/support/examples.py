"""How many examples Hypothesis tries of what is cheap to break and dear to try."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> int:
    """So many where they are new each time, with ``--full``; a third of them where they are the same."""
    return count // 3 if settings.default is not None and settings.default.derandomize else count
