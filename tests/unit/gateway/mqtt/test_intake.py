"""What becomes of a message from the broker."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cloud.wire.quantities import QUANTITIES, Quantity
from cloud.wire.reading_records import DeadLetter, Reading, encode_reading, parse_dead_letter, parse_reading
from gateway.clock.hold import boot_of, repaired
from gateway.config.bridges.model import DropIf, ForwardConfig, ForwardReading
from gateway.forwarding.records import from_bytes, to_bytes
from gateway.mqtt.intake import Intake
from gateway.ports import REPLAYED, Record
from gateway.sequences import Sequences
from tests.unit.cloud.wire.test_reading_records import READING

OWN = "t/cup-50m-a/wind_speed"
"""Where the gateway's own reading comes back."""
RECEIVED_NS = READING.time_us * 1000 + 1_500_000_000


class FixedClock:
    """A clock that stands still."""

    def __init__(self, *, synced: bool = True) -> None:
        self.synced = synced

    def now_ns(self) -> int:
        return RECEIVED_NS

    def offset_ns(self) -> int:
        return RECEIVED_NS - 61_250_000_000

    def monotonic(self) -> float:
        return 0.0

    def join(self) -> None: ...
    def leave(self) -> None: ...
    def stop(self) -> None: ...

    def covers(self, start_ns: int, end_ns: int) -> bool:
        return True

    def wait_until(
        self, time_ns: int, offset_ns: int | None = None, unless: threading.Event | None = None
    ) -> bool:
        return False

    def wake(self) -> None: ...


def intake(*, synced: bool = True) -> tuple[Intake, Sequences]:
    issued = Sequences("thisrun")
    made = Intake("mast-07", issued, "mqtt.{quantity}", FixedClock(synced=synced))
    made.own_topic = "t/{sensor}/{quantity}"
    return made, issued


def test_what_a_device_publishes_to_the_gateway_itself() -> None:
    forwards = [ForwardConfig("devices/+"), ForwardConfig("shed/+", "number", "temperature")]
    issued = Sequences("thisrun")
    station = Intake("mast-07", issued, "mqtt.{quantity}", FixedClock(), forwards)
    other, own = replace(READING, gateway="logger-3"), replace(READING, run="anearlierrun")
    assert only(
        station.accept("devices/logger-3", encode_reading(other), direct=True)
    ).value == encode_reading(other)
    assert made(station.accept("shed/1", b"21.5", direct=True)).seq == 1
    # It would be its own of an earlier run, or its echo, from the local broker.
    issued.draw(READING.channel)
    for forged in (own, replace(READING, run="thisrun", seq=1)):
        letter = only(station.accept("devices/1", encode_reading(forged), direct=True))
        assert parse_dead_letter(letter.value).reason == "FORGED"
    letter = only(station.accept("devices/logger-4", encode_reading(other), direct=True))
    assert parse_dead_letter(letter.value).reason == "FOREIGN"
    letter = only(station.accept("other/1", b"1", direct=True))
    assert (parse_dead_letter(letter.value).reason, parse_dead_letter(letter.value).payload) == (
        "NO_FORWARD",
        b"1",
    )
    assert station.accept("other/1", b"1") == ()


@pytest.mark.parametrize("run", ["thisrun", "anearlierrun"])
@pytest.mark.parametrize("topic", ["t", "t/else/wind_speed", "devices/t/cup-50m-a/wind_speed", f"{OWN}/"])
def test_a_reading_of_the_gateways_own_comes_by_its_own_topic_alone(run: str, topic: str) -> None:
    station, issued = intake()
    issued.draw(READING.channel)
    assert refused(station.accept(topic, encode_reading(replace(READING, run=run, seq=1)))) == "FORGED"


def only(records: Sequence[Record] | None) -> Record:
    assert records is not None
    (record,) = records
    return record


def made(records: Sequence[Record] | None) -> Reading:
    return parse_reading(only(records).value, unrepaired=True)


def letter(records: Sequence[Record] | None) -> DeadLetter:
    record = only(records)
    assert record.topic == "gateway.dead-letter"
    return parse_dead_letter(record.value)


def refused(records: Sequence[Record] | None) -> str:
    return letter(records).reason


