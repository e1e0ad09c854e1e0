"""What devices in the field publish: shapes of their payloads, with values made up, and configs for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud.wire.reading_records import format_time, parse_dead_letter, parse_reading
from gateway.config import check
from gateway.mqtt.intake import Intake
from gateway.sequences import Sequences
from tests.unit.gateway.mqtt.test_intake import FixedClock

GATEWAY = '[gateway]\nid = "mast-07"\n[[forward]]\n'
LOG = 'filter = "log"\npayload = "json"\nquantity = "temperature"\npath = "t"\ntime_path = "at"\n'
NOW = "2026-11-21T07:35:01.500Z"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gateway.toml"


def station(path: Path, forward: str) -> Intake:
    path.write_text(GATEWAY + forward)
    config, problems = check(path)
    assert config is not None, problems
    intake = Intake("mast-07", Sequences("thisrun"), "mqtt.{quantity}", FixedClock(), config.forwards)
    intake.quantities = config.quantities
    return intake


def taken(intake: Intake, topic: str, payload: bytes) -> list[tuple[str, float | None, str]]:
    found: list[tuple[str, float | None, str]] = []
    for record in intake.accept(topic, payload) or ():
        if record.topic == "gateway.dead-letter":
            letter = parse_dead_letter(record.value)
            found.append((letter.reason, None, letter.detail))
        else:
            reading = parse_reading(record.value)
            found.append((reading.channel, reading.value, format_time(reading.time_us)))
    return found


def test_tasmota(path: Path) -> None:
    intake = station(
        path,
        """filter = "tele/+/SENSOR"
payload = "json"
channel = "{1}"
time_path = "Time"
utc_offset = "+01:00"
readings = [
  { quantity = "temperature", path = "DS18B20.Temperature", optional = true },
  { quantity = "energy", path = "ENERGY.Total", counter_end = 1e6 },
  { quantity = "power", path = "ENERGY.Power" },
]
[[forward]]
filter = "stat/+/POWER"
payload = "number"
quantity = "state"
channel = "{1}"
""",
    )
    sensor = b"""{"Time":"2026-11-21T08:30:%02d","DS18B20":{"Id":"0316A279B254","Temperature":21.5},"ENERGY":
    {"TotalStartTime":"2026-01-01T00:00:00","Total":%.3f,"Yesterday":1.2,"Today":0.4,"Power":123},"TempUnit":"C"}"""
    taken(intake, "tele/plug_1/SENSOR", sensor % (0, 1234.0))
    at = "2026-11-21T07:30:10.000Z"
    assert taken(intake, "tele/plug_1/SENSOR", sensor % (10, 1234.5)) == [
        ("plug_1.temperature", 21.5, at),
        ("plug_1.energy", 0.5, at),
        ("plug_1.power", 123.0, at),
    ]
    assert [taken(intake, "stat/plug_1/POWER", each)[0][1] for each in (b"ON", b"OFF", b"on\n")] == [1, 0, 1]


def test_shelly_of_the_second_generation(path: Path) -> None:
    intake = station(
        path,
        """filter = "+/events/rpc"
payload = "json"
channel = "{1}"
time_path = "params.ts"
steps = [{ where = { method = ["NotifyStatus", "NotifyFullStatus"] } }]
readings = [
  { quantity = "power", path = "params.switch:0.apower", optional = true },
  { quantity = "state", path = "params.switch:0.output", optional = true },
  { quantity = "energy", path = "params.switch:0.aenergy.total", scale = 0.001, """
        """counter_end = 1e9, optional = true },
]
""",
    )
    full = b"""{"src":"shellyplus1pm-a8","dst":"shellyplus1pm-a8/events","method":"NotifyFullStatus","params":
    {"ts":1795246000.71,"switch:0":{"id":0,"output":true,"apower":99.4,"aenergy":{"total":%.3f,"minute_ts":1795246000}}}}"""
    taken(intake, "shellyplus1pm-a8/events/rpc", full % 26589.744)
    at = "2026-11-21T07:26:40.710Z"
    assert taken(intake, "shellyplus1pm-a8/events/rpc", full % 26689.744) == [
        ("shellyplus1pm-a8.power", 99.4, at),
        ("shellyplus1pm-a8.state", 1.0, at),
        ("shellyplus1pm-a8.energy", pytest.approx(0.1), at),
    ]
    change = (
        b'{"src":"x","method":"NotifyStatus","params":{"ts":1795246100.5,"switch:0":{"id":0,"output":false}}}'
    )
    assert taken(intake, "shellyplus1pm-a8/events/rpc", change)[0][:2] == ("shellyplus1pm-a8.state", 0.0)
    assert taken(intake, "shellyplus1pm-a8/events/rpc", b'{"method":"NotifyEvent","params":{"ts":1}}') == []
    assert intake.ignored["FILTERED"] == 1


def test_shelly_of_the_first_generation(path: Path) -> None:
    intake = station(
        path,
        """filter = "shellies/+/relay/0"
