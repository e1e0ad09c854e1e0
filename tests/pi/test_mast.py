"""A mast on a Raspberry Pi as docs/install.md has it: package, config, sensors on pins, Kafka, upgrade.

The tests are one story, in order; figures are printed (pytest -s). Nothing is injected: commands are typed as
the docs print them, the kernel's own GPIO, I2C and 1-Wire carry the sensors.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from cloud.wire.reading_records import parse_reading
from tests.faults.kafka import Kafka
from tests.pi.machine import TOOL, Pi
from tests.support.accounts import read_accounts
from tests.support.debian_package import EPOCH, build
from tests.support.servers import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(2400)]

ID: Final = "mast-07"
CONFIG: Final = "/etc/fieldgate/gateway.toml"
# The emulated board is ten times slower than a Pi 3: what isn't counted is read every five seconds.
INIT: Final = (
    f"sudo fieldgate init --id {ID} --kafka kafka.test:9092 --latitude 27.7 --longitude 85.5"
    " --sensor cup-50m-a=hall-anemometer:17,slope=0.765,offset=0.35,height_m=50"
    " --sensor bucket=pulse:27,quantity=precipitation,slope=1,interval_s=1"
    " --sensor dht=dht11:4,interval_s=5"
    " --sensor baro=bp20,interval_s=5"
    " --sensor 'vane-48m=wind-vane,adc={address=0x48,input=1},north_offset_deg=0,interval_s=5'"
    " --sensor sun=pyranometer,interval_s=5"
    " --sensor co2=scd4x,interval_s=5"
    " --sensor cabinet=w1,quantity=temperature,interval_s=5"
    " --sensor gps=gpsd,interval_s=5"
    f" -o {CONFIG}"
)
# The machine has no network time; [clock] trust is the board's key for it.
FAN: Final = f"""
sudo sed -i 's/^#trust = "kernel"/trust = "always"/' {CONFIG}
sudo tee -a {CONFIG} >/dev/null <<'TOML'
[[actuator]]
name = "fan"
pin = 23
[[interlock]]
when = "cabinet.temperature > 30"
then = "relay.fan on"
TOML
"""
# The emulated board is several times slower than a Pi 3, and more beside other work.
PATIENCE: Final = (
    "sudo mkdir -p /etc/systemd/system/fieldgate.service.d && printf '[Service]\\nWatchdogSec=600\\n'"
    " | sudo tee /etc/systemd/system/fieldgate.service.d/slow.conf && sudo systemctl daemon-reload"
)
BROKER: Final = (
    "sudo fieldgate provision mosquitto && sudo systemctl daemon-reload"
    " && sudo systemctl enable mosquitto && sudo systemctl restart mosquitto"
)
CUP: Final = "cup-50m-a.wind_speed"
BUCKET: Final = "bucket.precipitation"


def note(*words: object) -> None:
    print(*words, f"(load {os.getloadavg()[0]:.0f})", flush=True)  # noqa: T201


@contextmanager
def timed(what: str) -> Iterator[None]:
    begun_s = time.monotonic()
    yield
    note(f"{what}: {time.monotonic() - begun_s:.0f} s")


def printed_json(printed: str) -> Any:
    """The JSON among what a command printed, whose errors and warnings stand before or after it."""
    begin = min(at for at in map(printed.find, "[{") if at >= 0)
    return json.JSONDecoder().raw_decode(printed[begin:])[0]


def readings(cloud: Kafka, channel: str) -> list[Any]:
    """Everything of a channel that has come to Kafka, in the order of its times."""
    quantity = channel.rpartition(".")[2]
    found = [parse_reading(message.value() or b"") for message in cloud.messages([f"mqtt.{quantity}"])]
    return sorted((each for each in found if each.channel == channel), key=lambda each: each.time_us)


def total(cloud: Kafka) -> int:
    """All pulses of the bucket's input that readings account for."""
    distinct: dict[Any, float] = {each.identity: each.value for each in readings(cloud, BUCKET)}
    return round(sum(distinct.values()))


def findings(pi: Pi) -> dict[str, list[dict[str, str]]]:
    """What doctor, typed with sudo, reports by subject."""
    printed = pi.types("sudo fieldgate doctor --json", check=False)
    found: dict[str, list[dict[str, str]]] = {}
    for each in printed_json(printed)["findings"]:
        found.setdefault(each["area"], []).append(each)
    return found


