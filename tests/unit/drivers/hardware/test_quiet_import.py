"""What hardware libraries print while they are imported, and what others print meanwhile."""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path

import pytest

from drivers.hardware.quiet_import import quiet_import

_LIBRARY = """
import threading

print("WARNING: this is no board of ours")
threading.imported.set()
assert threading.printed.wait(60)
print("and still none")
"""


def test_what_a_library_prints_is_kept_and_what_others_print_is_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="drivers.hardware.quiet_import")
    (tmp_path / "chatty_library.py").write_text(_LIBRARY)
    monkeypatch.syspath_prepend(str(tmp_path))
    imported, printed = threading.Event(), threading.Event()
    monkeypatch.setattr(threading, "imported", imported, raising=False)
    monkeypatch.setattr(threading, "printed", printed, raising=False)
    before = sys.stdout
    driver = threading.Thread(target=quiet_import, args=("chatty_library", "install it"))
    driver.start()
    assert imported.wait(60)
    kept = sys.stdout
    kept.write("the report\n")
    assert (kept.isatty(), kept.encoding) == (before.isatty(), before.encoding)
    printed.set()
    driver.join()
    kept.write("and its end\n")
    assert sys.stdout is before
    assert capsys.readouterr().out == "the report\nand its end\n"
    (message,) = caplog.messages
    assert "WARNING: this is no board of ours" in message
    assert "and still none" in message
