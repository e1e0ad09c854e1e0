"""Files that a run as root has left: reported as what they are, with the command that mends it."""

from __future__ import annotations

import os

import pytest

from buffer.errors import OutboxUnusable
from buffer.files import misowned_files, permission_problem
from buffer.sqlite_outbox import SqliteOutbox
from tests.support.users import NOBODY, ROOT_ONLY, as_nobody, nobodys_directory

pytestmark = ROOT_ONLY


@pytest.mark.parametrize("suffix", ["", ".lock"])
def test_a_file_of_roots_is_named_with_the_command_and_works_after_it(suffix: str) -> None:
    with nobodys_directory() as directory:
        path = directory / "outbox.db"
        with as_nobody():
            SqliteOutbox(path).close()
        file = directory / f"outbox.db{suffix}"
        os.chown(file, 0, 0)
        # What others may read SQLite opens, and can't write.
        file.chmod(0o644)
        found = f"sudo chown -h nobody: {file}"
        assert misowned_files(path) == f"{file} is root's, its directory nobody's: {found}"
        with as_nobody():
            outbox = SqliteOutbox(path, patient=True)
            with pytest.raises(OutboxUnusable) as refused:
                outbox.append([b"reading"])
            for problem in (str(refused.value), outbox.problem or ""):
                assert f"{file} is root's and can't be written by nobody: {found}" in problem
        os.chown(file, NOBODY, NOBODY)
        assert misowned_files(path) == ""
        with as_nobody():
            assert permission_problem(path) == ""
            assert outbox.append([b"reading"]) == [1]
            outbox.close()


def test_a_directory_of_roots() -> None:
    with nobodys_directory() as directory:
        os.chown(directory, 0, 0)
        with as_nobody():
            outbox = SqliteOutbox(directory / "outbox.db", patient=True)
            assert f": sudo chown -h nobody: {directory})" in (outbox.problem or "")
            outbox.close()
