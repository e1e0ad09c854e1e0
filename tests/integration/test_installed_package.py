"""What an installer runs on a Pi, from the unpacked package alone: no clone and nothing injected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.installed_package import InstalledPackage

PI = {
    "/proc/device-tree/model": "Raspberry Pi 3 Model B Rev 1.2\0",
    "/proc/device-tree/compatible": "raspberrypi,3-model-b\0brcm,bcm2837\0",
    "/sys/bus/gpio/devices/gpiochip0/of_node/compatible": "raspberrypi,firmware-gpio\0",
    "/sys/bus/gpio/devices/gpiochip1/of_node/compatible": "brcm,bcm2835-gpio\0",
    "/etc/fieldgate/gateway.toml": """\
[gateway]
id = "mast-07"
latitude = 27.7
longitude = 85.5
[kafka]
bootstrap_servers = "127.0.0.1:1"
[[sensor]]
name = "cup"
driver = "hall-anemometer"
pin = 17
slope = 0.765
offset = 0.35
[[sensor]]
name = "dht"
driver = "dht11"
pin = 4
""",
}


@pytest.fixture
def pi(tree: Path, release: str, tmp_path: Path) -> InstalledPackage:
    """A Raspberry Pi by its device tree, whose pins nobody may open."""
    from targets import RELEASES

    installed = InstalledPackage(tree, tmp_path, PI)
    python = installed.run("python3", "-V")
    if f"Python {RELEASES[release].python}." not in python.stdout:
        pytest.skip(f"this machine's own Python isn't {release}'s: {python.stdout}{python.stderr}")
    return installed


def test_doctor_examines_the_pins_of_a_pi(pi: InstalledPackage) -> None:
    done = pi.run("fieldgate", "doctor", "--json", "--timeout", "1")
    assert "Traceback" not in done.stderr, done.stderr
    findings = json.loads(done.stdout)["findings"]
    gpio = [each for each in findings if each["area"] == "gpio"]
    assert [each["severity"] for each in gpio] == ["ok", "error"]
    assert gpio[0]["what"].endswith("counts pulses, no library is needed")
    # The second chip of this board has the header's pins; this machine has no device file of it.
    assert gpio[1]["what"] == "there is no /dev/gpiochip1"


def test_the_subject_of_a_finding_stands_apart(pi: InstalledPackage) -> None:
    done = pi.run("fieldgate", "doctor", "--timeout", "1")
    assert "ok      identity  its runs don't prove themselves" in done.stdout


def test_the_process_that_times_a_dht11_finds_its_library(pi: InstalledPackage) -> None:
    done = pi.run("fieldgate", "read", "dht", "--json")
    assert "No module named" not in done.stdout + done.stderr
    # Blinka, in the process, has come as far as this machine's missing pins.
    assert "No Raspberry Pi header GPIO controller exposes GPIO 4" in done.stdout