def test_it_is_installed_by_apt_with_what_it_needs(pi: Pi, deb: Path) -> None:
    with timed("sudo apt-get install -y ./fieldgate_*.deb"):
        printed = pi.types("sudo apt-get install -y ./fieldgate_*.deb", 1500)
    assert "there is no config yet" in printed
    installed = pi.types("dpkg-query -W -f '${Package} ${db:Status-Status}\\n'").splitlines()
    assert {"fieldgate installed", "mosquitto installed", "python3-systemd installed"} <= set(installed)
    assert not [line for line in installed if line.startswith(("python3-rpi", "python3-lgpio"))]
    assert pi.types("dpkg --verify fieldgate") == ""
    assert pi.types("ls -l /dev/gpiochip0 /dev/i2c-1 | cut -d' ' -f1,4").split() == [
        "crw-rw----", "gpio", "crw-rw----", "i2c",
    ]  # fmt: skip
    assert pi.types("systemctl --failed --no-legend").strip() == ""


def test_init_writes_a_config_that_check_calls_good(pi: Pi) -> None:
    with timed("init"):
        assert f"wrote {CONFIG}" in pi.types(INIT)
    pi.types(FAN)
    with timed("check"):
        assert f"good: gateway {ID}" in pi.types("sudo fieldgate check")
    with timed("provision mosquitto"):
        pi.types(BROKER)
    assert pi.types("systemctl is-active mosquitto").strip() == "active"


def connect(pi: Pi) -> None:
    """Wire the sensors to a machine just started; wait until the kernel has found the thermometer."""
    pi.do("adc", 0, 2.5)
    pi.do("adc", 1, 1.65)
    pi.do("adc", 2, 0.008)
    pi.do("co2", 812)
    pi.do("w1", 22, 21.5)
    pi.do("pulse", 17, 24, 0)
    eventually(lambda: pi.types("ls /sys/bus/w1/devices"), 180, until=lambda found: "28-" in found, poll_s=2)


def test_doctor_names_each_sensor_with_its_value(pi: Pi) -> None:
    connect(pi)
    with timed("doctor"):
        found = findings(pi)
    assert found["board"][0]["what"].startswith("Raspberry Pi 3 Model B Rev 1.2, kernel ")
    assert [(each["severity"], each["what"]) for each in found["gpio"]] == [
        ("ok", f"kernel {pi.types('uname -r').strip()} counts pulses, no library is needed"),
        ("ok", "/dev/gpiochip0 can be used by fieldgate"),
    ]
    assert [(each["severity"], each["what"]) for each in found["i2c"]] == [
        ("ok", "/dev/i2c-1 can be used by fieldgate"),
        ("ok", "all expected addresses answer; found: 0x48, 0x62"),
    ]
    assert found["relay"][0]["what"] == "fan: BCM pin 23 is free"
    assert found["kafka"][0]["severity"] == "ok"
    sensors = {each["what"].partition(":")[0]: each for each in found["sensor"]}
    expected = ("baro", "sun", "vane-48m", "cup-50m-a", "bucket")
    assert [sensors[name] for name in expected if sensors[name]["severity"] != "ok"] == []
    # The line's microseconds are not this machine's: see the test of the forty bits.
    assert "DHT11 on pin 4" in sensors["dht"]["what"]


def test_read_shows_what_is_on_the_pins(pi: Pi) -> None:
    with timed("read"):
        printed = pi.types("sudo fieldgate read --json", check=False)
    rows = {each["channel"]: each for each in printed_json(printed)["readings"]}
    assert rows["baro.pressure"]["value"] == pytest.approx(21.79 * 2.5 + 10.55, abs=0.01)
    assert rows["sun.irradiance"]["value"] == pytest.approx(800, abs=1)
    assert rows["vane-48m.wind_direction"]["value"] == pytest.approx(180, abs=12)
    assert rows["co2.co2"]["value"] == 812
    # A slot of 1-Wire that the host has interrupted is read again with the next period.
    assert rows["cabinet.temperature"]["value"] in (21.5, None)
    assert rows[CUP]["raw"] == pytest.approx(24, rel=0.25)


def test_the_service_brings_readings_into_kafka(pi: Pi, cloud: Kafka) -> None:
    pi.types(PATIENCE)
    with timed("enable --now, until READY"):
        pi.types("sudo systemctl enable --now fieldgate")
        eventually(lambda: pi.types("systemctl is-active fieldgate", check=False).strip() == "active", 300)
    with timed("until Kafka has acknowledged readings"):
        confirmed = pi.until("confirmed", above=100)["confirmed"]
    assert readings(cloud, "baro.pressure")[-1].value == pytest.approx(21.79 * 2.5 + 10.55, abs=0.01)
    assert readings(cloud, "co2.co2")[-1].value == 812
    begun_s, used_s = time.monotonic(), processor_s(pi)
    pi.until("confirmed", above=100 + confirmed)
    note(f"of one core: {(processor_s(pi) - used_s) / (time.monotonic() - begun_s):.0%}")


