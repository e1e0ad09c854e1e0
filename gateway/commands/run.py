"""``fieldgate run``: the daemon on the mast, and the process around it."""

from __future__ import annotations

import argparse
import faulthandler
import gc
import logging
from typing import Final

from buffer.errors import OutboxError
from cloud.command_line import FAILED, add_config, add_overrides, positive
from drivers.interface import BoardError
from gateway.config import ConfigError, load
from gateway.daemon.build import build
from gateway.system import logs

log = logging.getLogger(__name__)

_COLLECT: Final = (50_000, 20, 20)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The config, overrides, and how long to sample."""
    add_config(parser)
    add_overrides(parser)
    parser.add_argument(
        "--seconds", type=positive, metavar="N", help="stop sampling after N seconds; go on forwarding"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the daemon until SIGTERM or SIGINT; its exit code."""
    path, overrides = arguments.config, dict(arguments.overrides)
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
            return FAILED
        except (BoardError, OutboxError) as error:
            log.error("event=daemon.cannot_start error=%s", error)
            return FAILED
        # What lives as long as the daemon is no garbage, and messages on their way are many: the collector
        # took 15 % of the time of each.
        gc.freeze()
        gc.set_threshold(*_COLLECT)
        return daemon.run(arguments.seconds)
