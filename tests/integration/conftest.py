"""What tests with a browser share, and those of the Debian package."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Chromium
from tests.support.debian_package import build, native_release


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A browser of the module's."""
    with Chromium(tmp_path_factory.mktemp("chromium") / "profile") as browser:
        yield browser


@pytest.fixture(scope="session")
def release() -> str:
    """The Debian release whose package runs here."""
    return native_release()


@pytest.fixture(scope="session")
def architecture() -> str:
    return {"aarch64": "arm64"}.get(os.uname().machine, "amd64")


@pytest.fixture(scope="session")
def package(release: str, architecture: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("package")
    done = build(output, "--release", release, "--arch", architecture)
    assert done.returncode == 0, done.stderr
    [package] = output.glob("*.deb")
    return package


@pytest.fixture(scope="session")
def tree(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, unpacked."""
    top = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["dpkg-deb", "-R", str(package), str(top)], check=True)
    return top
