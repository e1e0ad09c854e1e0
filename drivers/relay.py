"""A relay on a pin, or whatever else a level switches: active level, safe state, minimum times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from annotated_types import Ge, Le

from drivers.interface import Board, OutputPin
from drivers.option_docs import BcmPin, Meaning

OnOff = Literal["off", "on"]
WORDS: Final[dict[bool, OnOff]] = {False: "off", True: "on"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    """How a relay is wired, and how often it may switch."""

    pin: BcmPin
    active: Annotated[Literal["high", "low"], Meaning("the pin's level that switches it on")] = "high"
    safe: Annotated[OnOff, Meaning("its state at start, at stop, after a crash, and without readings")] = (
        "off"
    )
    min_on_s: Annotated[float, Ge(0), Le(3600), Meaning("how long it stays on at least", "s")] = 0.0
    min_off_s: Annotated[float, Ge(0), Le(3600), Meaning("how long it stays off at least", "s")] = 0.0


class Relay:
    """One relay, for one thread at a time; ``on`` is None while its pin isn't claimed."""

    def __init__(self, board: Board, options: RelayOptions, monotonic: Callable[[], float]) -> None:
        self._board = board
        self._options = options
        self._monotonic = monotonic
        self._line: OutputPin | None = None
        self._since_s = 0.0
        self.safe = options.safe == "on"
        self.on: bool | None = None

    def start(self) -> None:
        """Claim the pin, in the safe state from the first moment on. Raises BoardError."""
        level = self._level(self.safe)
        self._line = self._board.drive(self._options.pin, high=level, pull_up=level)
        self.on, self._since_s = self.safe, self._monotonic()

    def switch(self, on: bool, *, at_once: bool = False) -> bool:
        """Switch, if the minimum time is over or ``at_once``; whether it has switched. Raises BoardError."""
        if self._line is None or on == self.on:
            return False
        least_s = self._options.min_on_s if self.on else self._options.min_off_s
        now_s = self._monotonic()
        if not at_once and now_s - self._since_s < least_s:
            return False
        try:
            self._line.set(high=self._level(on))
        except BaseException:
            self._release()
            raise
        self.on, self._since_s = on, now_s
        return True

    def stop(self) -> None:
        """Switch to the safe state and release the pin. Raises BoardError."""
        try:
            self.switch(self.safe, at_once=True)
        finally:
            self._release()

    def _release(self) -> None:
        line, self._line, self.on = self._line, None, None
        if line is not None:
            line.close()

    def _level(self, on: bool) -> bool:
        return on == (self._options.active == "high")