payload = "number"
quantity = "state"
channel = "{1}"
[[forward]]
filter = "shellies/+/relay/0/energy"
payload = "number"
quantity = "energy"
channel = "{1}"
scale = 16.6666667e-6            # watt-minutes
counter_end = 1e9
""",
    )
    assert taken(intake, "shellies/shelly1pm-B9/relay/0", b"on")[0][:2] == ("shelly1pm-B9.state", 1.0)
    taken(intake, "shellies/shelly1pm-B9/relay/0/energy", b"60000")
    energy = taken(intake, "shellies/shelly1pm-B9/relay/0/energy", b"120000")
    assert [each[1] for each in energy] == [pytest.approx(1.0)]


def test_zigbee2mqtt(path: Path) -> None:
    intake = station(
        path,
        """filter = "zigbee2mqtt/+"
payload = "json"
channel = "{1}"
time_path = "last_seen"
readings = [
  { quantity = "temperature", path = "temperature", optional = true },
  { quantity = "state", path = "contact", optional = true },
]
[[forward]]
filter = "zigbee2mqtt/+/availability"
payload = "json"
path = "state"
quantity = "state"
words = { online = 1, offline = 0 }
""",
    )
    weather = b"""{"battery":97,"humidity":48.2,"last_seen":"2026-11-21T07:30:07.800Z","linkquality":120,
    "temperature":21.5}"""
    at = "2026-11-21T07:30:07.800Z"
    assert taken(intake, "zigbee2mqtt/Temperatur Balkon", weather) == [
        ("Temperatur_Balkon.temperature", 21.5, at)
    ]
    door = b'{"contact":false,"last_seen":"2026-11-21T08:30:07+01:00","linkquality":141}'
    assert taken(intake, "zigbee2mqtt/door", door) == [("door.state", 0.0, "2026-11-21T07:30:07.000Z")]
    epoch = b'{"contact":true,"last_seen":1795246207800}'
    assert taken(intake, "zigbee2mqtt/door", epoch) == [("door.state", 1.0, at)]
    for word, value in ((b'"online"', 1.0), (b'"offline"', 0.0)):
        found = taken(intake, "zigbee2mqtt/door/availability", b'{"state":%s}' % word)
        assert found == [("zigbee2mqtt-door-availability.state", value, NOW)]


def test_rtl_433(path: Path) -> None:
    intake = station(
        path,
        """filter = "rtl_433/+/+"
payload = "json"
path = "temperature_C"
channel = "{1}-{2}"
quantity = "temperature"
time_path = "time"
utc_offset = "+00:00"
[[forward]]
filter = "rtl_433/+/devices/+/+/temperature_C"
payload = "number"
quantity = "temperature"
""",
    )
    event = b'{"time" : %s, "model" : "Fineoffset-WH2A", "id" : 11, "temperature_C" : 24.300, "mic" : "CRC"}'
    for time, at in (
        (b'"2026-11-21 07:30:27.002657"', "2026-11-21T07:30:27.002657Z"),
        (b'"2026-11-21T08:30:27+0100"', "2026-11-21T07:30:27.000Z"),
        (b'"1795246227"', "2026-11-21T07:30:27.000Z"),
        (b'"1795246227.002657"', "2026-11-21T07:30:27.002657Z"),
    ):
        assert taken(intake, "rtl_433/Fineoffset-WH2A/11", event % time) == [
            ("Fineoffset-WH2A-11.temperature", 24.3, at)
        ]
    (one,) = taken(intake, "rtl_433/pi/devices/LaCrosse-TX141THBv2/0/temperature_C", b"19.7")
    assert one == ("rtl_433-pi-devices-LaCrosse-TX141THBv2-0-temperature_C.temperature", 19.7, NOW)


def test_chirpstack(path: Path) -> None:
    intake = station(
        path,
        """filter = "application/+/device/+/event/up"
payload = "json"
channel = "{2}"
time_path = "time"
readings = [
  { quantity = "temperature", path = "object.temperature" },
  { quantity = "soil_moisture", path = 'object."soil.moisture"' },
]
""",
    )
    up = b"""{"deduplicationId":"3ac7e3c4","time":"2026-11-21T07:30:15.775023242+00:00","deviceInfo":
    {"tenantName":"ChirpStack","applicationId":"17c82e96","deviceName":"soil","devEui":"0101010101010101","tags":{}},"devAddr":"00189440",
    "adr":true,"dr":1,"fCnt":4,"fPort":1,"confirmed":false,"data":"qg==","object":{"temperature":21.5,"soil.moisture":18.0},
    "rxInfo":[{"gatewayId":"0016c001f153a14c","rssi":-36,"snr":10.5}],"txInfo":{"frequency":868100000}}"""
    at = "2026-11-21T07:30:15.775023Z"
    assert taken(intake, "application/17c82e96/device/0101010101010101/event/up", up) == [
        ("0101010101010101.temperature", 21.5, at),
        ("0101010101010101.soil_moisture", 18.0, at),
    ]


def test_the_things_stack(path: Path) -> None:
    intake = station(
        path,
        """filter = "v3/+/devices/+/up"
