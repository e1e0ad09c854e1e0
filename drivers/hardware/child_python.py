"""The environment of a child that runs Python, wherever this process was installed."""

from __future__ import annotations

import os
import sys


def child_environment() -> dict[str, str]:
    """Returns this environment, with a PYTHONPATH by which a child imports what this process imports.

    The package's command extends ``sys.path`` in the process itself, which a child doesn't inherit. Children
    that others wrote, such as a command that resets a modem, must not get it: they would import our versions
    of their libraries.
    """
    return {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
