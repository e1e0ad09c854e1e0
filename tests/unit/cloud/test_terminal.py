"""Progress on stderr: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from cloud.terminal import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_a_terminal_alone_shows_counts(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar("records sent") as shown:
        shown(1000, 2000)
    assert ("1,000 records sent" in stream.getvalue()) is stream.isatty()
    assert stream.isatty() or stream.getvalue() == ""
