"""When readings need wait for the clock no longer, and what the next run knows of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.anchors import Anchors
from gateway.clock import SystemClock
from gateway.holdback import Verdict
from gateway.timekeeper import Timekeeper

BOOTED_MS = 1_795_246_000_123
WRONG_MS = 1_600_000_000_000


@dataclass
class Kernel:
    """A kernel's clocks; a boot began at ``offset_ms`` by its wall clock."""

    path: Path
    offset_ms: int = WRONG_MS
    synchronised: bool = False

    def start(self, boot: str = "boot-1", hold_s: float = 60.0, trust: Any = "kernel") -> Timekeeper:
        anchors = Anchors(self.path)
        clock = SystemClock(
            trust,
            known_synced=anchors.offset_ms(boot) is not None,
            synchronised=lambda: self.synchronised,
            wall_ns=lambda: self.offset_ms * 1_000_000 + 7_000_000_000,
            boot_ns=lambda: 7_000_000_000,
        )
        return Timekeeper(clock, boot, anchors, hold_s, trust)

    def kept(self) -> Any:
        return json.loads(self.path.read_text())["boots"]


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path / "outbox.db.clock")


def test_a_clock_that_is_synchronised_is_the_verdict_once_and_is_kept(kernel: Kernel) -> None:
    keeper = kernel.start()
    assert keeper.check(59.9) is None
    assert not kernel.path.exists()
    kernel.offset_ms, kernel.synchronised = BOOTED_MS, True
    assert keeper.check(60.0) == Verdict("boot-1", BOOTED_MS)
    assert keeper.check(3600.0) is None
    assert kernel.kept() == {"boot-1": {"offset_ms": BOOTED_MS}}


def test_the_next_run_of_a_boot_trusts_its_clock_and_keeps_its_anchor(kernel: Kernel) -> None:
    kernel.synchronised, kernel.offset_ms = True, BOOTED_MS
    kernel.start()
    before = kernel.path.stat().st_mtime_ns
    kernel.synchronised, kernel.offset_ms = False, BOOTED_MS + 30
    keeper = kernel.start()
    assert not keeper.holdback().active
    assert keeper.check(1e9) is None
    assert kernel.path.stat().st_mtime_ns == before
    assert kernel.kept() == {"boot-1": {"offset_ms": BOOTED_MS}}
    # The next boot knows nothing yet.
    assert kernel.start("boot-2").holdback().active


def test_when_the_hold_ends_that_is_for_the_whole_boot(kernel: Kernel) -> None:
    keeper = kernel.start()
    assert keeper.check(60.0) == Verdict("boot-1", None)
    assert keeper.check(61.0) is None
    assert kernel.kept() == {"boot-1": {"gave_up": True}}
    keeper = kernel.start()
    assert not keeper.holdback().active
    kernel.offset_ms, kernel.synchronised = BOOTED_MS, True
    assert keeper.check(0.0) is None
    assert kernel.kept() == {"boot-1": {"gave_up": True, "offset_ms": BOOTED_MS}}
    assert Anchors(kernel.path).verdicts == {"boot-1": None}


def test_without_a_hold_the_first_sign_of_kafka_ends_it(kernel: Kernel) -> None:
    keeper = kernel.start(hold_s=0.0)
    assert keeper.check(0.0) is None
    assert keeper.check(0.001) == Verdict("boot-1", None)


def test_a_clock_that_is_always_trusted_writes_nothing(kernel: Kernel) -> None:
    assert not kernel.start(trust="always").holdback().active
    assert not kernel.path.exists()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "\0\0\0\0", '{"boots":{"b":7}}', '{"boots":{"b":{"offset_ms":1e400}}}',
     '{"boots":{"b":{"offset_ms":5}}}', '{"boots":[]}'],
)  # fmt: skip
def test_a_damaged_file_is_no_reason_not_to_sample(kernel: Kernel, text: str) -> None:
    kernel.path.write_text(text)
    keeper = kernel.start()
    kernel.synchronised, kernel.offset_ms = True, BOOTED_MS
    assert keeper.check(0.0) == Verdict("boot-1", BOOTED_MS)
    assert kernel.kept() == {"boot-1": {"offset_ms": BOOTED_MS}}


def test_a_file_that_cannot_be_written_is_no_reason_either(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path / "nowhere" / "outbox.db.clock", synchronised=True, offset_ms=BOOTED_MS)
    assert not kernel.start().holdback().active


def test_the_newest_boots_are_kept(kernel: Kernel) -> None:
    boots = {f"boot-{number}": {"offset_ms": BOOTED_MS + number} for number in range(256)}
    kernel.path.write_text(json.dumps({"boots": boots}))
    Anchors(kernel.path).anchor("boot-256", BOOTED_MS)
    assert list(Anchors(kernel.path).verdicts) == [f"boot-{number}" for number in range(1, 257)]


@pytest.mark.parametrize("hold_ends", [False, True])
def test_what_a_full_disk_refuses_is_written_once_there_is_room(kernel: Kernel, hold_ends: bool) -> None:
    # Held rows of this boot would lose their time at the next reboot, or leave a second time with another.
    keeper = kernel.start()
    in_the_way = kernel.path.with_name(kernel.path.name + ".new")
    in_the_way.mkdir()
    if hold_ends:
        assert keeper.check(60.0) == Verdict("boot-1", None)
    else:
        kernel.offset_ms, kernel.synchronised = BOOTED_MS, True
        assert keeper.check(0.0) == Verdict("boot-1", BOOTED_MS)
    assert not kernel.path.exists()
    in_the_way.rmdir()
    assert keeper.check(0.0) is None
    assert kernel.kept() == {"boot-1": {"gave_up": True} if hold_ends else {"offset_ms": BOOTED_MS}}
    before = kernel.path.stat().st_mtime_ns
    assert keeper.check(0.0) is None
    assert kernel.path.stat().st_mtime_ns == before