def test_another_devices_reading_is_forwarded_byte_for_byte() -> None:
    payload = b" " + encode_reading(replace(READING, gateway="device-1"))
    accepted = intake()[0].accept("device-1/one", payload)
    assert accepted == (
        Record(
            "mqtt.wind_speed",
            b"device-1/cup-50m-a.wind_speed",
            payload,
            (("mqtt-topic", b"device-1/one"), ("received-at", b"2026-11-21T07:35:01.500Z")),
        ),
    )


def test_an_earlier_runs_reading_is_forwarded_as_late_and_another_gateways_is_not() -> None:
    """The broker's session has kept it over the restart: it is no news."""
    for gateway, late in (("mast-07", True), ("mast-08", False)):
        payload = encode_reading(replace(READING, run="earlier", gateway=gateway))
        made(records := intake()[0].accept(OWN if late else "mast-08/x", payload))
        assert (REPLAYED in only(records).headers) == late


def test_an_echo_of_an_issued_reading_needs_nothing() -> None:
    station, issued = intake()
    issued.draw(READING.channel)
    assert station.accept(OWN, encode_reading(replace(READING, run="thisrun", seq=1))) is None


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (encode_reading(replace(READING, run="thisrun", seq=1)), "FORGED"),
        (b"not json", "NOT_JSON"),
        (b"x" * ((1 << 20) + 1), "TOO_LARGE"),
        (encode_reading(replace(READING, time_us=RECEIVED_NS // 1000 + 600_000_001)), "TIME_IN_FUTURE"),
        (
            encode_reading(replace(READING, gateway=OWN.split("/")[0], channel="cup.hum", quantity="hum")),
            "UNKNOWN_QUANTITY",
        ),
    ],
    ids=["forged", "not-json", "too-large", "future", "quantity"],
)
def test_what_is_refused_becomes_a_dead_letter(payload: bytes, reason: str) -> None:
    found = letter(intake()[0].accept(OWN, payload))
    assert (found.reason, found.source, found.payload) == (reason, OWN, payload[: 64 << 10])
    assert (found.payload_bytes, found.sha256) == (len(payload), hashlib.sha256(payload).hexdigest())


def test_without_a_clock_nothing_is_in_the_future() -> None:
    payload = encode_reading(replace(READING, time_us=READING.time_us + 86_400_000_000))
    made(intake(synced=False)[0].accept(OWN, payload))


def test_a_stored_record_is_the_same_record() -> None:
    record = Record("mqtt.co2", b"a/b", b"\x00value", (("h", b"\xff"),))
    assert from_bytes(to_bytes(record)) == record


def head(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"\x00\x00",
        head(b'[1,"",[]]'),
        head(b'["","",[]]'),
        head(b'["t","",[["\\ud800",""]]]'),
        b"\x00\x00\x00\x02{}",
        b"\x00\x00\x00\xff[]",
    ],
)
def test_stored_bytes_that_are_no_record_are_refused(stored: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a stored record|JSON|Expecting|values"):
        from_bytes(stored)


NUMBER = ForwardConfig(
    "sensors/+/temperature",
    "number",
    "temperature",
    channel="{1}",
    period_s=10.0,
    drop_if=DropIf(equals=85.0),
)
JSON = ForwardConfig(
    "json/+", "json", "humidity", path="rh", time_path="at", channel="{1}", min=0.0, max=100.0
)
RAW = ForwardConfig("blobs/#", "raw")
BARO = ForwardConfig("baro", "number", "pressure", scale=0.1, offset=1.0, raw_unit="hPa")


def station(*, synced: bool = True) -> Intake:
    forwards = [ForwardConfig("readings/#"), NUMBER, JSON, RAW, BARO]
    clock = FixedClock(synced=synced)
    station = Intake("mast-07", Sequences("thisrun"), "mqtt.{quantity}", clock, forwards)
    station.sensors = ["dht"]
    return station


def test_a_number_becomes_a_reading_of_this_run() -> None:
    intake = station()
    record = only(intake.accept("sensors/shed/temperature", b"21.5"))
    assert record == Record(
        "mqtt.temperature",
        b"mast-07/shed.temperature",
        record.value,
        (("mqtt-topic", b"sensors/shed/temperature"), ("received-at", b"2026-11-21T07:35:01.500Z")),
    )
    assert parse_reading(record.value) == Reading(
        gateway="mast-07", channel="shed.temperature", quantity="temperature", unit="Cel",
        time_us=RECEIVED_NS // 1000, period_ms=10_000, value=21.5, raw=21.5, raw_unit="Cel", quality=2,
        reasons=(), run="thisrun", seq=1, clock="synced", cal=None,
    )  # fmt: skip


def test_readings_of_other_devices_are_reported_and_nothing_else_is() -> None:
    reported: list[Reading] = []
    forwards = [ForwardConfig("readings/#"), NUMBER, STATION, RAW]
    clock = FixedClock(synced=True)
    station = Intake(
        "mast-07", Sequences("thisrun"), "mqtt.{quantity}", clock, forwards, forwarded=reported.append
    )
    for topic, payload in (
        ("readings/mast-08", encode_reading(replace(READING, gateway="mast-08"))),
        ("readings/x", encode_reading(replace(READING, run="earlier"))),
        ("blobs/7", b"raw"),
        ("sensors/shed/temperature", b"85.0"),
        ("sensors/shed/temperature", b"warm"),
        ("sensors/shed/temperature", b"21.5"),
        ("zigbee/barn", b'{"temperature": 33.25, "humidity": 0.4, "at": 1763710500}'),
    ):
        station.accept(topic, payload)
    found = [(each.gateway, each.channel, each.value) for each in reported]
    assert found == [
        ("mast-08", READING.channel, READING.value),
        ("mast-07", "shed.temperature", 21.5),
        ("mast-07", "barn.temperature", 33.25),
        ("mast-07", "barn.humidity", 40.0),
    ]


FLOW = Quantity("flow", "m3", "accumulated", 0.0, 400.0)
METER = ForwardConfig("meter/+", "number", "energy", channel="{1}", scale=0.1, counter_end=1000.0)
READINGS = ForwardConfig("readings/#")
PUMP = ForwardConfig("pump", "number", "flow", max=90.0)


def test_a_running_total_becomes_what_was_added() -> None:
    intake = Intake("mast-07", Sequences("thisrun"), "mqtt.{quantity}", FixedClock(), [METER])
    assert intake.accept("meter/a", b"990") == ()
    assert intake.ignored["FIRST_TOTAL"] == 1
    # Each on its own: another meter's total is no step of this one's. Past the end, doubled, and begun anew.
    assert intake.accept("meter/b", b"500") == ()
    found = [made(intake.accept("meter/a", each)) for each in (b"995", b"15", b"15", b"500", b"3")]
    assert [each.value for each in found] == pytest.approx([0.5, 2.0, 0.0, 48.5, 0.3])
    assert [each.raw for each in found] == [995.0, 15.0, 15.0, 500.0, 3.0]
    assert {(each.unit, each.raw_unit, each.extra) for each in found} == {("kW.h", None, None)}
    assert made(intake.accept("meter/b", b"510")).value == pytest.approx(1.0)
    back = letter(intake.accept("meter/b", b"505"))
    assert (back.reason, back.detail) == ("TOTAL_WENT_BACK", "from 510 to 505")
    # Counted on from there, and from before it showed 0 for a moment.
    values = [made(intake.accept("meter/b", each)).value for each in (b"507", b"0", b"509")]
    assert values == pytest.approx([0.2, 0.0, 0.2])


@pytest.mark.parametrize("code", [b"-999", b"65535"])
def test_what_can_be_no_total_adds_nothing(code: bytes) -> None:
    intake = Intake("mast-07", Sequences("thisrun"), "mqtt.{quantity}", FixedClock(), [METER])
    intake.accept("meter/a", b"500")
    assert letter(intake.accept("meter/a", code)).reason == "TOTAL_OUT_OF_RANGE"
    assert made(intake.accept("meter/a", b"510")).value == pytest.approx(1.0)


def test_what_a_message_from_the_future_would_add_is_added_by_the_next() -> None:
    meter = replace(METER, payload="json", path="t", time_path="at")
    intake = Intake("mast-07", Sequences("thisrun"), "mqtt.{quantity}", FixedClock(), [meter])
    now_s = RECEIVED_NS // 1_000_000_000
    intake.accept("meter/a", b'{"t": 500, "at": %d}' % now_s)
    early = letter(intake.accept("meter/a", b'{"t": 510, "at": %d}' % (now_s + 3600)))
    assert early.reason == "TIME_IN_FUTURE"
    assert made(intake.accept("meter/a", b'{"t": 520, "at": %d}' % now_s)).value == pytest.approx(2.0)


def test_a_quantity_of_the_configs_own_has_its_unit_and_kind_in_each_reading() -> None:
    intake = Intake("mast-07", Sequences("thisrun"), "mqtt.{quantity}", FixedClock(), [PUMP, READINGS])
    intake.quantities = {**QUANTITIES, "flow": FLOW}
    reading = made(intake.accept("pump", b"12"))
    assert (reading.channel, reading.unit, reading.extra) == (
        "pump.flow",
        "m3",
        {"quantity_kind": "accumulated"},
    )
    other = replace(READING, gateway="mast-08", channel="x.flow", quantity="flow", unit="m3")
    assert made(intake.accept("readings/mast-08", encode_reading(other))) == other


def test_only_an_accepted_message_takes_a_number() -> None:
    issued = Sequences("thisrun")
    clock = FixedClock()
    intake = Intake("mast-07", issued, "mqtt.{quantity}", clock, [NUMBER, JSON])
    intake.sensors = ["dht"]
    refused(intake.accept("sensors/shed/temperature", b"warm"))
    refused(intake.accept("json/shed", b'{"rh": 50, "at": 4102444800}'))
    intake.accept("sensors/shed/temperature", b"85")
    intake.accept("sensors/shed/temperature", b"20", retained=True)
    refused(intake.accept("sensors/dht/temperature", b"20"))
    assert issued.snapshot() == {}
    assert made(intake.accept("sensors/shed/temperature", b"20")).seq == 1
    assert issued.snapshot() == {"shed.temperature": 1}


def test_a_converted_number_keeps_its_raw() -> None:
    reading = made(station().accept("baro", b"900"))
    assert (reading.value, reading.raw, reading.raw_unit, reading.unit) == (91.0, 900.0, "hPa", "kPa")


@pytest.mark.parametrize(
    ("humidity", "quality", "reasons"),
    [(50, 1, ()), (100, 1, ()), (100.5, 4, ("OVER_RANGE",)), (-1, 4, ("UNDER_RANGE",))],
)
def test_a_range_is_a_test(humidity: float, quality: int, reasons: tuple[str, ...]) -> None:
    reading = made(station().accept("json/shed", b'{"rh": %r, "at": 1763710500}' % humidity))
    assert (reading.channel, reading.quality, reading.reasons) == ("shed.humidity", quality, reasons)
    assert reading.time_us == 1_763_710_500_000_000


def test_without_a_clock_a_number_is_suspect_and_a_device_with_a_time_is_believed() -> None:
    intake = station(synced=False)
    number = made(intake.accept("sensors/shed/temperature", b"21.5"))
    assert (number.clock, number.quality, number.reasons) == ("unsynced", 3, ("CLOCK_UNSYNCED",))
    timed = made(intake.accept("json/shed", b'{"rh": 50, "at": 4102444800}'))
    assert (timed.clock, timed.quality, timed.time_us) == ("synced", 1, 4_102_444_800_000_000)


@pytest.mark.parametrize(("topic", "quality"), [("sensors/shed/temperature", 2), ("ranged/shed", 1)])
def test_a_number_received_without_a_clock_waits_for_its_time(topic: str, quality: int) -> None:
    ranged = ForwardConfig("ranged/+", "number", "temperature", min=-40.0, max=80.0)
    station = Intake(
        "mast-07",
        Sequences("thisrun"),
        "mqtt.{quantity}",
        FixedClock(synced=False),
        [NUMBER, ranged],
        boot="8f-1",
    )
    record = only(station.accept(topic, b"7.5"))
    assert boot_of(record) == "8f-1"
    reading = parse_reading(record.value)
    assert (reading.clock, reading.boot, reading.mono_ms, reading.quality) == ("unsynced", "8f-1", 61_250, 3)
    later = parse_reading(repaired(record, 1_795_000_000_000).value)
    assert (later.clock, later.quality, later.reasons) == ("repaired", quality, ())
    assert later.time_us == 1_795_000_061_250_000


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        ({}, True),
        ({"gateway": "mast-08"}, False),
        ({"clock": "synced", "boot": None, "mono_ms": None}, False),
        ({"mono_ms": None}, False),
    ],
)
def test_an_earlier_runs_reading_without_a_clock_waits_and_no_others(
    changes: dict[str, Any], waits: bool
) -> None:
    fields: dict[str, Any] = {"run": "earlier", "clock": "unsynced", "boot": "8f-1", "mono_ms": 5}
    record = only(intake()[0].accept(OWN, encode_reading(replace(READING, **{**fields, **changes}))))
    assert boot_of(record) == ("8f-1" if waits else None)


