"""What drivers that count pulses have in common: one pin's falling edges, over measured time."""

from __future__ import annotations

from drivers.interface import Board, EdgeCounter, Edges, ReadError


class CountedPin:
    """Each reading covers the time since the one before."""

    accumulates = True

    def __init__(self, board: Board, pin: int) -> None:
        self._board = board
        self._pin = pin
        self._counter: EdgeCounter | None = None
        self._read_at = 0.0

    def start(self) -> None:
        """Claim the pin and count from now on. Raises BoardError."""
        counter = self._board.count_edges(self._pin)
        self._read_at = self._board.monotonic()
        try:
            # Edges while the pin was being set up belong to no period.
            counter.take()
        except ReadError:
            # Else the next start would find the pin still in use.
            counter.close()
            raise
        self._counter = counter

    def take(self) -> tuple[Edges, float]:
        """The edges since the call before, and in how many seconds they came. Raises ReadError."""
        if self._counter is None:
            raise ReadError(f"the counter of pin {self._pin} isn't started")
        now = self._board.monotonic()
        elapsed_s = now - self._read_at
        if elapsed_s <= 0:
            raise ReadError("no time has passed since the previous reading")
        edges = self._counter.take()
        self._read_at = now
        return edges, elapsed_s

    def pulses(self) -> int:
        """The edges since ``start``, bounces among them. Any thread. Raises ReadError."""
        counter = self._counter
        return 0 if counter is None else counter.total()

    def stop(self) -> None:
        """Release the pin."""
        counter, self._counter = self._counter, None
        if counter is not None:
            counter.close()

    def description(self) -> dict[str, str | float | bool]:
        """What counts the pulses."""
        return {"counted_by": self._counter.method} if self._counter is not None else {}

    def diagnose(self) -> tuple[str, ...]:
        """What is wrong with the pin, as its level and its pulses show it."""
        if self._counter is None:
            return ()
        try:
            return self._sentences(high=self._counter.is_high())
        except ReadError as error:
            return (f"{error}.",)

    def _sentences(self, *, high: bool) -> tuple[str, ...]:
        raise NotImplementedError
