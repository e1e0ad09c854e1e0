"""``fieldgate init``: a commented config for any driver; check names what is left to fill in, no more."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from cloud.toml_models import keys_of
from drivers.registry import DRIVERS, driver_type
from gateway import cli
from gateway.config import check, load
from gateway.config.model import SensorCommon, SiteConfig
from gateway.config.schema import config_schema
from tests.support.json_schema import errors
from tests.unit.drivers.plug_ins import DRIVER, Packages


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "gateway.toml"


def _problems(path: Path) -> list[str]:
    return [f"{each.key}: {each.message}" for each in check(path)[1] if each.severity == "error"]


LEFT = "is still to be filled in: put the right value in place of CHANGE-ME"


def _given(driver: str) -> str:
    """A value for each key that the driver requires, as installers give them."""
    values = {
        "pin": "17",
        "slope": "0.765",
        "device": "bme280",
        "quantity": "temperature" if driver == "w1" else "voltage",
        "north_offset_deg": "240",
        "channels": '[{ quantity = "temperature", attribute = "in_temp" }]',
        "registers": '[{ quantity = "power", address = 40083 }]',
        "host": "plant",
    }
    required = [key.name for key in keys_of(driver_type(driver).options) if key.required]
    if driver == "modbus":
        # That or a device.
        required.append("host")
    return ",".join(f"{name}={values[name]}" for name in required)


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_driver_gets_a_file_that_is_right(driver: str, target: Path) -> None:
    arguments = ["init", "--id", "mast-07", "--kafka", "kafka.example.org:9092", "-o", str(target)]
    place = ["--latitude", "27.7", "--longitude", "85.5", "--elevation", "2100"]
    site = ["--site", "Ridge", "--utc-offset", "+05:45"]
    assert cli.main([*arguments, *place, *site, "--sensor", f"one={driver}:{_given(driver)}"]) == 0
    assert _problems(target) == []
    config = load(target)
    assert [(sensor.name, sensor.driver) for sensor in config.sensors] == [("one", driver)]
    assert (config.gateway.id, config.gateway.latitude, config.gateway.elevation_m) == ("mast-07", 27.7, 2100)
    assert config.site == SiteConfig("Ridge", None, 27.7, 85.5, 2100, utc_offset="+05:45")
    text = target.read_text()
    assert list(errors(config_schema(DRIVERS), tomllib.loads(text))) == []
    assert '#trust = "kernel"' in text
    # Every key has its line, given or not, and a sentence above it.
    lines = text.splitlines()
    for key in (*keys_of(driver_type(driver).options), *keys_of(SensorCommon)):
        assert key.meaning is not None
        found = [number for number, line in enumerate(lines) if line.lstrip("#").startswith(f"{key.name} =")]
        assert any(key.meaning.text.partition("; ")[0] in lines[number - 1] for number in found), key.name


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_is_taken_out_of_its_comment_is_what_holds_anyway(driver: str, target: Path) -> None:
    """Each default as the file shows it is the default."""
    if driver_type(driver).emulate is None:
        pytest.skip("has no emulation")
    place = ["--latitude", "27.7", "--longitude", "85.5"]
    arguments = ["init", "--id", "m", "--board", "simulated", "--sensor", f"one={driver}:{_given(driver)}"]
    assert cli.main([*arguments, *place, "-o", str(target)]) == 0
    before = load(target)
    shown = [
        line[1:] if line.startswith("#") and " = " in line and not line.startswith("# ") else line
        for line in target.read_text().splitlines()
    ]
    target.write_text("\n".join(shown))
    assert load(target) == before


def test_what_is_left_to_the_installer_is_named_line_by_line(
    target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        cli.main(["init", "--sensor", "cup=hall-anemometer:17", "--sensor", "gps=gpsd", "-o", str(target)])
        == 0
    )
    expected = [
        "gateway.id",
        "gateway.latitude",
        "gateway.longitude",
        "kafka.bootstrap_servers",
        'sensor["cup"].slope',
    ]
    assert _problems(target) == [f"{key}: {LEFT}" for key in expected]
    shown = capsys.readouterr().out.splitlines()
    lines = target.read_text().splitlines()
    for key, line in zip(expected, shown, strict=False):
        place, number, rest = line.split(":", 2)
        assert (place, rest) == (str(target), f" {key}: is still to be filled in")
        assert "CHANGE-ME" in lines[int(number) - 1]
    assert shown[-1] == f"wrote {target}; whether it is right: fieldgate check -c {target}"


def test_nothing_is_overwritten(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target.write_text("mine")
    assert cli.main(["init", "-o", str(target)]) == 1
    assert target.read_text() == "mine"
    assert capsys.readouterr().err == (
        f"fieldgate: {target} is there already: nothing written; name another with -o\n"
    )
    link = target.with_name("link.toml")
    link.symlink_to(target.parent / "nowhere")
    assert cli.main(["init", "-o", str(link)]) == 1
    assert link.is_symlink()


def test_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init", "--id", "m", "--sensor", "baro=bp20", "-o", "-"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["sensor"] == [{"name": "baro", "driver": "bp20"}]


def test_a_directory_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init", "-o", str(tmp_path / "none" / "g.toml")]) == 1
    assert "can't be written: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sensors", "code", "message"),
    [
        (["cup"], 2, "'cup' is not NAME=DRIVER, NAME=DRIVER:PIN or NAME=DRIVER:KEY=VALUE,…"),
        (["cup=hall"], 2, "no driver 'hall'; there are analog"),
        (["cup=hall-anemometer:17,slop=1"], 2, "hall-anemometer has no key 'slop'; did you mean slope?"),
        (["baro=bp20:17"], 2, "bp20 has no key 'pin'; there are adc,"),
        (["a=dht11:4", "b=dht11:4"], 1, 'sensor["b"].pin: BCM pin 4 is "a"\'s (line'),
        (["a=dht11:40"], 1, "place 40 on the header is BCM 21"),
        (["a b=dht11:4"], 1, 'not "a b"'),
        (['a=dht11:4,model="x'], 0, ""),
        (["baro=bp20", "co2=scd4x,pressure_from=baro"], 0, ""),
    ],
)
def test_sensors_that_cannot_be(
    sensors: list[str], code: int, message: str, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [part for text in sensors for part in ("--sensor", text)]
    assert cli.main(["init", "--id", "m", *options, "-o", str(target)]) == code
    assert message in capsys.readouterr().err
    assert target.exists() == (code == 0)


def test_a_package_brings_its_own(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Packages(tmp_path / "packages", monkeypatch).install("acme", "acme-thermometer = acme", acme=DRIVER)
    arguments = ["init", "--id", "m", "--kafka", "k:9092", "--sensor", "shed=acme-thermometer:level=3.5"]
    assert cli.main([*arguments, "-o", str(target)]) == 0
    assert _problems(target) == []
    assert load(target).sensors[0].options.level == 3.5