def test_a_reading_that_waits_may_be_of_any_time_if_it_is_ours() -> None:
    reading = replace(READING, run="earlier", clock="unsynced", boot="8f-1", mono_ms=5, time_us=3_000_000)
    made(intake()[0].accept(OWN, encode_reading(reading)))
    assert (
        refused(intake()[0].accept("mast-08", encode_reading(replace(reading, gateway="mast-08"))))
        == "TIME_TOO_OLD"
    )


def test_a_raw_message_goes_untouched_with_its_identity_in_headers() -> None:
    intake = station()
    payload = b"\x00\xff not a reading"
    accepted = intake.accept("blobs/7/up", payload)
    assert accepted == (
        Record(
            "mqtt.raw",
            b"blobs/7/up",
            payload,
            (
                ("mqtt-topic", b"blobs/7/up"),
                ("received-at", b"2026-11-21T07:35:01.500Z"),
                ("gateway", b"mast-07"),
                ("channel", b"blobs.raw"),
                ("run", b"thisrun"),
                ("seq", b"1"),
            ),
        ),
    )
    second = only(intake.accept("blobs/8", b"", retained=True))
    assert second.value == b""
    assert second.headers[-2:] == (("seq", b"2"), ("retained", b"1"))
    assert intake.last_raw_seq == {"blobs.raw": 2}


