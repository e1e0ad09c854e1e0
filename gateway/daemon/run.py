"""``fieldgate run``: the process around the daemon."""

from __future__ import annotations

import faulthandler
import gc
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from buffer.errors import OutboxError
from drivers.interface import BoardError
from gateway.config import ConfigError, load
from gateway.daemon.build import build
from gateway.system import logs

log = logging.getLogger(__name__)

_COLLECT: Final = (50_000, 20, 20)


def run(path: Path, overrides: Mapping[str, object], seconds: float | None) -> int:
    """Run until SIGTERM or SIGINT; the exit code. ``seconds`` ends the sampling, not the forwarding."""
    # What every thread is doing when the watchdog ends this process (SIGABRT), or a library crashes it.
    faulthandler.enable()
    with logs.set_up():
        try:
            config = load(path, overrides, starting=True)
            for problem in config.problems:
                log.error("event=config.incomplete problem=%s", problem)
            daemon = build(config, path, overrides)
        except ConfigError as error:
            for problem in error.problems:
                log.error("event=config.refused problem=%s", problem)
            return 1
        except (BoardError, OutboxError) as error:
            log.error("event=daemon.cannot_start error=%s", error)
            return 1
        # What lives as long as the daemon is no garbage, and messages on their way are many: the collector
        # took 15 % of the time of each.
        gc.freeze()
        gc.set_threshold(*_COLLECT)
        return daemon.run(seconds)
