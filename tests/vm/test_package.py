"""The Debian package on a blank machine: installed, upgraded during an outage, booted, removed, purged.

Figures are printed (pytest -s) and go into docs/performance.md by hand. The tests are one story, in order.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from cloud.local.process import free_port
from cloud.wire.quantities import QUANTITIES
from cloud.wire.reading_records import READING_TOPIC_PREFIX, parse_reading
from tests.faults.kafka import Kafka
from tests.support.servers import eventually, unique_name
from tests.vm.guest_mast import GuestMast, Ports
from tests.vm.machine import Machine
from tests.vm.package import OPEN_MOSQUITTO, build, install

pytestmark = pytest.mark.system

CONFIG = "/etc/fieldgate/gateway.toml"
# What an installer types after the package, here for a simulated board and twelve channels at 1 Hz.
INIT = (
    "fieldgate init --board simulated --id {id} --kafka kafka.test:9092 --latitude 27.7 --longitude 85.5"
    + "".join(
        f" --sensor cup-{n}=hall-anemometer:{pin},slope=0.765,offset=0.35"
        for n, pin in enumerate((5, 6, 13, 19, 26, 16, 20, 21, 12, 25))
    )
    + " --sensor baro=bp20 --sensor sun=pyranometer"
    + f" -o {CONFIG}"
)
PINS = "/var/lib/fieldgate/pins.json"
RELAY = f"""
set -e
test -e /srv/plain.toml || cp {CONFIG} /srv/plain.toml
sed 's|^kind = "simulated"|&\\npins_file = "{PINS}"|' /srv/plain.toml > {CONFIG}
cat >> {CONFIG} <<'END'
[[actuator]]
name = "fan"
pin = 23
active = "low"
[[interlock]]
when = "baro.pressure > 20"
then = "relay.fan on"
END
fieldgate check 1>&2
mkdir -p /run/systemd/system/fieldgate.service.d
printf '[Service]\\nRestart=no\\n' > /run/systemd/system/fieldgate.service.d/test.conf
systemctl daemon-reload
systemctl restart fieldgate
"""
"""An emulated relay that is on soon; a daemon that is killed stays away, else its start would switch too."""
START = "systemctl enable --now fieldgate"
LEFT = (
    "find / -xdev -iname '*fieldgate*' -not -path '/proc/*' -not -path '/sys/*' -not -path '/srv/*'"
    " -not -path '/var/log/*' | sort"
)
"""Whatever has our name; not the packages that were pushed, nor the journal and apt's and dpkg's logs."""


@pytest.fixture(scope="module")
def ports(gateway_vm: Path) -> Ports:
    return Ports(mqtt=free_port(), status=free_port())


@pytest.fixture(scope="module")
def blank(gateway_vm: Path, cloud: Kafka, ports: Ports) -> Iterator[Machine]:
    """A machine that has never seen the gateway."""
    with Machine(gateway_vm, unique_name("fieldgate"), ports.forwards, cloud.uplink.port) as machine:
        yield machine


def note(*words: object) -> None:
    print(*words, f"(load {os.getloadavg()[0]:.0f})", flush=True)  # noqa: T201


def first_times(cloud: Kafka, gateway: str) -> dict[str, float]:
    """When the first period of each run that is in Kafka had passed, seconds since 1970."""
    found: dict[str, float] = {}
    topics = [f"{READING_TOPIC_PREFIX}{quantity}" for quantity in QUANTITIES]
    try:
        messages = list(cloud.messages(topics))
    except KafkaException as error:
        # A starved broker: tried again.
        raise AssertionError(str(error)) from error
    for message in messages:
        reading = parse_reading(message.value() or b"")
        if reading.gateway == gateway:
            taken_s = reading.time_us / 1e6 + reading.period_ms / 1000
            found[reading.run] = min(found.get(reading.run, taken_s), taken_s)
    return found


def properties(machine: Machine, *names: str) -> dict[str, str]:
    """Properties of the service, as systemctl show prints them."""
    printed = machine.run(f"systemctl show fieldgate {' '.join(f'-p {name}' for name in names)}")
    return dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)


@pytest.mark.timeout(2400)
def test_from_a_blank_machine_to_readings_in_kafka(blank: Machine, cloud: Kafka, package: Path) -> None:
    note("package", package.stat().st_size, "bytes", package.name)
    begun_s = time.monotonic()
    blank.push(package, "/srv/fieldgate.deb")
    printed = blank.run(install("/srv/fieldgate.deb"), timeout_s=900)
    note(f"installed after {time.monotonic() - begun_s:.0f} s")
    # The next commands, as printed.
    assert "fieldgate init, check, provision mosquitto, doctor" in printed
    assert f"sudo {START}" in printed
    assert "Traceback" not in printed
    blank.run(f"{INIT.format(id='blank')} && fieldgate check && {START}", timeout_s=600)
    note(f"configured and started after {time.monotonic() - begun_s:.0f} s")
    eventually(lambda: first_times(cloud, "blank"), 300)
    note(f"readings in Kafka after {time.monotonic() - begun_s:.0f} s")
    assert properties(blank, "ActiveState", "NRestarts") == {"ActiveState": "active", "NRestarts": "0"}
    assert blank.run("systemctl is-active fieldgate-report.timer").strip() == "active"
    assert blank.run("systemctl is-active fieldgate-uplink.timer || true").strip() == "inactive"
    assert blank.run("systemctl is-active fieldgate-certificate.timer || true").strip() == "inactive"
    # As tmpfiles and sysusers have it: passwords in the config are root's and the daemon's affair.
    modes = blank.run(f"stat -c '%a %U %G %n' /etc/fieldgate /var/lib/fieldgate /usr/bin/fieldgate {CONFIG}")
    assert modes.splitlines()[:3] == [
        "750 root fieldgate /etc/fieldgate",
        "750 fieldgate fieldgate /var/lib/fieldgate",
        "755 root root /usr/bin/fieldgate",
    ]
    # All that dpkg lists is as it was packed; bytecode is beside it.
    assert blank.run("dpkg --verify fieldgate") == ""
    assert int(blank.run("find /usr/lib/fieldgate/gateway -name '*.pyc' | wc -l")) > 50


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("end", "state"), [("kill -9", "failed"), ("stop", "inactive")])
def test_a_relay_is_safe_however_the_service_ends(blank: Machine, end: str, state: str) -> None:
    """By the unit's own command, as its user and under its hardening; the emulated pin's level is a file."""
    blank.run(RELAY, timeout_s=300)
    eventually(lambda: blank.run(f"cat {PINS}"), 240, until=lambda pins: pins == '{"23": false}\n')
    blank.run(
        "systemctl stop fieldgate"
        if end == "stop"
        else "pid=$(systemctl show fieldgate -P MainPID); test $pid = 0 || kill -9 $pid"
    )
    eventually(lambda: properties(blank, "ActiveState"), 120, until=lambda now: now == {"ActiveState": state})
    assert blank.run(f"cat {PINS}; stat -c %U {PINS}") == '{"23": true}\nfieldgate\n'
    log = blank.run(
        "journalctl _SYSTEMD_INVOCATION_ID=$(systemctl show fieldgate -P InvocationID) -o short-monotonic"
    )
    [safe] = [line for line in log.splitlines() if line.endswith("]: fan: off")]
    exited_s = int(properties(blank, "ExecMainExitTimestampMonotonic").popitem()[1]) / 1e6
    safe_s = float(safe[1:].split("]")[0])
    note(f"{end}: the unit's command was done {safe_s - exited_s:.1f} s after the process's end")
    blank.run(
        f"cp /srv/plain.toml {CONFIG}; rm -f /run/systemd/system/fieldgate.service.d/test.conf;"
        " systemctl daemon-reload; systemctl reset-failed fieldgate; systemctl restart fieldgate"
    )


@pytest.mark.timeout(1800)
def test_what_it_costs_and_how_soon_it_samples_after_a_boot(blank: Machine, cloud: Kafka, full: bool) -> None:
    for _ in range(5 if full else 2):
        before = usage(blank)
        wait_until(blank, before["at_s"] + 60)
        after = usage(blank)
        spent = (after["cpu_s"] - before["cpu_s"]) / (after["at_s"] - before["at_s"])
        memory = f"RSS {after['rss_kib'] / 1024:.0f} MiB, cgroup {after['memory'] / 2**20:.0f} MiB"
        note(f"{spent:.1%} of a core, {memory}")
    blank.run("sync")
    former = eventually(lambda: set(first_times(cloud, "blank")), 120)
    blank.power_cut()
    note(f"ssh answers {blank.boot():.0f} s after the power")
    [run] = eventually(lambda: set(first_times(cloud, "blank")) - former, 300)
    booted_s = float(blank.run("sed -n 's/^btime //p' /proc/stat"))
    ready_s = int(properties(blank, "ActiveEnterTimestampMonotonic")["ActiveEnterTimestampMonotonic"]) / 1e6
    first_s = first_times(cloud, "blank")[run] - booted_s
    note(f"ready {ready_s:.1f} s, first reading {first_s:.0f} s after the kernel began")
    assert 0 < first_s < 600


def wait_until(machine: Machine, uptime_s: float) -> None:
    """Until the guest has been up for so long."""
    eventually(
        lambda: float(machine.run("cut -d' ' -f1 /proc/uptime")),
        600,
        until=lambda now_s: now_s >= uptime_s,
        poll_s=5,
    )


def usage(machine: Machine) -> dict[str, float]:
    """Processor seconds of the service until now, its memory, and when that was (seconds since the boot)."""
    at_s, printed = machine.run(
        "cut -d' ' -f1 /proc/uptime; systemctl show fieldgate -p MainPID -p CPUUsageNSec -p MemoryCurrent"
    ).split("\n", 1)
    shown = dict(line.split("=", 1) for line in printed.splitlines())
    rss = machine.run(f"sed -n 's/^VmRSS:[[:space:]]*\\([0-9]*\\) kB/\\1/p' /proc/{shown['MainPID']}/status")
    return {
        "at_s": float(at_s),
        "cpu_s": int(shown["CPUUsageNSec"]) / 1e9,
        "memory": float(shown["MemoryCurrent"]),
        "rss_kib": float(rss),
    }


@pytest.mark.timeout(2400)
def test_an_upgrade_during_an_outage_loses_nothing(
    blank: Machine, cloud: Kafka, ports: Ports, package: Path, tmp_path: Path
) -> None:
    newer = build(tmp_path / "newer", epoch=int(time.time()), quick=True)
    blank.push(newer, "/srv/newer.deb")
    blank.run(OPEN_MOSQUITTO)
    with GuestMast(blank, ports, cloud) as mast:
        mast.enter("spilling")
        config = blank.run(f"sha256sum {CONFIG}")
        former = str(mast.status()["run"])
        waiting = mast.status()["outbox_records"]
        begun_s = time.monotonic()
        printed = blank.run(install("/srv/newer.deb"), timeout_s=900)
        note(f"upgraded in {time.monotonic() - begun_s:.0f} s, {waiting} records waiting")
        assert "Traceback" not in printed
        mast.answers(former)
        run = str(mast.status()["run"])
        note(f"{mast.gap_s(former, run):.1f} s without a reading, as the witness received it")
        assert mast.gap_s(former, run) < 60
        assert blank.run("dpkg-query -W -f '${Version}' fieldgate") == newer.name.split("_")[1]
        assert blank.run(f"sha256sum {CONFIG}") == config
        mast.drain()
        assert mast.outbox_is_sound() == "ok"
        reckoning = mast.reckon(mast.stored(tmp_path))
        note(reckoning.figures())
        reckoning.balance()
        assert {reading[2] for reading in reckoning.sampled} == {former, run}


@pytest.mark.timeout(1800)
def test_a_config_with_errors_does_not_silence_the_mast(blank: Machine, ports: Ports, package: Path) -> None:
    """The version that runs goes on, and apt's output names the remedy."""
    blank.run("systemctl restart fieldgate")
    run = eventually(lambda: ports.status_now().get("run"), 240)
    blank.run(f"cp {CONFIG} /srv/good.toml; sed -i 's/^latitude.*/latitude = 270.7/' {CONFIG}")
    printed = blank.run(
        "DEBIAN_FRONTEND=noninteractive apt-get install -y --reinstall /srv/newer.deb 2>&1", 900
    )
    assert "has errors, see above; the service was not started" in printed
    assert "latitude" in printed
    assert properties(blank, "ActiveState") == {"ActiveState": "active"}
    assert ports.status_now()["run"] == run
    blank.run(f"cp /srv/good.toml {CONFIG}")


@pytest.mark.timeout(1800)
def test_removed_it_leaves_the_data_and_purged_nothing(blank: Machine) -> None:
    blank.run("mkdir -p /etc/systemd/system/fieldgate.service.d; sync")
    blank.run("printf '[Service]\\nNice=-1\\n' > /etc/systemd/system/fieldgate.service.d/override.conf")
    printed = blank.run("apt-get remove -y fieldgate", timeout_s=600)
    assert "are kept; apt-get purge fieldgate deletes them" in printed
    left = blank.run(LEFT).splitlines()
    assert not [path for path in left if path.startswith("/usr/")]
    assert {"/etc/fieldgate", "/var/lib/fieldgate"} <= set(left)
    assert blank.run(f"test -s {CONFIG}; ls /var/lib/fieldgate | grep -c '\\.db$'").strip() != "0"
    assert blank.run("systemctl is-active fieldgate || true").strip() == "inactive"
    assert "fieldgate" in blank.run("apt-get purge -y fieldgate", timeout_s=600)
    # The user stays, as Debian's do: a file of its number elsewhere is no other user's.
    assert blank.run(LEFT).splitlines() == []
    assert blank.run("systemctl --failed --no-legend") == ""
    assert blank.run("id -u fieldgate").strip().isdigit()