def processor_s(pi: Pi) -> float:
    """What the service has used so far, of all cores, in the machine's own time."""
    return int(pi.types("systemctl show --value -p CPUUsageNSec fieldgate")) / 1e9


@pytest.mark.parametrize(("hz", "count"), [(1, 20), (10, 200), (100, 1000), (1000, 5000)])
def test_pulses_are_counted_to_the_last(pi: Pi, cloud: Kafka, hz: int, count: int) -> None:
    before = total(cloud)
    taken = json.loads(pi.do("pulse", 27, hz, count, timeout_s=900))
    note(f"{count} pulses at {hz} Hz: {count / taken['seconds']:.0f} Hz came through in {taken['seconds']} s")
    eventually(lambda: total(cloud) - before, 120, until=lambda counted: counted >= count, poll_s=1)
    assert total(cloud) - before == count


def test_a_relay_switches_and_is_safe_when_the_daemon_dies(pi: Pi) -> None:
    def level() -> int:
        return int(json.loads(pi.do("read", 23))["level"])

    assert level() == 0
    pi.do("w1", 22, 35)
    eventually(level, 120, until=lambda now: now == 1, poll_s=1)
    pi.types("sudo systemctl kill -s KILL fieldgate")
    pi.do("w1", 22, 21.5)
    with timed("a killed daemon's relay is off"):
        eventually(level, 120, until=lambda now: now == 0, poll_s=1)
    eventually(lambda: pi.types("systemctl is-active fieldgate", check=False).strip() == "active", 300)


def test_a_cup_is_commissioned_at_a_terminal(pi: Pi) -> None:
    with timed("commission"), pi.at_a_terminal("sudo fieldgate commission --sensor cup-50m-a") as person:
        person.until("Does its certificate say slope 0.765, offset 0.35? y/n")
        person.type("y")
        person.until("Is it 50 m above ground? y/n")
        person.type("y")
        person.until("Hold cup-50m-a still.")
        pi.do("level", 17, 1)
        person.type("")
        person.until("Now spin cup-50m-a by hand.")
        pi.do("pulse", 17, 12, 0)
        person.until("Passed: stood while held, up to")
        person.type("")
        person.until("To sign this, type your name.")
        person.type("A. Person")
        person.until("The daemon sends it with the readings.")
    assert pi.types("sudo ls /var/lib/fieldgate/commissioning").count(".json") == 1


def test_gpsd_is_fed_by_the_serial_port(pi: Pi) -> None:
    pi.types("sudo apt-get install -y gpsd", 900)
    pi.types(
        "echo 'DEVICES=\"/dev/ttyAMA0\"' | sudo tee /etc/default/gpsd >/dev/null"
        " && echo 'GPSD_OPTIONS=-n' | sudo tee -a /etc/default/gpsd >/dev/null && sudo systemctl restart gpsd"
    )
    with receiver(pi, 27.7, 85.5):
        eventually(
            lambda: pi.status()["channels"]["gps.location"]["quality"],
            240,
            until=lambda quality: quality == 1,
        )


