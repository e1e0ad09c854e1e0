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
    at_once = progress.Progress("records sent")
    at_once(1000, 2000)
    at_once.end()
    assert stream.getvalue() == ""
    monkeypatch.setattr(progress, "_REDRAW_EVERY_S", 0.0)
    longer = progress.Progress("records sent")
    longer(1000, 2000)
    longer.end()
    assert ("1,000 records sent" in stream.getvalue()) is stream.isatty()
