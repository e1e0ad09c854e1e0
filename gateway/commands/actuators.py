"""``fieldgate service relays --safe``: every relay in its safe state, after a daemon that crashed."""

from __future__ import annotations

import argparse
import time

from cloud.command_line import OK, add_config, fail
from drivers.boards.registry import open_board
from drivers.interface import DriverError
from drivers.relay import Relay
from gateway.config.wiring import relays_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The config, and what to do."""
    add_config(parser)
    parser.add_argument("--safe", action="store_true", required=True, help="switch each to its safe state")


def run(arguments: argparse.Namespace) -> int:
    """Switch all; FAILED where one can't be. Raises ConfigError, BoardError."""
    config, actuators = relays_of(arguments.config)
    if not actuators:
        return OK
    board = open_board(config.options, (), arguments.config.absolute().parent)
    code = OK
    for actuator in actuators:
        relay = Relay(board, actuator, time.monotonic)
        try:
            relay.start()
            relay.stop()
            print(f"{actuator.name}: {actuator.safe}")
        except DriverError as error:
            code = fail(f"{actuator.name}: {error}")
    board.close()
    return code
