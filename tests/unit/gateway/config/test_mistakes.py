"""The mistakes that people make in a config, each with the exact words it gets.

The catalogue is ``tests/fixtures/config-mistakes.txt``: after ``####`` the mistake's name, then the file as
it was written, after ``>>>>`` everything that check reports, line by line. A file without ``[gateway]``
gets one at its end, one without sensors and forwards a forward, so that nothing else is wrong with it.
``{drivers}`` are the built-in drivers' names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivers.registry import DRIVERS
from gateway.config import ConfigError, check, load

CATALOGUE = Path(__file__).parents[3] / "fixtures" / "config-mistakes.txt"
GATEWAY = '[gateway]\nid = "mast-07"\n'
FORWARD = '[[forward]]\nfilter = "other/#"\n'


def _catalogue() -> dict[str, tuple[str, list[str]]]:
    mistakes: dict[str, tuple[str, list[str]]] = {}
    for block in re.split(r"^#### ", CATALOGUE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("\n")
        text, _, reported = rest.replace("{drivers}", ", ".join(DRIVERS)).partition(">>>>\n")
        assert name not in mistakes, f"two mistakes are called {name!r}"
        mistakes[name] = (text, reported.split("\n")[: reported.rstrip("\n").count("\n") + 1])
    return mistakes


MISTAKES = _catalogue()


def _reported(path: Path) -> list[str]:
    _, problems = check(path)
    return [
        str(problem).removeprefix(f"{path}:") + (" [warning]" if problem.severity == "warning" else "")
        for problem in problems
    ]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_reported_in_these_words(name: str, tmp_path: Path) -> None:
    text, expected = MISTAKES[name]
    path = tmp_path / "gateway.toml"
    path.write_text(
        text + (GATEWAY if "[gateway]" not in text else "") + (FORWARD if "[[" not in text else "")
    )
    assert _reported(path) == expected
    # Warnings leave a config, errors don't, but those of the uplink's properties.
    config, problems = check(path)
    assert (config is None) == any(each.severity == "error" and not each.starts for each in problems)
    uplink = ("kafka.properties", "kafka.format", "kafka.schema_registry")
    assert all(each.key.startswith(uplink) for each in problems if each.starts)


def test_a_report_has_the_line_and_is_short() -> None:
    for name, (text, expected) in MISTAKES.items():
        lines = text.count("\n") + 1
        for reported in expected:
            assert 1 <= int(reported.partition(":")[0]) <= lines, name
            # A phone held upright on a mast: a few lines of it.
            assert len(reported) <= 260, name


def _of_bytes(tmp_path: Path, content: bytes) -> list[str]:
    path = tmp_path / "gateway.toml"
    path.write_bytes(content)
    return _reported(path)


def test_files_that_hold_no_text(tmp_path: Path) -> None:
    empty = "1: is empty: fieldgate init writes a file to begin with"
    assert _of_bytes(tmp_path, b"") == [empty]
    assert _of_bytes(tmp_path, b" \r\n\t\n") == [empty]
    assert _of_bytes(tmp_path, b"\0" * 4096) == [
        "1: holds zeros only, as after a power cut while it was written: restore it from a copy"
    ]
    assert _of_bytes(tmp_path, '[gateway]\nid = "m"\n'.encode("utf-16")) == [
        "1: is not UTF-8 (byte 0xff on this line): save the file as UTF-8"
    ]
    assert _of_bytes(tmp_path, '[gateway]\n# Höhe\nid = "m"\n'.encode("latin-1")) == [
        "2: is not UTF-8 (byte 0xf6 on this line): save the file as UTF-8"
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"#" * ((1 << 20) + 1), "1: is larger than 1048576 bytes: not a config"),
        (b"a = " + b"[" * 50_000, "1: is nested too deeply"),
        (b"a = " + b"[" * 100 + b"]" * 100, f"1: a{'[1]' * 16}: is nested too deeply"),
        (b"\na = 0x" + b"f" * 5000, "2: a: is beyond 64 bits"),
    ],
    ids=["large", "open", "deep", "digits"],
)
def test_files_without_end(tmp_path: Path, content: bytes, problem: str) -> None:
    assert _of_bytes(tmp_path, content) == [problem]


def test_load_raises_all_problems(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(MISTAKES["all at once: wiring"][0])
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.problems == check(path)[1]
    assert str(caught.value).splitlines() == [str(each) for each in check(path)[1]]


def test_editors_that_write_other_line_ends_tabs_and_marks_are_fine(tmp_path: Path) -> None:
    text = f"[gateway]\r\n\tid\t=\t'mast-07'\t# ridge\r\n{FORWARD}"
    assert _of_bytes(tmp_path, b"\xef\xbb\xbf" + text.encode()) == []


def test_places_that_are_no_file(tmp_path: Path) -> None:
    then = "fieldgate init writes one, -c names another"
    assert _reported(tmp_path / "none.toml") == [f"1: there is no such file: {then}"]
    assert _reported(tmp_path / "none" / "gateway.toml") == [
        f"1: there is no such file, nor a directory {tmp_path / 'none'}: {then}"
    ]
    assert _reported(tmp_path) == [
        f"1: is a directory: name the file in it, such as {tmp_path / 'gateway.toml'}"
    ]


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user can read, as pytest's own are not."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, which then puts its rights aside")
def test_a_file_that_may_not_be_read_is_reported_with_a_remedy(open_directory: Path) -> None:
    path = open_directory / "gateway.toml"
    path.write_text(GATEWAY)
    path.chmod(0o640)
    script = (
        "import os, pathlib, pwd; from gateway.config import check\n"
        "os.setegid(65534); os.seteuid(65534)\n"
        f"print(check(pathlib.Path({str(path)!r}))[1][0].message)"
    )
    reported = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert reported == (
        "can't be read by user nobody: use sudo, or become a member of its group (ls -l shows it)\n"
    )
