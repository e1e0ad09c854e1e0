"""When readings need wait for the clock no longer, and what the next run takes over of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.clock.hold import BootTime
from gateway.clock.sync import BootOffsets, ClockSync
from gateway.clock.system_clock import Machine, SystemClock
from tests.support.disks import full_disk

BOOTED_MS = 1_795_246_000_123
WRONG_MS = 1_600_000_000_000


@dataclass
class Kernel:
    """A kernel's clocks; a boot began at ``offset_ms`` by its wall clock."""

    path: Path
    offset_ms: int = WRONG_MS
    synchronised: bool = False

    def start(self, boot: str = "boot-1", hold_s: float = 60.0, trust: Any = "kernel") -> ClockSync:
        offsets = BootOffsets(self.path)
        seen = offsets.of(boot)
        clock = SystemClock(
            trust,
            Machine(
                boot,
                lambda: self.synchronised,
                lambda: self.offset_ms * 1_000_000 + 7_000_000_000,
                lambda: 7_000_000_000,
            ),
            known_synced=seen.known and not seen.given,
        )
        return ClockSync(clock, boot, offsets, hold_s, trust)

    def kept(self) -> Any:
        return json.loads(self.path.read_text())["boots"]


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path / "outbox.db.clock")


def test_a_synchronised_clock_decides_once_and_its_offset_is_stored(kernel: Kernel) -> None:
    sync = kernel.start()
    assert sync.check(59.9) is None
    assert not kernel.path.exists()
    kernel.offset_ms, kernel.synchronised = BOOTED_MS, True
    assert sync.check(60.0) == BootTime("boot-1", BOOTED_MS)
    assert sync.check(3600.0) is None
    assert kernel.kept() == {"boot-1": {"offset_ms": BOOTED_MS}}


def test_the_next_run_of_a_boot_trusts_its_clock_and_keeps_its_offset(kernel: Kernel) -> None:
    kernel.synchronised, kernel.offset_ms = True, BOOTED_MS
    kernel.start()
    before = kernel.path.stat().st_mtime_ns
    kernel.synchronised, kernel.offset_ms = False, BOOTED_MS + 30
    sync = kernel.start()
    assert not sync.hold().active
    assert sync.check(1e9) is None
    assert kernel.path.stat().st_mtime_ns == before
    assert kernel.kept() == {"boot-1": {"offset_ms": BOOTED_MS}}
    # The next boot has nothing yet.
    assert kernel.start("boot-2").hold().active


def test_when_the_hold_ends_that_is_for_the_whole_boot(kernel: Kernel) -> None:
    sync = kernel.start()
    assert sync.check(60.0) == BootTime("boot-1", None)
    assert sync.check(61.0) is None
    assert kernel.kept() == {"boot-1": {"gave_up": True}}
    sync = kernel.start()
    assert not sync.hold().active
    kernel.offset_ms, kernel.synchronised = BOOTED_MS, True
    assert sync.check(0.0) is None
    assert kernel.kept() == {"boot-1": {"gave_up": True, "offset_ms": BOOTED_MS}}
    assert BootOffsets(kernel.path).boot_times == {"boot-1": None}


def test_without_a_hold_the_first_sign_of_kafka_ends_it(kernel: Kernel) -> None:
    sync = kernel.start(hold_s=0.0)
    assert sync.check(0.0) is None
    assert sync.check(0.001) == BootTime("boot-1", None)


def test_a_clock_that_is_always_trusted_writes_nothing(kernel: Kernel) -> None:
    assert not kernel.start(trust="always").hold().active
    assert not kernel.path.exists()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "\0\0\0\0", '{"boots":{"b":7}}', '{"boots":{"b":{"offset_ms":1e400}}}',
     '{"boots":{"b":{"offset_ms":5}}}', '{"boots":[]}'],
)  # fmt: skip
def test_a_damaged_file_is_no_reason_not_to_sample(kernel: Kernel, text: str) -> None:
    kernel.path.write_text(text)
    sync = kernel.start()
    kernel.synchronised, kernel.offset_ms = True, BOOTED_MS
    assert sync.check(0.0) == BootTime("boot-1", BOOTED_MS)
    assert kernel.kept() == {"boot-1": {"offset_ms": BOOTED_MS}}


