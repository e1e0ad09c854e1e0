"""Progress on stderr: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from gateway.commands import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_a_terminal_shows_counts_that_take_longer(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.progress_bar("records sent") as at_once:
        at_once(1000, 2000)
    assert stream.getvalue() == ""
    monkeypatch.setattr(progress, "_REDRAW_EVERY_S", 0.0)
    with progress.progress_bar("records sent") as longer:
        longer(1000, 2000)
    assert ("1,000 records sent" in stream.getvalue()) is stream.isatty()
