"""Which parts are stuck, and which only wait; on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, strategies as st

from gateway.system.watchdog import Heartbeat, Watchdog, sleeps_in_kernel
from tests.support.servers import eventually

PERIOD_S = 60.0


@dataclass
class Scene:
    """Parts whose marks the test sets, and threads that sleep in the kernel."""

    now_s: float = 1000.0
    heartbeats: list[Heartbeat] = field(default_factory=list)
    asleep: set[int] = field(default_factory=set)

    def watchdog(self) -> Watchdog:
        return Watchdog(
            lambda: self.heartbeats, PERIOD_S, lambda: self.now_s, lambda thread: thread in self.asleep
        )

    def show(self, mark: Hashable | None, *, periods: float = 0.5, plus_s: float = 0.0) -> None:
        self.heartbeats = [Heartbeat("part", mark, periods, plus_s, thread=7)]

    def after(self, watchdog: Watchdog, seconds: int) -> dict[str, float]:
        """Check each second."""
        stuck: dict[str, float] = {}
        for _ in range(seconds):
            self.now_s += 1.0
            stuck = watchdog.check()
        return stuck


STUCK = {"part": 31.0}
GONE: Final = ()
"""In the place of a mark: the part is not there."""
COURSES: Mapping[str, list[tuple[Hashable | None, int, dict[str, float]]]] = {
    # The first check sees the mark, the next thirty that it stays.
    "the same mark for longer than allowed": [(1, 31, {}), (1, 1, STUCK), (2, 31, {}), (2, 1, STUCK)],
    "nothing to do is no standstill and begins again": [(1, 30, {}), (None, 1000, {}), (1, 31, {})],
    "a part that goes and comes begins again": [(1, 30, {}), (GONE, 1, {}), (1, 31, {})],
}


@pytest.mark.parametrize("course", COURSES.values(), ids=COURSES)
def test_a_mark_that_stays_for_longer_than_allowed_is_stuck(
    course: list[tuple[Hashable | None, int, dict[str, float]]],
) -> None:
    scene = Scene()
    watchdog = scene.watchdog()
    for mark, seconds, stuck in course:
        scene.show(mark)
        if mark == GONE:
            scene.heartbeats = []
        assert scene.after(watchdog, seconds) == stuck


def test_seconds_of_its_own_come_on_top() -> None:
    scene = Scene()
    watchdog = scene.watchdog()
    scene.show("batch", periods=1.0, plus_s=120.0)
    assert scene.after(watchdog, 181) == {}
    assert scene.after(watchdog, 1) == {"part": 181.0}


def test_a_thread_that_waits_for_the_disk_is_never_stuck() -> None:
    scene = Scene(asleep={7})
    watchdog = scene.watchdog()
    scene.show(1)
    assert scene.after(watchdog, 3600) == {}
    # Not in the kernel any more, and still no step further.
    scene.asleep.clear()
    assert scene.after(watchdog, 30) == {}
    assert scene.after(watchdog, 1) == {"part": 31.0}


def test_what_a_suspended_process_has_not_seen_does_not_count() -> None:
    scene = Scene()
    watchdog = scene.watchdog()
    scene.show(1)
    scene.after(watchdog, 1)
    for _ in range(4):
        scene.now_s += 600.0
        assert watchdog.check() == {}
    # Four long intervals counted five seconds each.
    assert scene.after(watchdog, 10) == {}
    assert scene.after(watchdog, 1) == {"part": 31.0}


@given(st.lists(st.integers(0, 30), max_size=50))
def test_steps_in_time_are_never_stuck_however_they_come(pauses_s: list[int]) -> None:
    scene = Scene()
    watchdog = scene.watchdog()
    for step, pause_s in enumerate(pauses_s):
        scene.show(step)
        assert scene.after(watchdog, 1 + pause_s) == {}


@pytest.mark.parametrize(
    ("stat", "asleep"),
    [
        ("71 (outbox-writer) D 1 71", True),
        ("71 (outbox-writer) S 1 71", False),
        ("71 (odd) D name) R 1 71", False),
        ("", False),
    ],
)
def test_the_state_of_a_thread(tmp_path: Path, stat: str, asleep: bool) -> None:
    place = tmp_path / "proc/self/task/71"
    place.mkdir(parents=True)
    (place / "stat").write_text(stat)
    assert sleeps_in_kernel(71, tmp_path) is asleep
    assert not sleeps_in_kernel(72, tmp_path)


def test_pings_end_while_a_part_is_stuck_and_come_again(caplog: pytest.LogCaptureFixture) -> None:
    marks: dict[str, Hashable | None] = {"part": None}
    sent: list[str] = []
    watchdog = Watchdog(
        lambda: [Heartbeat("part", marks["part"], 0.5)], 0.3, asleep=lambda _: False, notify=sent.append
    )
    watchdog.start()
    try:
        eventually(lambda: sent.count("WATCHDOG=1"), until=lambda n: n > 2)
        marks["part"] = 1
        eventually(lambda: watchdog.stuck, until=lambda stuck: stuck == ("part",))
        pings = sent.count("WATCHDOG=1")
        eventually(lambda: len([each for each in sent if "part for" in each]), until=lambda n: n > 20)
        assert sent.count("WATCHDOG=1") == pings
        assert "event=watchdog.stuck part=part" in caplog.text
        marks["part"] = None
        eventually(lambda: sent.count("WATCHDOG=1"), until=lambda n: n > pings)
        assert watchdog.stuck == ()
        assert "event=watchdog.moves part=part" in caplog.text
    finally:
        watchdog.stop()
    pings = sent.count("WATCHDOG=1")
    watchdog.stop()
    assert sent.count("WATCHDOG=1") == pings
