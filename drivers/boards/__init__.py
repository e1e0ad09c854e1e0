"""Boards: the real one, simulated weather, replayed files."""

from __future__ import annotations

from drivers.boards.registry import BOARDS, board_options, open_board
from drivers.emulation.environment import Site

__all__ = ["BOARDS", "Site", "board_options", "open_board"]