@contextmanager
def receiver(pi: Pi, latitude: float, longitude: float) -> Iterator[None]:
    """A receiver with a fix, which prints its two sentences each second."""

    def angle(degrees: float, width: int) -> str:
        whole = int(degrees)
        return f"{whole:0{width}d}{(degrees - whole) * 60:07.4f}"

    def sentence(body: str) -> bytes:
        checksum = 0
        for byte in body.encode():
            checksum ^= byte
        return f"${body}*{checksum:02X}\r\n".encode()

    position = f"{angle(latitude, 2)},N,{angle(longitude, 3)},E"
    ended = threading.Event()
    with subprocess.Popen(
        [TOOL, "--work", pi.work, "uart"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as port:

        def print_sentences() -> None:
            assert port.stdin is not None
            while not ended.wait(1.0):
                now = time.gmtime()
                clock, day = time.strftime("%H%M%S.00", now), time.strftime("%d%m%y", now)
                port.stdin.write(sentence(f"GPGGA,{clock},{position},1,08,0.9,2100.0,M,-40.0,M,,"))
                port.stdin.write(sentence(f"GPRMC,{clock},A,{position},0.0,0.0,{day},,"))
                port.stdin.flush()

        printer = threading.Thread(target=print_sentences)
        printer.start()
        try:
            yield
        finally:
            ended.set()
            printer.join()
            port.kill()


def test_the_phone_page_answers_from_outside(pi: Pi) -> None:
    # The QR code's own address, with its token.
    link = printed_json(pi.types("sudo fieldgate phone --minutes 15 --json"))["link"]
    state = json.loads((pi.work / "state.json").read_text())
    outside = f"127.0.0.1:{state['ports']['8321']}"
    path = link.partition("//")[2].partition("/")[2]
    guest = link.partition("//")[2].partition("/")[0]
    request = urllib.request.Request(f"http://{outside}/{path}", headers={"Host": guest})
    # As a browser does: the token becomes a cookie, and the address is asked again without it.
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(request, timeout=60) as answer:
        assert "<title>fieldgate</title>" in answer.read().decode()
    # What the page then fetches.
    status = urllib.request.Request(f"http://{outside}/api/status", headers={"Host": guest})
    with browser.open(status, timeout=60) as answer:
        assert json.load(answer)["gateway"] == ID


def accounts(cloud: Kafka) -> tuple[int, int]:
    """What all runs have sampled, and what of it is nowhere."""
    found = read_accounts(cloud.direct).of(ID)
    assert all(each.state is not None for each in found), found
    return sum(each.sampled for each in found), sum(each.lost for each in found)


def test_an_upgrade_in_an_outage_loses_nothing(pi: Pi, cloud: Kafka, tmp_path: Path) -> None:
    done = build(tmp_path, "--release", pi.card.release, "--arch", pi.card.architecture, epoch=EPOCH + 86_400)
    assert done.returncode == 0, done.stderr
    [newer] = tmp_path.glob("*.deb")
    pi.do("copy", newer, ":/home/pi/", timeout_s=900)
    cloud.uplink.close()
    former = pi.until("outbox_records", above=20)["run"]
    with timed("upgrade, with 20 records and more waiting"):
        pi.types(f"sudo apt-get install -y ./{newer.name}", 1500)
    assert pi.types("dpkg-query -W -f '${Version}' fieldgate") == newer.name.split("_")[1]
    run = eventually(
        lambda: pi.status().get("run"), 300, until=lambda now: now not in (None, former), poll_s=2
    )
    cloud.uplink.open()
    pi.until("outbox_records", 600, equal=0)
    ends, begins = (
        [each.time_us for each in readings(cloud, CUP) if each.identity[2] == which]
        for which in (former, run)
    )
    note(f"seconds without a reading of the cup: {(min(begins) - max(ends)) / 1e6 - 1:.0f}")
    assert accounts(cloud)[1] == 0


def test_a_power_cut_costs_what_the_promise_allows(pi: Pi, cloud: Kafka) -> None:
    cloud.uplink.close()
    run = pi.until("outbox_records", above=20)["run"]
    pi.do("power-cut")
    with timed("boot-again, until ssh answers"):
        pi.do("boot-again", "--timeout", 900, timeout_s=1000)
    connect(pi)
    cloud.uplink.open()
    pi.another_run(run)
    pi.until("outbox_records", 600, equal=0)
    sampled, unaccounted = accounts(cloud)
    note(f"sampled {sampled} in all runs, unaccounted {unaccounted}")
    # Readings of the last two seconds before the cut: of ten channels at most.
    assert unaccounted <= 20


def test_a_dht11s_forty_bits_are_decoded(pi: Pi, tmp_path: Path) -> None:
    """The same card, in a machine whose time is its instructions: the line's microseconds are exact."""
    pi.do("stop", timeout_s=400)
    values = []
    with Pi(pi.card, tmp_path) as exact:
        exact.start("--exact", "--card", pi.work / "sd.img")
        exact.types("sudo systemctl disable --now fieldgate")
        exact.do("dht", 4, 21.5, 48)
        for _ in range(6):
            printed = exact.types("sudo fieldgate read dht --json", check=False)
            values.append(tuple(each["value"] for each in printed_json(printed)["readings"]))
    note(f"readings of the DHT11: {values}")
    assert set(values) - {(None, None)} == {(21.5, 48.0)}
    pi.do("boot-again", "--timeout", 900, timeout_s=1000)


def test_purged_it_leaves_nothing(pi: Pi) -> None:
    pi.types("sudo apt-get remove -y fieldgate", 900)
    assert CONFIG in pi.types(f"sudo ls {CONFIG}")
    pi.types("sudo apt-get purge -y fieldgate", 900)
    kept = [f"/{each}/*" for each in ("proc", "sys", "home", "var/log", "etc/mosquitto")]
    # systemd's own, of a unit whose machine lost its power.
    kept += ["/etc/systemd/system/mosquitto*", "*/systemd-private-*"]
    but = " ".join(f"-not -path '{each}'" for each in kept)
    assert pi.types(f"sudo find / -xdev -iname '*fieldgate*' {but}").splitlines() == []