def test_a_file_that_cannot_be_written_is_no_reason_either(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path / "nowhere" / "outbox.db.clock", synchronised=True, offset_ms=BOOTED_MS)
    assert not kernel.start().hold().active


def test_the_newest_boots_are_kept(kernel: Kernel) -> None:
    boots = {f"boot-{number}": {"offset_ms": BOOTED_MS + number} for number in range(256)}
    kernel.path.write_text(json.dumps({"boots": boots}))
    BootOffsets(kernel.path).measured("boot-256", BOOTED_MS)
    assert list(BootOffsets(kernel.path).boot_times) == [f"boot-{number}" for number in range(1, 257)]


@pytest.mark.parametrize("hold_ends", [False, True])
def test_what_a_full_disk_refuses_is_written_once_there_is_room(kernel: Kernel, hold_ends: bool) -> None:
    # Held rows of this boot would lose their time at the next reboot, or leave a second time with another.
    sync = kernel.start()
    with full_disk():
        if hold_ends:
            assert sync.check(60.0) == BootTime("boot-1", None)
        else:
            kernel.offset_ms, kernel.synchronised = BOOTED_MS, True
            assert sync.check(0.0) == BootTime("boot-1", BOOTED_MS)
        assert not kernel.path.exists()
    assert sync.check(0.0) is None
    assert kernel.kept() == {"boot-1": {"gave_up": True} if hold_ends else {"offset_ms": BOOTED_MS}}
    before = kernel.path.stat().st_mtime_ns
    assert sync.check(0.0) is None
    assert kernel.path.stat().st_mtime_ns == before


def test_an_entered_time_decides_and_is_no_synchronisation(kernel: Kernel) -> None:
    sync = kernel.start()
    assert (sync.may_be_given, sync.given_offset_ms) == (True, None)
    assert sync.give(BOOTED_MS) == BootTime("boot-1", BOOTED_MS)
    assert (sync.may_be_given, sync.given_offset_ms) == (False, BOOTED_MS)
    assert kernel.kept() == {"boot-1": {"offset_ms": BOOTED_MS, "given": True}}
    # A known time isn't given up, and the kernel's clock is as wrong as before.
    assert sync.check(1e9) is None
    with pytest.raises(ValueError, match="given already"):
        sync.give(BOOTED_MS + 1)
    # The next run of the boot repairs by the same, and doesn't take the clock for right.
    sync = kernel.start()
    assert not sync.hold().active
    assert (sync.given_offset_ms, sync.check(1e9)) == (BOOTED_MS, None)


def test_a_clock_that_is_set_after_all_counts_and_the_entered_offset_stays(kernel: Kernel) -> None:
    kernel.start().give(BOOTED_MS)
    kernel.offset_ms, kernel.synchronised = BOOTED_MS + 800, True
    sync = kernel.start()
    assert sync.given_offset_ms is None
    # What has left had the given time: what is left of it gets the same.
    assert kernel.kept() == {"boot-1": {"offset_ms": BOOTED_MS}}
    assert not sync.may_be_given
    with pytest.raises(ValueError, match="set already"):
        sync.give(BOOTED_MS)


def test_impossible_times_are_refused(kernel: Kernel) -> None:
    kernel.path.write_text(json.dumps({"boots": {"boot-0": {"offset_ms": BOOTED_MS}}}))
    sync = kernel.start()
    for offset_ms, why in (
        (5, "before an earlier start"),
        (BOOTED_MS, "before an earlier start"),
        (4_102_444_800_001, "no time of this century"),
    ):
        with pytest.raises(ValueError, match=why):
            sync.give(offset_ms)
    assert sync.may_be_given
    assert sync.give(BOOTED_MS + 1) == BootTime("boot-1", BOOTED_MS + 1)


def test_a_wrong_entry_does_not_bind_the_next_boot(kernel: Kernel) -> None:
    kernel.start().give(BOOTED_MS + 10**10)
    assert kernel.start("boot-2").give(BOOTED_MS) == BootTime("boot-2", BOOTED_MS)


def test_once_the_hold_has_ended_no_time_is_taken(kernel: Kernel) -> None:
    sync = kernel.start()
    sync.check(60.0)
    assert not sync.may_be_given
    with pytest.raises(ValueError, match="without a time"):
        sync.give(BOOTED_MS)
    assert not kernel.start(trust="always").may_be_given
