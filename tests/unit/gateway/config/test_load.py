"""Good configs, defaults and overrides."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from drivers.boards.registry import ReplayColumn, ReplayOptions, SimulatedOptions
from drivers.gpsd import GpsdOptions
from drivers.hall_anemometer import HallAnemometerOptions
from drivers.pyranometer import PyranometerOptions
from gateway.config import Config, ConfigError, Problem, check, load
from gateway.config.bridges.model import DropIf, ForwardConfig, ForwardReading
from tests.support.examples import examples

ROOT = Path(__file__).parents[4]
EXAMPLES = ROOT / "docs" / "examples"

MINIMAL = '[gateway]\nid = "m"\n'
CUP = '[[sensor]]\nname = "cup"\ndriver = "hall-anemometer"\npin = 17\nslope = 0.765\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gateway.toml"


def _load(path: Path, text: str, **overrides: object) -> Config:
    path.write_text(text)
    return load(path, {key.replace("__", "."): value for key, value in overrides.items()})


def _errors(path: Path, text: str, overrides: dict[str, object]) -> list[Problem]:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    return [problem for problem in caught.value.problems if problem.severity == "error"]


def test_sensor_gets_common_keys_and_its_drivers_options(path: Path) -> None:
    sensor = _load(
        path,
        MINIMAL
        + CUP
        + 'height_m = 50\nmodel = "NRG 40H"\noffset = 0.35\ncalibrated = 2026-03-12\npair = "twin"\n'
        + CUP.replace('"cup"', '"twin"').replace("17", "27"),
    ).sensors[0]
    assert (sensor.name, sensor.driver, sensor.interval_s, sensor.height_m) == (
        "cup",
        "hall-anemometer",
        1,
        50,
    )
    assert (sensor.model, sensor.pair, sensor.calibrated) == ("NRG 40H", "twin", date(2026, 3, 12))
    assert sensor.options == HallAnemometerOptions(pin=17, slope=0.765, offset=0.35)
    assert type(sensor.options) is HallAnemometerOptions


def test_interval_defaults_to_the_drivers_shortest_where_that_is_longer(path: Path) -> None:
    config = _load(path, MINIMAL + '[[sensor]]\nname = "dht"\ndriver = "dht11"\npin = 4\n')
    assert config.sensors[0].interval_s == 2.0


def test_nested_table_means_the_last_sensor(path: Path) -> None:
    sun = '[[sensor]]\nname = "sun"\ndriver = "pyranometer"\n[sensor.adc]\ninput = "0-1"\ngain = "0.256V"\n'
    options = _load(path, MINIMAL + CUP + sun).sensors[1].options
    assert isinstance(options, PyranometerOptions)
    assert (options.adc.input, options.adc.gain, options.adc.address) == ("0-1", "0.256V", 0x48)


@pytest.mark.parametrize(
    ("adc", "wired"),
    [
        ("", (0x48, "2-3", "0.256V")),
        ("adc = { address = 0x49 }", (0x49, "2-3", "0.256V")),
        ('adc = { input = "0-1" }', (0x48, "0-1", "0.256V")),
        ('adc = { gain = "0.512V" }', (0x48, "2-3", "0.512V")),
    ],
)
def test_an_adc_table_with_some_keys_keeps_the_drivers_defaults_for_the_others(
    path: Path, adc: str, wired: tuple[int, str, str]
) -> None:
    sun = f'[[sensor]]\nname = "sun"\ndriver = "pyranometer"\n{adc}\n'
    options = _load(path, MINIMAL + sun).sensors[0].options
    assert (options.adc.address, options.adc.input, options.adc.gain) == wired


def test_gpsd_measures_from_the_gateway_unless_configured_otherwise(path: Path) -> None:
    gateway = MINIMAL + "latitude = 27.7\nlongitude = 85.5\n"
    gps = '[[sensor]]\nname = "gps"\ndriver = "gpsd"\n'
    assert _load(path, gateway + gps).sensors[0].options == GpsdOptions(latitude=27.7, longitude=85.5)
    own = _load(path, gateway + gps + "latitude = 1\nlongitude = 2\n").sensors[0].options
    assert own == GpsdOptions(latitude=1.0, longitude=2.0)


def test_dotted_and_quoted_properties_are_equal(path: Path) -> None:
    lines = ('ssl.ca.location = "/"', '"compression.type" = "lz4"', "linger.ms = 5", "log.queue = true")
    text = "\n".join(("[kafka.properties]", *lines, ""))
    assert _load(path, MINIMAL + text).kafka.properties == {
        "ssl.ca.location": "/",
        "compression.type": "lz4",
        "linger.ms": "5",
        "log.queue": "true",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"1GiB"', 1 << 30),
        ('"512 MiB"', 512 << 20),
        ('"1.5GB"', 1_500_000_000),
        ('"100000000"', 100_000_000),
        ("100000000", 100_000_000),
        ('"20000kB"', 20_000_000),
    ],
)
def test_sizes(path: Path, text: str, expected: int) -> None:
    assert _load(path, MINIMAL + f"[outbox]\nmax_bytes = {text}\n").outbox.max_bytes == expected


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("0.0.0.0:80", ("0.0.0.0", 80)),  # noqa: S104
        ("[::1]:8321", ("::1", 8321)),
        ("localhost:0", ("localhost", 0)),
        ("", None),
    ],
)
def test_status_address(path: Path, listen: str, address: tuple[str, int] | None) -> None:
    status = _load(path, MINIMAL + f'[status]\nlisten = "{listen}"\n').status
    assert (status.address, status.port, status.listen) == (address, address[1] if address else 0, listen)


def test_relative_outbox_lies_beside_the_config(path: Path) -> None:
    assert _load(path, MINIMAL + '[outbox]\npath = "data/o.db"\n').outbox.path == path.parent / "data/o.db"


def test_clock_is_trusted_on_a_simulated_board_and_where_configured(path: Path) -> None:
    simulated = MINIMAL + '[board]\nkind = "simulated"\nseed = 3\n'
    assert _load(path, simulated).clock.trust == "always"
    assert _load(path, simulated).board.options == SimulatedOptions(seed=3)
    assert _load(path, simulated + '[clock]\ntrust = "kernel"\n').clock.trust == "kernel"
    assert _load(path, MINIMAL + '[clock]\ntrust = "always"\n').clock.trust == "always"


def test_replay_columns(path: Path) -> None:
    (path.parent / "a.csv").write_text("t,hpa,v\n")
    text = '[board]\nkind = "replay"\nfile = "a.csv"\nspeed = 60\n[board.columns]\n"cup" = "v"\n'
    baro = 'baro = { column = "hpa", scale = 0.1 }\n'
    options = _load(
        path, MINIMAL + text + baro + CUP + '[[sensor]]\nname = "baro"\ndriver = "bp20"\n'
    ).board.options
    assert isinstance(options, ReplayOptions)
    assert (options.file, options.speed) == ("a.csv", 60.0)
    assert options.columns == {"cup": "v", "baro": ReplayColumn("hpa", 0.1)}


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("time,wind\n", "line 1: no column 'v'; there are time, wind"),
        ("", "line 1: no header"),
        ("v" * 200_000, "isn't a CSV file: field larger than field limit (131072)"),
    ],
)
def test_a_column_that_the_file_has_not_is_an_error_of_check_too(
    path: Path, header: str, problem: str
) -> None:
    (path.parent / "a.csv").write_text(header)
    text = MINIMAL + '[board]\nkind = "replay"\nfile = "a.csv"\n[board.columns]\ncup = "v"\n' + CUP
    (found,) = _errors(path, text, {})
    assert str(found) == f"{path}:6: board.columns: {path.parent / 'a.csv'}: {problem}"


def test_column_without_a_channel_and_missing_file_are_warnings(path: Path) -> None:
    path.write_text(
        MINIMAL + '[board]\nkind = "replay"\nfile = "a.csv"\n[board.columns]\ncup = "v"\nx = "w"\n' + CUP
    )
    config, problems = check(path)
    assert config is not None
    assert [(problem.line, problem.key, problem.severity) for problem in problems] == [
        (5, "board.file", "warning"),
        (8, "board.columns.x", "warning"),
    ]


def test_one_pin_in_inline_tables_is_found_on_its_line(path: Path) -> None:
    text = (
        'sensor = [\n  { name = "a", driver = "dht11", pin = 4 },\n'
        '  # between\n  { name = "b", driver = "dht11", pin = 4 },\n]\n'
    )
    (problem,) = _errors(path, text + MINIMAL, {})
    assert (problem.line, problem.key) == (4, 'sensor["b"].pin')


def test_forwards_that_make_readings(path: Path) -> None:
    text = """