payload = "json"
path = "uplink_message.decoded_payload.temperature"
channel = "{2}"
quantity = "temperature"
time_path = "received_at"
""",
    )
    up = b"""{"end_device_ids":{"device_id":"dev1","application_ids":{"application_id":"app1"},
    "dev_eui":"0004A30B001C0530"},"received_at":"2026-11-21T07:30:45.787450512Z","uplink_message":{"f_port":1,
    "frm_payload":"gkHe","decoded_payload":{"temperature":21.5},"rx_metadata":[{"gateway_ids":{"gateway_id":"gtw1"},"rssi":-35}]}}"""
    assert taken(intake, "v3/app1@ttn/devices/dev1/up", up) == [
        ("dev1.temperature", 21.5, "2026-11-21T07:30:45.787450Z")
    ]


@pytest.mark.parametrize(
    ("payload", "paths"),
    [
        (b'[{"ts": 1795246200, "t": 21.5}, {"ts": 1795246210, "t": 21.75}]', ("*.t", "*.ts")),
        (
            b'{"id": 7, "data": [{"ts": 1795246200, "t": 21.5}, {"ts": 1795246210, "t": 21.75}]}',
            ("data.*.t", "data.*.ts"),
        ),
        # The newest first; by columns; by places.
        (
            b'{"data": [{"ts": 1795246210, "t": 21.75}, {"ts": 1795246200, "t": 21.5}]}',
            ("data.*.t", "data.*.ts"),
        ),
        (
            b'{"t": ["21.5", "21.75"], "time": ["2026-11-21T07:30:00Z", "2026-11-21T07:30:10Z"]}',
            ("t.*", "time.*"),
        ),
        (b'{"v": [[1795246200, 21.5], [1795246210, 21.75]]}', ("v.*.1", "v.*.0")),
    ],
)
def test_each_reading_of_a_batch_is_taken_in_the_order_of_time(
    path: Path, payload: bytes, paths: tuple[str, str]
) -> None:
    forward = LOG.replace('"t"', f'"{paths[0]}"').replace('"at"', f'"{paths[1]}"')
    intake = station(path, forward)
    assert taken(intake, "log", payload) == [
        ("log.temperature", 21.5, "2026-11-21T07:30:00.000Z"),
        ("log.temperature", 21.75, "2026-11-21T07:30:10.000Z"),
    ]


def test_what_is_wrong_in_a_batch_costs_itself_and_all_is_counted(path: Path) -> None:
    intake = station(
        path,
        """filter = "log"
