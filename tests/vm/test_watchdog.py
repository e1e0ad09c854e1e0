"""The unit's watchdog: what is wedged is killed and restarted; what only waits is let be.

With WatchdogSec=30s instead of a minute; all the daemon's own times are shares of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.faults.kafka import Kafka
from tests.support.servers import eventually
from tests.vm.guest_mast import Ports
from tests.vm.machine import Machine
from tests.vm.watched_guest import SLOW, WATCHDOG_S, Guest

pytestmark = pytest.mark.system

_PATIENCE_S = 900


@pytest.fixture
def guest(machine: Machine, ports: Ports, cloud: Kafka) -> Iterator[Guest]:
    guest = Guest(machine, ports)
    machine.link("up")
    guest.install()
    yield guest
    guest.release()
    cloud.uplink.delay_s = 0.0
    machine.link("up")
    machine.run("systemctl stop fieldgate")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", ["forwarder", "outbox-writer"])
def test_a_wedged_part_is_killed_and_restarted(part: str, guest: Guest) -> None:
    guest.machine.link("silent")
    guest.configure()
    eventually(guest.sampled, _PATIENCE_S, until=lambda n: n > 10)
    before = guest.unit("MainPID", "NRestarts")
    stored = eventually(lambda: guest.status().get("outbox_records", 0), _PATIENCE_S)
    guest.wedge(part)
    begun_s = time.monotonic()
    eventually(lambda: int(guest.unit("NRestarts")["NRestarts"]), _PATIENCE_S, until=lambda n: n > 0)
    print(part, f"restarted after {time.monotonic() - begun_s:.0f} s")  # noqa: T201
    guest.release()
    eventually(guest.sampled, _PATIENCE_S, until=lambda n: n > 10)
    assert guest.unit("MainPID")["MainPID"] != before["MainPID"]
    lines = guest.journal()
    assert f"event=watchdog.stuck part={part}" in lines
    # Every thread's stack at the end: who is stuck, and where.
    assert "Fatal Python error: Aborted" in lines
    assert "fieldgate_wedges.py" in lines
    assert guest.status()["outbox_records"] >= stored


@pytest.mark.timeout(3600)
def test_what_only_waits_is_let_be(guest: Guest, cloud: Kafka) -> None:
    """A driver that hangs; a disk that doesn't answer for two minutes, over an uplink of seconds."""
    guest.configure(slow_disk=True)
    eventually(guest.sampled, _PATIENCE_S, until=lambda n: n > 10)
    before = guest.unit("MainPID", "NRestarts")
    guest.wedge("driver")
    # Three threads given up would be a reason of its own to restart.
    eventually(lambda: guest.status().get("samplers_abandoned", 0), _PATIENCE_S)
    guest.release()
    cloud.uplink.delay_s = 4.0
    eventually(lambda: guest.status().get("outbox_records", 0), _PATIENCE_S)
    # Longer than the writer's patience and systemd's together; in the guest, for ssh may take its time.
    frozen_s = 3 * WATCHDOG_S + 30
    guest.machine.run(
        f"systemd-run -q --unit=freeze sh -c 'fsfreeze -f {SLOW}; sleep {frozen_s}; fsfreeze -u {SLOW}'"
    )
    # A thread of the daemon sleeps in the kernel, where nothing wakes it: the writer.
    eventually(
        lambda: guest.machine.run("cat /proc/$(systemctl show fieldgate -P MainPID)/task/*/stat"),
        frozen_s,
        until=lambda stats: "(fieldgate) D" in stats,
        poll_s=1,
    )
    eventually(
        lambda: guest.machine.run("systemctl is-active freeze || true").strip(),
        _PATIENCE_S,
        until=lambda state: state == "inactive",
    )
    cloud.uplink.delay_s = 0.0
    eventually(lambda: guest.status().get("uplink"), _PATIENCE_S, until=lambda uplink: uplink == "healthy")
    assert guest.unit("MainPID", "NRestarts") == before
    assert "event=watchdog.stuck" not in guest.journal(this_start=True)


@pytest.mark.timeout(900)
def test_what_systemd_reports(guest: Guest) -> None:
    guest.configure()
    eventually(guest.sampled, _PATIENCE_S, until=lambda n: n > 10)
    shown = eventually(lambda: guest.unit("StatusText", "ActiveState", "Result"), 60)
    assert shown["StatusText"].startswith("2 channels; ")
    guest.machine.run("systemctl reload fieldgate")
    eventually(lambda: guest.journal(), 120, until=lambda lines: "event=daemon.reloaded" in lines)
    assert eventually(lambda: guest.unit("ActiveState")["ActiveState"], 60) == "active"
    judged = guest.machine.run(
        "systemd-analyze security --no-pager --offline=true fieldgate.service | tail -1"
    )
    print(judged)  # noqa: T201
    assert float(judged.split()[-3]) <= 2.0
