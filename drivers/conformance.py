"""What every driver must do, as functions that raise AssertionError: ours, and those of packages.

A package's test calls each of ``CHECKS`` with a ``Subject`` (``docs/drivers.md``): on a simulated board,
which needs the driver to be installed and emulated, or on a real one with the sensor wired.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any, Final, get_type_hints

from drivers.boards.registry import BOARDS, open_board
from drivers.driver_type import Claim, Concern, DriverType, Nameplate
from drivers.interface import Board, BoardError, DriverError, FittedSensor, ReadError
from drivers.option_docs import Meaning
from drivers.registry import driver_type

DRIVER_REASONS: Final = frozenset(
    {"UNDER_RANGE", "OVER_RANGE", "STUCK_VALUE", "STEP_TOO_HIGH", "SPIKE", "NOISY", "WARMING_UP", "DEAD_BAND"}
)
"""Reasons of the wire contract that a driver may add to a value."""

_READS: Final = 3
_AS_FAST_AS_POSSIBLE: Final = 1_000_000.0
_START: Final = "2026-03-01T04:00:00Z"


@dataclasses.dataclass(frozen=True)
class Subject:
    """A driver with the options of one sensor; ``board`` is a real one, None for a simulated one."""

    kind: DriverType
    options: Any
    board: Board | None = None
    interval_s: float = 0.0
    """Between two reads; the driver's shortest where it is less, and 10 s on a simulated board."""

    def fitted_board(self) -> AbstractContextManager[Board]:
        """A board with the sensor."""
        return simulated([self.fitted()]) if self.board is None else nullcontext(self.board)

    def fitted(self) -> FittedSensor:
        """The sensor as a board sees it."""
        return FittedSensor("sensor", self.kind.name, self.options, self.kind.channels_of(self.options))

    def pass_time(self, board: Board) -> None:
        """Let an interval go by."""
        seconds = 10.0 if self.board is None else max(self.interval_s, self.kind.min_interval_s)
        if board.clock is None:
            threading.Event().wait(seconds)
        elif not board.clock.wait_until(board.clock.now_ns() + round(seconds * 1e9)):
            raise AssertionError("the board's time has ended")


def simulated(sensors: list[FittedSensor]) -> AbstractContextManager[Board]:
    """A simulated board with these sensors."""
    options = BOARDS["simulated"](seed=1, speed=_AS_FAST_AS_POSSIBLE, start=_START)
    return closing(open_board(options, sensors, Path()))


def the_type_is_complete(subject: Subject) -> None:
    """Name, options with meanings, channels with ranges, a shortest interval; registered by its name."""
    kind = subject.kind
    assert driver_type(kind.name) is kind, f"{kind.name} is another driver's name"
    assert kind.min_interval_s > 0
    assert dataclasses.is_dataclass(kind.options)
    hints = get_type_hints(kind.options, include_extras=True)
    undescribed = [
        name
        for name, hint in hints.items()
        if not any(isinstance(each, Meaning) for each in getattr(hint, "__metadata__", ()))
    ]
    assert not undescribed, f"without Annotated[…, Meaning('…')]: {', '.join(undescribed)}"
    channels = kind.channels_of(subject.options)
    assert channels, "it measures nothing"
    quantities = [channel.quantity for channel in channels]
    assert len(quantities) == len(set(quantities)), f"one sensor has each quantity once: {quantities}"
    for channel in channels:
        assert math.isfinite(channel.lower), channel
        assert math.isfinite(channel.upper), channel
        assert channel.lower < channel.upper, channel
        assert channel.accuracy is None or channel.accuracy > 0, channel


def its_claims_clash_with_themselves(subject: Subject) -> None:
    """Claims and concerns are what they should be; two sensors on one part are found."""
    claims = tuple(subject.kind.claims(subject.options))
    assert all(isinstance(claim, Claim) for claim in claims)
    for claim in claims:
        assert claim.key, f"{claim.part}: no key"
        twin = dataclasses.replace(claim, shared=None)
        assert twin.clashes(claim), f"two sensors could both have {claim.part}"
    assert all(isinstance(each, Concern) for each in subject.kind.concerns(subject.options, Nameplate()))


def its_constructor_touches_nothing(subject: Subject) -> None:
    """No bus, no pin, no file before ``start``; a read before it is a ReadError, a stop harmless."""

    class Nothing:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"the constructor used the board's {name}")

    nothing: Any = Nothing()
    driver = subject.kind.make(nothing, subject.options)
    assert driver.channels == subject.kind.channels_of(subject.options)
    assert isinstance(driver.accumulates, bool)
    driver.stop()
    with subject.fitted_board() as board:
        driver = subject.kind.make(board, subject.options)
        try:
            driver.read()
        except ReadError:
            pass
        else:
            # A connection may be made at the first read (gpsd); then there must be an answer.
            driver.stop()


def reads_answer_for_every_channel(subject: Subject) -> None:
    """Each read has every channel, in order, finite and within the sensor's own range."""
    with subject.fitted_board() as board:
        driver = subject.kind.make(board, subject.options)
        driver.start()
        try:
            for _ in range(_READS):
                subject.pass_time(board)
                measurements = driver.read()
                assert [one.quantity for one in measurements] == [each.quantity for each in driver.channels]
                for one, channel in zip(measurements, driver.channels, strict=True):
                    assert channel.lower <= one.value <= channel.upper, (one, channel)
                    assert math.isfinite(one.raw), one
                    assert (one.position is not None) == (channel.quantity == "location"), one
                    assert set(one.reasons) <= DRIVER_REASONS, one
        finally:
            driver.stop()


def it_starts_again_after_a_stop(subject: Subject) -> None:
    """Twice started, read and stopped, the second time twice."""
    with subject.fitted_board() as board:
        driver = subject.kind.make(board, subject.options)
        for _ in range(2):
            driver.start()
            subject.pass_time(board)
            assert all(math.isfinite(one.value) for one in driver.read())
            driver.stop()
            driver.stop()


def another_driver_takes_over(subject: Subject) -> None:
    """A stopped driver keeps nothing: a second one can claim all of it."""
    with subject.fitted_board() as board:
        first = subject.kind.make(board, subject.options)
        second = subject.kind.make(board, subject.options)
        first.start()
        first.stop()
        second.start()
        try:
            subject.pass_time(board)
            assert len(second.read()) == len(second.channels)
        finally:
            second.stop()


def an_absent_sensor_is_an_error(subject: Subject) -> None:
    """``start`` or ``read`` raises an error with a message on a board without it; ``stop`` is harmless."""
    with simulated([]) as board:
        driver = subject.kind.make(board, subject.options)
        try:
            driver.start()
            if driver.accumulates:
                # A cup at rest is the same.
                return
            driver.read()
        except (BoardError, ReadError) as error:
            if not str(error):
                raise AssertionError("an error without a message") from error
        except DriverError as error:
            raise AssertionError(f"neither BoardError nor ReadError: {error!r}") from error
        else:
            raise AssertionError("it read a sensor that isn't there")
        finally:
            driver.stop()


CHECKS: Final[tuple[Callable[[Subject], None], ...]] = (
    the_type_is_complete,
    its_claims_clash_with_themselves,
    its_constructor_touches_nothing,
    reads_answer_for_every_channel,
    it_starts_again_after_a_stop,
    another_driver_takes_over,
    an_absent_sensor_is_an_error,
)
ON_HARDWARE: Final = CHECKS[:-1]
"""Those that make sense with a sensor that is wired."""