def test_our_own_bytes_on_a_raw_topic_are_no_echo() -> None:
    intake = station()
    assert intake.may_echo("readings/x")
    assert not intake.may_echo("blobs/x")
    assert not intake.may_echo("elsewhere")


def test_what_is_ignored_is_counted() -> None:
    intake = station()
    assert intake.accept("sensors/shed/temperature", b"20", retained=True) == ()
    assert intake.accept("sensors/shed/temperature", b"85.0") == ()
    assert intake.accept("elsewhere", b"20") == ()
    assert intake.accept("elsewhere", b"20") == ()
    assert intake.ignored == {
        **dict.fromkeys(intake.ignored, 0), "RETAINED": 1, "DROP_IF": 1, "NO_FORWARD": 2
    }  # fmt: skip


def test_retained_messages_with_their_time_are_taken() -> None:
    intake = station()
    payload = b'{"rh": 50, "at": "2025-11-21T07:35:00Z"}'
    assert made(intake.accept("json/shed", payload, retained=True)).time_us == 1_763_710_500_000_000
    reading = encode_reading(replace(READING, gateway="other"))
    assert made(intake.accept("readings/other/x", reading, retained=True)).gateway == "other"


@pytest.mark.parametrize(
    ("topic", "payload", "reason"),
    [
        ("sensors/shed/temperature", b"warm", "NOT_A_NUMBER"),
        ("sensors/shed/temperature", b"9" * ((1 << 20) + 1), "TOO_LARGE"),
        ("sensors//temperature", b"20", "BAD_TOPIC"),
        ("sensors/dht/temperature", b"20", "CHANNEL_TAKEN"),
        ("json/shed", b"20", "NO_SUCH_PATH"),
        ("json/shed", b'{"rh": 50, "at": 1795333502}', "TIME_IN_FUTURE"),
        ("blobs/x", b"x" * ((1 << 20) + 1), "TOO_LARGE"),
    ],
)
def test_what_makes_no_reading_is_a_dead_letter(topic: str, payload: bytes, reason: str) -> None:
    found = letter(station().accept(topic, payload))
    assert (found.reason, found.source, found.payload) == (reason, topic, payload[: 64 << 10])


