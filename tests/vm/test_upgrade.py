"""Upgrades of a mast that samples: a good version stays, each bad one gives way to the former one by itself.

Figures are printed (pytest -s) and go into docs/performance.md by hand.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException

from cloud.wire.reading_records import EVENTS_TOPIC
from tests.faults.kafka import Kafka
from tests.support.servers import eventually
from tests.vm.guest_mast import COMMIT_INTERVAL_S, FSYNC_S, RATE, GuestMast, Ports
from tests.vm.machine import Machine
from tests.vm.package import OPEN_MOSQUITTO, install, variant

pytestmark = pytest.mark.system

LIBRARY: Final = "usr/lib/fieldgate"
HANG: Final = "import time\ntime.sleep(3600)\n"
KEPT: Final = "/var/lib/fieldgate-upgrade"


@pytest.fixture
def mast(machine: Machine, ports: Ports, cloud: Kafka) -> Iterator[GuestMast]:
    """A gateway of its own, sampling; what an earlier test went back from may be installed again."""
    machine.run("rm -f /etc/apt/preferences.d/fieldgate-refused")
    with GuestMast(machine, ports, cloud) as mast:
        mast.enter("live")
        yield mast


def note(*words: object) -> None:
    print(*words, f"(load {os.getloadavg()[0]:.0f})", flush=True)  # noqa: T201


def version_of(package: Path) -> str:
    return package.name.split("_")[1]


def installed(machine: Machine) -> str:
    return machine.run("dpkg-query -W -f '${db:Status-Abbrev}${Version}' fieldgate")


def ended(cloud: Kafka, gateway: str, before: int) -> list[dict[str, Any]]:
    """What became of a gateway's upgrades, by its events in Kafka, once there are more than ``before``."""

    def events() -> list[dict[str, Any]]:
        try:
            found = [json.loads(message.value() or b"") for message in cloud.messages([EVENTS_TOPIC])]
        except KafkaException as error:
            raise AssertionError(str(error)) from error
        return [each for each in found if each["gateway"] == gateway and each["event"].startswith("upgrade")]

    return eventually(events, 900, until=lambda found: len(found) > before, poll_s=3)


def apt(machine: Machine, package: Path) -> str:
    """Install a package as apt does, whatever comes of it; what it prints."""
    target = f"/srv/{package.name}"
    machine.push(package, target)
    return machine.run(f"{install(target)} || true", timeout_s=1200)