payload = "json"
time_path = "d.*.ts"
readings = [
  { quantity = "temperature", path = "d.*.t" },
  { quantity = "energy", path = "d.*.e", counter_end = 1e6, optional = true },
]
""",
    )
    rows = b'[{"ts":1795246220,"t":3,"e":30},{"ts":1795246210,"t":nan,"e":20},{"ts":1795246200,"t":1}, 5]'
    assert taken(intake, "log", b'{"d":%s}' % rows) == [
        ("log.temperature", 1.0, "2026-11-21T07:30:00.000Z"),
        ("log.temperature", 3.0, "2026-11-21T07:30:20.000Z"),
        ("log.energy", 10.0, "2026-11-21T07:30:20.000Z"),
        ("NOT_FINITE", None, "d.*.t is not finite; NO_SUCH_PATH: there is nothing at d.*.t"),
    ]
    assert (intake.ignored["ABSENT"], intake.ignored["FIRST_TOTAL"]) == (2, 1)
    assert taken(intake, "log", b'{"d":[]}') == [("NO_SUCH_PATH", None, "there is nothing at d.*.t")]
    assert intake.ignored["ABSENT"] == 3
    assert taken(intake, "log", b'{"d":{"t":1}}')[0][0] == "NO_SUCH_PATH"
    many = b'{"d":[' + b",".join([b'{"ts":1795246220,"t":3}'] * 10_001) + b"]}"
    assert taken(intake, "log", many)[0][0] == "TOO_LARGE"


@pytest.mark.parametrize(
    ("time", "at"),
    [
        (1_795_246_227_002_657, "2026-11-21T07:30:27.002657Z"),
        (1_795_246_227_002_657_123, "2026-11-21T07:30:27.002657Z"),
        ('"1795246227002657123"', "2026-11-21T07:30:27.002657Z"),
        ('"2026-11-21T07:30"', "2026-11-21T07:30:00.000Z"),
        ('"2026-11-21 07:30:27,25 UTC"', "2026-11-21T07:30:27.250Z"),
        ('"2026-11-21T08:30:27+01"', "2026-11-21T07:30:27.000Z"),
        ('"2026-11-21t07:30:27z"', "2026-11-21T07:30:27.000Z"),
    ],
)
def test_times(path: Path, time: object, at: str) -> None:
    intake = station(path, LOG + 'utc_offset = "+00:00"\n')
    assert taken(intake, "log", f'{{"t": 1, "at": {time}}}'.encode()) == [("log.temperature", 1.0, at)]


@pytest.mark.parametrize(
    "time", ["20261121", "20261121073000", '"20261121T073000"', '"2026-11-21"', '"21.11.2026 07:30"']
)
def test_what_is_no_time(path: Path, time: object) -> None:
    intake = station(path, LOG + 'utc_offset = "+00:00"\n')
    ((reason, _, _),) = taken(intake, "log", f'{{"t": 1, "at": {time}}}'.encode())
    assert reason in ("BAD_TIME", "TIME_TOO_OLD")


def test_a_time_without_a_zone_needs_the_key(path: Path) -> None:
    ((reason, _, detail),) = taken(station(path, LOG), "log", b'{"t": 1, "at": "2026-11-21T07:30:27"}')
    assert reason == "BAD_TIME"
    assert "utc_offset" in detail
    nepal = station(path, LOG + 'utc_offset = "+05:45"\n')
    found = taken(nepal, "log", b'{"t": 1, "at": "2026-11-21T07:30:27"}')
    assert found == [("log.temperature", 1.0, "2026-11-21T01:45:27.000Z")]


def test_keys_with_dots_are_quoted(path: Path) -> None:
    forward = """filter = "air"
payload = "json"
readings = [
  { quantity = "co2", path = 'sds."PM2.5".0' },
  { quantity = "energy", path = '"1-0:1.8.0"', counter_end = 1e6 },
]
"""
    intake = station(path, forward)
    assert taken(intake, "air", b'{"sds": {"PM2.5": [7]}, "1-0:1.8.0": 5}') == [("air.co2", 7.0, NOW)]
    assert intake.ignored["FIRST_TOTAL"] == 1
    plain = station(path, 'filter = "air"\npayload = "json"\nquantity = "co2"\npath = "sds.PM2.5"\n')
    ((_, _, detail),) = taken(plain, "air", b'{"sds": {"PM2.5": 7}}')
    assert '"PM2.5"' in detail


def test_steps_have_quoted_keys_too(path: Path) -> None:
    forward = """filter = "air"
payload = "raw"
steps = [{ drop = ['"user.name"', 'a."b.c"'] }, { set = { '"x.y"' = 1 } }, { rename = { '"p.q"' = "r" } }]
"""
    intake = station(path, forward)
    (record,) = intake.accept("air", b'{"user.name": "me", "a": {"b.c": 1, "d": 2}, "p.q": 5}') or ()
    assert record.value == b'{"a":{"d":2},"x.y":1,"r":5}'


def test_words(path: Path) -> None:
    forward = 'filter = "d/+"\npayload = "number"\nquantity = "%s"\nchannel = "{1}"\n'
    states = station(path, forward % "state")
    for word, value in ((b"ON", 1), (b"off", 0), (b"True", 1), (b"false", 0), (b"1", 1)):
        assert taken(states, "d/1", word)[0][1] == value
    assert taken(states, "d/1", b"open")[0][0] == "NOT_A_NUMBER"
    doors = station(path, forward % "state" + "words = { OPEN = 1, closed = 0, on = 0.5 }\n")
    for word, number in ((b"open", 1), (b"CLOSED", 0), (b"ON", 0.5), (b"off", 0)):
        assert taken(doors, "d/1", word)[0][1] == number
    assert taken(station(path, forward % "co2"), "d/1", b"ON")[0][0] == "NOT_A_NUMBER"
    nothing = station(path, LOG.replace('time_path = "at"', 'words = { "" = 1, none = 2 }'))
    for odd in (b"null", b"{}", b"[]", b"true"):
        assert taken(nothing, "log", b'{"t": %s}' % odd)[0][0] == "NOT_A_NUMBER"
    assert taken(nothing, "log", b'{"t": ""}')[0][1] == 1
    calm = station(path, forward % "wind_speed" + "words = { calm = 0 }\nscale = 0.5\n")
    assert [taken(calm, "d/1", each)[0][1] for each in (b"Calm", b"3")] == [0.0, 1.5]
