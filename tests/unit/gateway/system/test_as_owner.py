"""Root writes in the service's directories as its user, so that a link there leads root nowhere."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gateway.commands.commissioning.session import Session
from gateway.config import load
from gateway.reporting.event_spool import NotSpooled, spool_directory, spool_event
from gateway.system.atomic_file import Ownership, as_owner_of, ownership_of
from tests.support.config import baro, config_text, write_config
from tests.support.users import NOBODY, ROOT_ONLY, nobodys_directory

pytestmark = ROOT_ONLY


def test_an_event_that_root_leaves_belongs_to_the_directorys_owner() -> None:
    with nobodys_directory() as directory:
        event = spool_event(directory / "outbox.db", "x", {})
        assert ownership_of(event.parent) == Ownership(NOBODY, NOBODY, 0o750)
        assert ownership_of(event) == Ownership(NOBODY, NOBODY, 0o640)
        session = Session(load(write_config(directory, config_text(baro()))))
        session.close()
        assert {path.stat().st_uid for path in (directory / "commissioning").rglob("*")} == {NOBODY}
    assert os.geteuid() == 0


def test_a_link_leads_root_nowhere(tmp_path: Path) -> None:
    roots = tmp_path / "etc"
    roots.mkdir(mode=0o700)
    before = roots.stat()
    with nobodys_directory() as directory:
        spool_directory(directory / "outbox.db").symlink_to(roots)
        with pytest.raises(NotSpooled, match="Permission denied"):
            spool_event(directory / "outbox.db", "x", {})
        # A directory below that is a link to root's is no more root's.
        (directory / "below").symlink_to(roots)
        with pytest.raises(PermissionError), as_owner_of(directory / "below"):
            (directory / "below" / "file").touch()
        with as_owner_of(directory / "below"):
            assert os.geteuid() == NOBODY
            assert os.getgroups() == []
    assert list(roots.iterdir()) == []
    assert (before.st_uid, stat.S_IMODE(before.st_mode)) == (roots.stat().st_uid, 0o700)


def test_in_roots_own_directories_root_stays_root(tmp_path: Path) -> None:
    with as_owner_of(tmp_path / "none"):
        assert os.geteuid() == 0