def test_channels_are_bounded_and_the_known_ones_go_on() -> None:
    intake = station()
    for device in range(256):
        made(intake.accept(f"sensors/{device}/temperature", b"20"))
    assert refused(intake.accept("sensors/one-more/temperature", b"20")) == "TOO_MANY_CHANNELS"
    assert made(intake.accept("sensors/0/temperature", b"20")).seq == 2


STATION = ForwardConfig(
    "zigbee/+", "json", time_path="at", channel="{1}", period_s=60.0,
    readings=(
        ForwardReading("temperature", "temperature", drop_if=DropIf(equals=85.0)),
        ForwardReading("humidity", "humidity", scale=100, raw_unit="1", min=0.0, max=100.0),
        ForwardReading("temperature", "ground.0", channel="{1}-ground", optional=True),
    ),
)  # fmt: skip


def zigbee(*, synced: bool = True, time_path: str | None = None) -> tuple[Intake, Sequences]:
    issued = Sequences("thisrun")
    forwards = [replace(STATION, time_path=time_path)]
    return Intake("mast-07", issued, "mqtt.{quantity}", FixedClock(synced=synced), forwards), issued


def readings_of(records: Sequence[Record] | None) -> list[tuple[str, int, float | None, float | None]]:
    readings = [parse_reading(record.value) for record in records or ()]
    assert {one.period_ms for one in readings} == {60_000}
    return [(one.channel, one.seq, one.raw, one.value) for one in readings]


