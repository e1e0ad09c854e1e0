"""Files that a run as root has left: reported as what they are, with the command that mends it."""

from __future__ import annotations

import os

import pytest

from buffer.files import permission_problem, strange_files
from buffer.tiered_outbox import TieredOutbox
from tests.support.users import NOBODY, ROOT_ONLY, as_nobody, nobodys_directory

pytestmark = ROOT_ONLY


@pytest.mark.parametrize("suffix", ["", ".lock"])
def test_a_file_of_roots_is_named_with_the_command_and_works_after_it(suffix: str) -> None:
    now_s = 0.0
    with nobodys_directory() as directory:
        path = directory / "outbox.db"
        with as_nobody():
            TieredOutbox(path).close()
        file = directory / f"outbox.db{suffix}"
        os.chown(file, 0, 0)
        # What others may read SQLite opens, and can't write.
        file.chmod(0o644)
        found = f"sudo chown -h nobody: {file}"
        assert strange_files(path) == f"{file} is root's, its directory nobody's: {found}"
        with as_nobody():
            outbox = TieredOutbox(path, monotonic=lambda: now_s)
            outbox.append([b"reading"])
            problem = outbox.in_memory().problem or ""
            assert f"{file} is root's and can't be written by nobody: {found}" in problem
        os.chown(file, NOBODY, NOBODY)
        assert strange_files(path) == ""
        with as_nobody():
            assert permission_problem(path) == ""
            now_s += 60.0
            outbox.tend()
            assert outbox.in_memory().problem is None
            outbox.close()


def test_a_directory_of_roots() -> None:
    with nobodys_directory() as directory:
        os.chown(directory, 0, 0)
        with as_nobody():
            outbox = TieredOutbox(directory / "outbox.db")
            assert f": sudo chown -h nobody: {directory})" in (outbox.in_memory().problem or "")
            outbox.close()
