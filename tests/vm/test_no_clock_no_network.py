"""Boot two years off and without a network: it samples at once, and all arrives with its true time later."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise

import pytest

from cloud.wire.reading_records import EVENTS_TOPIC
from tests.faults.kafka import Kafka
from tests.support.servers import eventually
from tests.vm.guest_mast import Ports
from tests.vm.machine import Machine
from tests.vm.watched_guest import Guest

pytestmark = pytest.mark.system

_PATIENCE_S = 900
_YEARS_OFF_S = -2 * 365 * 86400
# What a time server's client does: set the clock, and mark it as right in the kernel (adjtimex(2)).
_SYNCHRONISE = """
import ctypes, struct, time
time.clock_settime(time.CLOCK_REALTIME, {now})
timex = ctypes.create_string_buffer(512)
ADJ_MAXERROR, ADJ_ESTERROR, ADJ_STATUS = 0x4, 0x8, 0x10
struct.pack_into("I4xqqqqi", timex, 0, ADJ_MAXERROR | ADJ_ESTERROR | ADJ_STATUS, 0, 0, 0, 0, 0)
print(ctypes.CDLL(None).adjtimex(timex))
"""
# Debian's own file, but for its log.
_BROKER = """
set -e
test -f /srv/open.conf || cp /etc/mosquitto/mosquitto.conf /srv/open.conf
cat > /etc/mosquitto/mosquitto.conf <<'END'
pid_file /run/mosquitto/mosquitto.pid
persistence true
persistence_location /var/lib/mosquitto/
log_dest stderr
include_dir /etc/mosquitto/conf.d
END
fieldgate provision mosquitto --lan 1884 --device soil --passwords /srv/devices
fieldgate provision mosquitto --lan 1884 --device soil | grep -x 'nothing to change'
systemctl daemon-reload
systemctl restart mosquitto
sync
"""


@pytest.fixture
def guest(machine: Machine, ports: Ports) -> Iterator[Guest]:
    guest = Guest(machine, ports)
    machine.link("up")
    guest.install()
    yield guest
    machine.link("up")
    machine.run(
        "systemctl stop fieldgate; rm -f /etc/mosquitto/conf.d/fieldgate.conf;"
        " if test -f /srv/open.conf; then mv /srv/open.conf /etc/mosquitto/mosquitto.conf; fi;"
        " systemctl restart mosquitto; sync"
    )


@pytest.mark.timeout(3600)
def test_it_samples_and_all_arrives_with_its_time(guest: Guest, cloud: Kafka, full: bool) -> None:
    machine = guest.machine
    machine.run(_BROKER)
    lines = machine.run("journalctl -b -u mosquitto -o cat; cat /var/log/mosquitto/mosquitto.log 2>/dev/null")
    assert "Future versions will refuse" not in lines
    guest.configure(trust="kernel")
    machine.run("systemctl enable fieldgate; systemctl stop fieldgate; sync; sleep 1")
    machine.link("down")
    machine.power_cut()
    begun_s = time.time()
    took_s = machine.boot(clock_s=_YEARS_OFF_S)
    assert float(machine.run("date +%s")) < begun_s - 86400 * 200
    eventually(guest.sampled, _PATIENCE_S)
    active = machine.run("systemctl is-active mosquitto || true").strip()
    assert active == "active"
    run = str(guest.status()["run"])
    wanted = 600 if full else 60
    eventually(guest.sampled, 3000, until=lambda n: n > 2 * wanted)
    before = guest.status()
    assert (before["clock"], before["uplink"]) == ("unsynced", "spilling")
    machine.link("up")
    ended_s = time.time()
    # As the guest runs it the time is a little behind: ssh takes a second or two.
    script = f"cat > /srv/now.py <<'END'\n{_SYNCHRONISE.format(now=time.time())}END\npython3 /srv/now.py"
    machine.run(script)
    eventually(lambda: guest.status().get("clock"), _PATIENCE_S, until=lambda clock: clock == "synced")
    # What was sampled before is repaired and drained; what comes now goes live.
    eventually(
        guest.status, _PATIENCE_S, until=lambda now: now.get("outbox_records") == 0 and now["held"] == 0
    )
    machine.run("systemctl stop fieldgate")
    readings = [
        reading
        for message in cloud.messages(["mqtt.temperature"])
        if (reading := json.loads(message.value() or b"{}")).get("run") == run
    ]
    fine = {each["seq"]: each for each in readings if each["channel"] == "fine.temperature"}
    assert sorted(fine) == list(range(1, max(fine) + 1))
    repaired = [each for each in fine.values() if each["clock"] == "repaired"]
    assert len(repaired) >= wanted
    assert {each["clock"] for each in fine.values()} <= {"repaired", "synced"}
    # The guest's clock was set from here, by ssh: some seconds late, on a busy host more.
    times = sorted(datetime.fromisoformat(each["time"]).timestamp() for each in repaired)
    print(f"ssh after {took_s:.0f} s, first reading after {times[0] - begun_s:.0f} s")  # noqa: T201
    assert begun_s - 60 < times[0] < times[-1] < ended_s + 60
    steps = [round(after - before, 3) for before, after in pairwise(times)]
    assert all(step >= 1 and step == round(step) for step in steps)
    # A starved guest may come too late for a period, and logs it.
    if late := [step for step in steps if step != 1]:
        print("late:", late)  # noqa: T201
        assert "event=sampler.late sensor=fine" in guest.journal()
        assert len(late) <= 1 + len(steps) // 100
    events = [json.loads(each.value() or b"{}") for each in cloud.messages([EVENTS_TOPIC])]
    assert any(each.get("event") == "clock_repaired" and each.get("run") == run for each in events)