@pytest.mark.timeout(3600)
def test_a_good_a_broken_a_refusing_and_half_a_version(
    machine: Machine, cloud: Kafka, mast: GuestMast, package: Path, tmp_path: Path
) -> None:
    machine.run(OPEN_MOSQUITTO)
    first = str(mast.status()["run"])

    # A good one.
    good = variant(package, 1, {})
    begun_s = time.monotonic()
    printed = apt(machine, good)
    assert "on trial" in printed
    mast.answers(first)
    second = str(mast.status()["run"])
    [upgraded] = ended(cloud, mast.id, 0)
    note(
        "good:", f"{time.monotonic() - begun_s:.0f} s until the event;", upgraded["gap_s"], "s by the event,"
    )
    note(f"  {mast.gap_s(first, second):.1f} s as the witness received it")
    assert upgraded["event"] == "upgraded"
    assert installed(machine) == f"ii {version_of(good)}"
    assert abs(upgraded["gap_s"] - mast.gap_s(first, second)) < 10

    # One that doesn't start: `check` doesn't import what is broken.
    broken = variant(package, 2, {f"{LIBRARY}/gateway/daemon/build.py": "import no_such_module\n"})
    begun_s = time.monotonic()
    apt(machine, broken)
    mast.answers(second)
    third = str(mast.status()["run"])
    _, reverted = ended(cloud, mast.id, 1)
    note(
        "broken:",
        f"{time.monotonic() - begun_s:.0f} s until the event;",
        reverted["gap_s"],
        "s by the event,",
    )
    note(f"  {mast.gap_s(second, third):.1f} s as the witness received it")
    assert (reverted["event"], reverted["reason"]) == ("upgrade-reverted", "crashes")
    assert (reverted["from"], reverted["to"]) == (version_of(good), version_of(broken))
    assert installed(machine) == f"ii {version_of(good)}"
    assert machine.run("dpkg --verify fieldgate") == ""

    # One that refuses the config: the former one never stops.
    refusing = variant(package, 3, {f"{LIBRARY}/gateway/commands/check.py": "raise SystemExit('no')\n"})
    printed = apt(machine, refusing)
    assert "runs on, and comes back" in printed
    *_, refused = ended(cloud, mast.id, 2)
    assert (refused["event"], refused["reason"]) == ("upgrade-reverted", "check")
    assert installed(machine) == f"ii {version_of(good)}"
    assert mast.status()["run"] == third

    # Half of one: apt and dpkg refuse it.
    newer = variant(package, 4, {})
    half = newer.with_name("fieldgate_half.deb")
    half.write_bytes(newer.read_bytes()[: newer.stat().st_size // 2])
    apt(machine, half)
    printed = machine.run("dpkg -i /srv/fieldgate_half.deb 2>&1 || true", timeout_s=600)
    assert "error processing archive" in printed
    assert installed(machine) == f"ii {version_of(good)}"
    assert machine.run("dpkg --verify fieldgate; dpkg --audit") == ""
    assert mast.status()["run"] == third

    mast.drain()
    assert mast.outbox_is_sound() == "ok"
    reckoning = mast.reckon(mast.stored(tmp_path))
    note(reckoning.figures())
    reckoning.balance()
    assert {reading[2] for reading in reckoning.sampled} == {first, second, third}
    machine.run("systemctl start fieldgate")


@pytest.mark.timeout(3600)
def test_a_power_cut_while_dpkg_unpacks(
    machine: Machine, cloud: Kafka, mast: GuestMast, package: Path, tmp_path: Path
) -> None:
    former, first = installed(machine), str(mast.status()["run"])
    newer = variant(package, 5, {})
    machine.push(newer, "/srv/newer.deb")
    machine.run("sync")
    machine.run(
        f"nohup dpkg -i /srv/newer.deb >/srv/dpkg.log 2>&1 & "
        f"until [ -e {KEPT}/pending ] && [ -n \"$(find /{LIBRARY} -name '*.dpkg-new' -print -quit)\" ];"
        f" do [ \"$(dpkg-query -W -f '${{Version}}' fieldgate)\" != {version_of(newer)} ] || exit 0; done",
        300,
    )
    machine.power_cut()
    note(f"ssh answers {machine.boot():.0f} s after the power")
    mast.answers(first)
    second = str(mast.status()["run"])
    [reverted] = ended(cloud, mast.id, 0)
    note(f"cut while dpkg unpacks: {mast.gap_s(first, second):.1f} s without a reading, boot included")
    note(machine.run("journalctl -b -u fieldgate-repair -u fieldgate-trial -o short-monotonic --no-pager"))
    assert (reverted["event"], reverted["reason"]) == ("upgrade-reverted", "interrupted")
    assert installed(machine) == former
    assert machine.run("dpkg --verify fieldgate; dpkg --audit") == ""
    mast.drain()
    assert mast.outbox_is_sound() == "ok"
    reckoning = mast.reckon(mast.stored(tmp_path))
    note(reckoning.figures())
    # What any power cut may cost.
    assert {reading[2] for reading in reckoning.lost} <= {first}
    assert len(reckoning.lost) <= RATE * (COMMIT_INTERVAL_S + FSYNC_S)
    machine.run("systemctl start fieldgate")


@pytest.mark.timeout(3600)
def test_a_version_that_hangs_and_a_power_cut_in_its_trial(
    machine: Machine, cloud: Kafka, mast: GuestMast, package: Path, full: bool
) -> None:
    if not full:
        pytest.skip("waits for five minutes: only with --full")
    former, first = installed(machine), str(mast.status()["run"])
    hanging = variant(package, 6, {f"{LIBRARY}/gateway/daemon/build.py": HANG})
    machine.push(hanging, "/srv/hanging.deb")
    machine.run("sync")
    machine.run("nohup dpkg -i /srv/hanging.deb >/srv/dpkg.log 2>&1 &")
    eventually(lambda: machine.run(f"ls {KEPT}"), 600, until=lambda found: "switched" in found)
    eventually(
        lambda: machine.run("systemctl is-active fieldgate || true"),
        120,
        until=lambda now: "activating" in now,
    )
    machine.power_cut()
    begun_s = time.monotonic()
    machine.boot()
    mast.answers(first)
    [reverted] = ended(cloud, mast.id, 0)
    note(f"hangs, cut in its trial: {time.monotonic() - begun_s:.0f} s from the cut to the event", reverted)
    assert reverted["event"] == "upgrade-reverted"
    assert reverted["reason"] in ("not_ready", "interrupted")
    assert installed(machine) == former