def test_one_message_makes_a_reading_of_each_quantity() -> None:
    intake, issued = zigbee()
    payload = b'{"temperature": 21.5, "humidity": 0.48, "ground": [8.25], "battery": 97}'
    assert readings_of(intake.accept("zigbee/shed", payload)) == [
        ("shed.temperature", 1, 21.5, 21.5),
        ("shed.humidity", 1, 0.48, 48.0),
        ("shed-ground.temperature", 1, 8.25, 8.25),
    ]
    intake.accept("zigbee/shed", b'{"temperature": 85, "humidity": 1.2}')
    humid = made(intake.accept("zigbee/shed", b'{"temperature": 85, "humidity": 1.2}'))
    assert (humid.seq, humid.quality, humid.reasons) == (3, 4, ("OVER_RANGE",))
    assert issued.snapshot() == {"shed.temperature": 1, "shed.humidity": 3, "shed-ground.temperature": 1}
    assert intake.ignored == {**dict.fromkeys(intake.ignored, 0), "DROP_IF": 2, "ABSENT": 2}


def test_what_one_quantity_lacks_costs_the_others_nothing() -> None:
    intake, issued = zigbee()
    payload = b'{"temperature": 21.5, "ground": [null]}'
    decided = intake.accept("zigbee/shed", payload)
    assert decided is not None
    reading, refusal = decided
    assert (made([reading]).channel, made([reading]).seq) == ("shed.temperature", 1)
    found = letter([refusal])
    assert (found.reason, found.detail) == ("NO_SUCH_PATH", "there is nothing at humidity")
    assert (found.payload, found.source, found.seq) == (payload, "zigbee/shed", 1)
    assert issued.snapshot() == {"shed.temperature": 1}
    assert intake.ignored["ABSENT"] == 1


def test_all_that_is_wrong_with_a_message_is_one_dead_letter() -> None:
    intake, issued = zigbee()
    assert letter(intake.accept("zigbee/shed", b'{"temperature": "warm", "ground": [true]}')).detail == (
        "'warm' at temperature is no decimal number; NO_SUCH_PATH: there is nothing at humidity;"
        " a JSON boolean stands at ground.0"
    )
    assert refused(intake.accept("zigbee/shed", b"not json")) == "NOT_JSON"
    assert issued.snapshot() == {}


def test_several_readings_share_the_time_and_its_faults() -> None:
    intake, _ = zigbee(time_path="at")
    payload = b'{"temperature": 21.5, "humidity": 0.48, "ground": [8], "at": %s}'
    decided = intake.accept("zigbee/shed", payload % b"1763710500", retained=True)
    assert {made([part]).time_us for part in decided or ()} == {1_763_710_500_000_000}
    found = letter(intake.accept("zigbee/shed", payload % b'"yesterday"'))
    assert found.reason == "BAD_TIME"
    assert found.detail.count("at: ") == 1


@given(
    topic=st.sampled_from(["sensors/shed/temperature", "json/shed", "blobs/x", "baro", "readings/x", "none"]),
    payload=st.binary(max_size=80) | st.text('0123456789.-eE{}[]":rhat ,', max_size=40).map(str.encode),
    retained=st.booleans(),
    synced=st.booleans(),
)
def test_no_bytes_raise_and_what_is_sent_is_valid(
    topic: str, payload: bytes, retained: bool, synced: bool
) -> None:
    for record in station(synced=synced).accept(topic, payload, retained=retained) or ():
        if record.topic == "gateway.dead-letter":
            assert parse_dead_letter(record.value).payload == payload
        elif topic.startswith("blobs"):
            assert record.value == payload
        else:
            assert made([record]).quality in (1, 2, 3, 4)
