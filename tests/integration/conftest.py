"""What tests with a browser share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser import Chromium


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A browser of the module's."""
    with Chromium(tmp_path_factory.mktemp("chromium") / "profile") as browser:
        yield browser