[[forward]]
filter = "sensors/+/temperature"
payload = "number"
quantity = "temperature"
[[forward]]
filter = "weather/+/#"
payload = "json"
path = "data.0.rh"
time_path = "at"
quantity = "humidity"
unit = "%RH"
channel = "{1}-{2}"
period_s = 60
scale = 100
raw_unit = "1"
min = 0
max = 100
drop_if = { above = 120 }
[[forward]]
filter = "blobs/#"
payload = "raw"
channel = "blobs"
"""
    assert _load(path, MINIMAL + text).forwards == (
        ForwardConfig("sensors/+/temperature", "number", "temperature"),
        ForwardConfig(
            "weather/+/#", "json", "humidity", "data.0.rh", "at", 60.0, unit="%RH", channel="{1}-{2}",
            scale=100.0, raw_unit="1", min=0.0, max=100.0, drop_if=DropIf(above=120.0),
        ),
        ForwardConfig("blobs/#", "raw", channel="blobs"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "readings",
    [
        """readings = [
  { quantity = "temperature", path = "temperature", drop_if = { equals = 85 } },
  { quantity = "humidity", path = "rh" },
  { quantity = "temperature", path = "ground.0", channel = "{1}-ground", optional = true },
]
""",
        """[[forward.readings]]
quantity = "temperature"
path = "temperature"
drop_if = { equals = 85 }
[[forward.readings]]
quantity = "humidity"
path = "rh"
[[forward.readings]]
quantity = "temperature"
path = "ground.0"
channel = "{1}-ground"
optional = true
""",
    ],
    ids=["inline", "tables"],
)
def test_several_readings_of_one_message_are_an_array_of_tables(path: Path, readings: str) -> None:
    text = (
        '[[forward]]\nfilter = "zigbee/+"\npayload = "json"\ntime_path = "at"\nchannel = "{1}"\n' + readings
    )
    assert _load(path, MINIMAL + text).forwards == (
        ForwardConfig(
            "zigbee/+", "json", time_path="at", channel="{1}",
            readings=(
                ForwardReading("temperature", "temperature", drop_if=DropIf(equals=85.0)),
                ForwardReading("humidity", "rh"),
                ForwardReading("temperature", "ground.0", channel="{1}-ground", optional=True),
            ),
        ),
    )  # fmt: skip


def test_overrides_stand_over_the_file(path: Path) -> None:
    config = _load(
        path,
        MINIMAL + "[mqtt]\nport = 1883\n" + CUP,
        mqtt__port=2000,
        outbox__max_bytes="2GiB",
        sensor__cup__height_m=20,
        gateway__id="other",
    )
    assert (config.mqtt.port, config.outbox.max_bytes) == (2000, 2 << 30)
    assert (config.sensors[0].height_m, config.gateway.id) == (20, "other")


def test_overrides_reach_kafka_properties(path: Path) -> None:
    path.write_text(MINIMAL)
    config = load(path, {'kafka.properties."linger.ms"': 5, "kafka.properties.batch.size": 9})
    assert config.kafka.properties == {"linger.ms": "5", "batch.size": "9"}


@pytest.mark.parametrize(
    ("key", "value", "shown", "message", "suggestion"),
    [
        ("mqtt.port", "x", "mqtt.port", "must be a whole number", None),
        ("mqtt.prot", 1, "mqtt.prot", "is not a known key", "port"),
        ("mqqt.port", 1, "mqqt", "is not a known section", "mqtt"),
        ("sensor.cup.slope", -1, 'sensor["cup"].slope', "must be above 0", None),
        ("sensor.cap.slope", 1, "sensor.cap.slope", 'there is no sensor "cap"', "cup"),
        ("sensor.cup", 1, "sensor.cup", "is a list", None),
        ("gateway.id.x", 1, "gateway.id.x", "gateway.id is not a table", None),
        ("a b", 1, "a b", "is not a dotted key", None),
        ("a = 1\nb", 1, '"a = 1\\nb"', "is not a dotted key", None),
        ("", 1, "", "is not a dotted key", None),
        ("gateway.latitude", float("nan"), "gateway.latitude", "finite", None),
        ("mqtt.host", "\udc80", "mqtt.host", "is not UTF-8", None),
    ],
)
def test_wrong_override(
    path: Path, key: str, value: object, shown: str, message: str, suggestion: str | None
) -> None:
    (problem,) = _errors(path, MINIMAL + CUP, {key: value})
    assert (problem.file, problem.line, problem.key) == ("--set", None, shown)
    assert message in problem.message
    assert problem.suggestion == suggestion
    assert str(problem).startswith("--set:")


def test_problems_of_the_file_keep_their_lines_beside_overrides(path: Path) -> None:
    problems = _errors(path, MINIMAL + "[mqtt]\nport = 0\nkeepalive_s = 1\n", {"mqtt.keepalive_s": 2})
    assert [(problem.line, problem.key) for problem in problems] == [
        (4, "mqtt.port"),
        (None, "mqtt.keepalive_s"),
    ]


@pytest.mark.parametrize("name", ["mast", "river", "simulated", "replay-nrg"])
def test_examples_pass(name: str) -> None:
    config, problems = check(EXAMPLES / f"{name}.toml")
    assert config is not None
    assert {problem.key for problem in problems} <= {"board.file"}


_WORDS = """gateway mqtt kafka properties sensor forward board columns id name driver pin slope adc input
    kind file filter listen port path pair interval_s payload quantity channel drop_if min max scale readings
    optional x"""
_words = st.sampled_from(_WORDS.split())


@settings(
    deadline=None, max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    key=st.one_of(st.text(max_size=20), st.lists(_words, min_size=1, max_size=3).map(".".join)),
    value=st.text(),
)
def test_no_override_makes_check_raise(path: Path, key: str, value: str) -> None:
    path.write_text(MINIMAL + CUP)
    check(path, {key: value})
