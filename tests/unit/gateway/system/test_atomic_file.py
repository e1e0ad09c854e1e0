"""A file is replaced whole or not at all, for its owner."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud.whole_files import write_secret
from gateway.system.atomic_file import Ownership, ownership_of, replacing, write_atomic


def test_the_new_content_takes_the_place_of_the_old(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")
    write_atomic(path, b"n\xe9w", Ownership(os.geteuid(), os.getegid(), 0o600))
    assert path.read_bytes() == b"n\xe9w"
    assert ownership_of(path) == Ownership(os.geteuid(), os.getegid(), 0o600)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("failing", [OSError("no room"), KeyboardInterrupt()])
def test_what_fails_changes_nothing(tmp_path: Path, failing: BaseException) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"new")
            # In the same directory: a rename over file systems isn't atomic.
            assert Path(file.name).parent == tmp_path
            raise failing

    with pytest.raises(type(failing)):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_on_the_disk_before_it_has_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "file", []
    write_atomic(path, "old")
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append((descriptor, path.read_text())))
    write_atomic(path, "new")
    # The file under its temporary name, then the directory.
    assert [content for _, content in synced] == ["old", "new"]


def test_a_secret_is_for_its_owner_alone_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(os, "fchmod", lambda descriptor, mode: made.append(os.fstat(descriptor).st_mode))
    before = os.umask(0)
    try:
        # For the time being nobody but the owner may read: what is open stays open.
        write_atomic(tmp_path / "file", "new", Ownership(os.geteuid(), os.getegid(), 0o640))
        write_secret(tmp_path / "secret", "s")
    finally:
        os.umask(before)
    assert [oct(mode & 0o777) for mode in made] == ["0o600"]
    assert ownership_of(tmp_path / "secret").mode == 0o600


def test_a_secret_replaces_nothing_and_is_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "file").write_text("old")
    for name in ("link", "file"):
        with pytest.raises(FileExistsError):
            write_secret(tmp_path / name, "new")
    with pytest.raises(UnicodeError):
        write_secret(tmp_path / "broken", "\udcff")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "link"]
    assert (tmp_path / "file").read_text() == "old"
