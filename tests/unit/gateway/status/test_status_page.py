"""The status over HTTP: page, events, metrics and health of a real server on the loopback."""

from __future__ import annotations

import dataclasses
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from cloud.wire.reading_records import Reading
from gateway.quality.qartod import REASONS
from gateway.sampling.last_readings import MOST_FORWARDED, RECENT, LastReadings
from gateway.status.bounded_server import is_own_name
from gateway.status.metrics import render
from gateway.status.server import StatusSource
from gateway.status.status import Interlock, ParkedStatus, RelayStatus
from gateway.status.tokens import Gate
from gateway.system.host import vitals
from tests.support.status import CONFIG, MACHINE, MQTT_PROXY, channel, status
from tests.support.status_page import Client, served

RELAYS = {
    "heater": RelayStatus(
        state="on",
        why="box.temperature < 3",
        problem=None,
        switches=7,
        interlocks=(
            Interlock("box.temperature < 3", "relay.heater on", "held"),
            Interlock("box.temperature > 60", "relay.heater off", "clear"),
            Interlock("box.temperature > 60", "relay.heater off", "clear"),
            Interlock("sun.irradiance > 9", "relay.heater off", "stale"),
        ),
    ),
    "fan": RelayStatus(state="unknown", why="", problem="in use", switches=0, interlocks=()),
}
SEEN: Final = status(
    broker_dropped=None,
    config=replace(CONFIG, problems=("gateway.toml:7: x",)),
    uplink="draining",
    parked={"mqtt.co2": ParkedStatus(90, "TOPIC_AUTHORIZATION_FAILED")},
    mqtt_proxy=replace(MQTT_PROXY, clients=2, acknowledged=41, refused={"QOS_2": 3}),
    relays=RELAYS,
    machine=replace(MACHINE, cpu_celsius=None),
    channels={
        "cup.wind_speed": channel(time="2026-05-28T20:27:00.500Z"),
        "dht.temperature": channel(value=None, unit="Cel", quality=9, reasons=("CHECKSUM",)),
    },
)


class Daemon:
    """Whatever status a test gives it."""

    def __init__(self) -> None:
        self.status = SEEN


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    source = StatusSource(lambda: daemon.status, lambda: {"cup.wind_speed": [[1, 7.0], [2, None]]})
    with served(source, Gate(None), free_for_locals=True) as client:
        yield client


def get(client: Client, path: str) -> tuple[int, str, str]:
    code, headers, text = client.ask("GET", path)
    return code, headers["Content-Type"], text


def test_what_no_thread_could_serve_gives_its_place_back(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(40):
            with pytest.raises((ConnectionError, http.client.BadStatusLine)):
                get(client, "/healthz")
    assert get(client, "/healthz")[0] == 200


def test_the_page_holds_all_that_it_needs(client: Client) -> None:
    code, kind, page = get(client, "/")
    assert (code, kind) == (200, "text/html; charset=utf-8")
    assert "/*WORDS*/" not in page
    assert json.dumps(REASONS["CHECKSUM"].text)[1:-1] in page
    for address in ("http://", "https://", "src=", "@import", "url("):
        assert address not in page.replace("http://www.w3.org/2000/svg", "")


def test_metrics_in_prometheus_text_format(client: Client) -> None:
    code, kind, text = get(client, "/metrics")
    assert (code, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    lines = text.splitlines()
    for line in (
        'fieldgate_build_info{gateway="mast-07",version="0.1.0"} 1.0',
        "# TYPE fieldgate_sampled_total counter",
        "fieldgate_sampled_total 1234.0",
        "fieldgate_kafka_confirmed_age_seconds 1.5",
        'fieldgate_uplink{state="draining"} 1.0',
        'fieldgate_uplink{state="healthy"} 0.0',
        "fieldgate_clock_synced 1.0",
        "fieldgate_config_problems 1.0",
        'fieldgate_topic_parked_seconds{topic="mqtt.co2"} 90.0',
        "fieldgate_mqtt_proxy_clients 2.0",
        "fieldgate_mqtt_proxy_acknowledged_total 41.0",
        'fieldgate_mqtt_proxy_refused_total{reason="QOS_2"} 3.0',
        'fieldgate_relay_on{relay="heater"} 1.0',
        'fieldgate_relay_switches_total{relay="heater"} 7.0',
        'fieldgate_interlock_held{then="relay.heater on",when="box.temperature < 3"} 1.0',
        'fieldgate_interlock_held{then="relay.heater off",when="box.temperature > 60"} 0.0',
        'fieldgate_interlock_unsure{then="relay.heater off",when="sun.irradiance > 9"} 1.0',
        'fieldgate_reading_value{channel="cup.wind_speed",unit="m/s"} 7.235',
        'fieldgate_reading_quality{channel="dht.temperature"} 9.0',
        'fieldgate_reading_timestamp_seconds{channel="cup.wind_speed"} 1.7800000205e+09',
    ):
        assert line in lines
    # What is unknown has no sample.
    assert "broker_dropped" not in text
    assert "cpu_temperature" not in text
    assert 'fieldgate_relay_on{relay="fan"}' not in text
    samples = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(samples) == len(set(samples))
    assert 'fieldgate_reading_value{channel="dht.temperature"' not in text
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    # Only what the status has: no metrics of Python's own, no time a counter began.
    assert all(name.startswith("fieldgate_") or name == "process_resident_memory_bytes" for name in families)
    assert "_created" not in text


def test_labels_are_escaped() -> None:
    assert r'gateway="a\"b\\c\nd"' in render(status(gateway='a"b\\c\nd')).decode()


def test_health_is_about_what_a_new_process_might_mend(client: Client, daemon: Daemon) -> None:
    assert get(client, "/healthz")[::2] == (200, "ok\n")
    daemon.status = status(main_loop_ago_s=16.0)
    assert get(client, "/healthz")[::2] == (503, "main loop stalled for 16 s\n")


def test_events_have_the_past_once_and_then_what_changes(client: Client, daemon: Daemon) -> None:
    client.request("GET", "/api/events")
    stream = client.getresponse()
    assert stream.headers["Content-Type"] == "text/event-stream"

    def event() -> tuple[str, Any]:
        name, data, _ = (stream.readline().decode().rstrip("\n") for _ in range(3))
        return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))

    assert event() == ("recent", {"cup.wind_speed": [[1, 7.0], [2, None]]})
    assert event() == ("status", json.loads(msgspec.json.encode(SEEN)))
    daemon.status = status(sampled=132)
    name, sent = event()
    while sent["sampled"] != 132:
        name, sent = event()
    assert name == "status"


def test_pages_that_follow_are_bounded(client: Client) -> None:
    streams = [Client(client.port) for _ in range(8)]
    try:
        for each in streams:
            each.request("GET", "/api/events")
        # Kept: an answer that is forgotten closes its connection.
        answers = [each.getresponse() for each in streams]
        assert [answer.status for answer in answers] == [200] * 8
        assert get(client, "/api/events")[0] == 503
        assert get(client, "/api/status")[0] == 200
    finally:
        for each in streams:
            each.close()


def test_vitals_are_the_kernels(tmp_path: Path) -> None:
    for name, text in {
        "sys/class/thermal/thermal_zone0/temp": "51540\n",
        "proc/loadavg": "0.42 0.30 0.25 1/90 1234\n",
        "proc/uptime": "3600.5 7000.1\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = vitals(tmp_path / "outbox.db", tmp_path)
    assert (found.cpu_celsius, found.load, found.uptime_s) == (51.54, 0.42, 3600.5)
    assert found.disk_free_bytes is not None
    (tmp_path / "proc/loadavg").write_text("")
    nothing = vitals(tmp_path / "missing/outbox.db", tmp_path)
    assert (nothing.load, nothing.disk_free_bytes) == (None, None)


READING = Reading(
    gateway="mast-07", channel="cup.wind_speed", quantity="wind_speed", unit="m/s",
    time_us=1_000_000, period_ms=1000, value=7.0, raw=9.0, raw_unit="Hz",
    quality=1, reasons=(), run="r", seq=1, clock="synced", cal=None,
)  # fmt: skip


def test_the_last_readings_of_each_channel_are_remembered() -> None:
    last = LastReadings()
    for seq in range(1, RECENT + 11):
        value, quality = (None, 9) if seq % 2 else (float(seq), 1)
        read: dict[str, Any] = {"time_us": seq * 1_000_000, "value": value, "quality": quality, "seq": seq}
        last.note(dataclasses.replace(READING, **read))
    points = last.recent()["cup.wind_speed"]
    assert (len(points), points[0], points[-1]) == (RECENT, [11_000, None], [130_000, 130.0])
    last.keep([])
    assert last.recent() == {}


def test_with_the_boots_time_given_a_reading_is_shown_as_it_leaves() -> None:
    last = LastReadings()
    unsynced = dataclasses.replace(
        READING, quality=3, reasons=("CLOCK_UNSYNCED",), clock="unsynced", boot="b", mono_ms=61_250
    )
    last.note(unsynced)
    shown = last.own()["cup.wind_speed"]
    assert (shown.time, shown.quality, shown.reasons) == (
        "1970-01-01T00:00:01.000Z", 3, ("CLOCK_UNSYNCED",),
    )  # fmt: skip
    shown = last.own(1_795_246_000_007)["cup.wind_speed"]
    assert (shown.time, shown.quality, shown.reasons) == ("2026-11-21T07:27:41.257Z", 1, ())
    # Of a reading that says why it is suspect only the clock's reason goes; one in time stays.
    last.note(dataclasses.replace(unsynced, reasons=("STUCK", "CLOCK_UNSYNCED")))
    assert last.own(1_795_246_000_007)["cup.wind_speed"].quality == 3
    last.note(READING)
    assert last.own(1_795_246_000_007) == last.own()


def test_the_forwarded_channels_read_last_are_kept_and_no_more() -> None:
    last = LastReadings("mast-07")
    for seq, gateway in ((1, "mast-07"), (2, "mast-08")):
        for device in range(MOST_FORWARDED):
            last.note_forwarded(
                dataclasses.replace(READING, gateway=gateway, channel=f"shed-{device}.temperature", seq=seq)
            )
        assert len(last.forwarded()) == MOST_FORWARDED
    found = last.forwarded()["mast-08/shed-7.temperature"]
    assert found.seq == 2
    assert (last.own(), last.recent()) == ({}, {})
    last.clear_forwarded()
    assert last.forwarded() == {}


@pytest.mark.parametrize(
    ("host", "code"),
    [("localhost:8321", 200), ("127.0.0.1", 200), ("[::1]:8321", 200), ("192.168.4.1", 200), ("", 200),
     (f"{socket.gethostname()}:8321", 200), (f"{socket.gethostname()}.local", 200),
     ("attacker.example:8321", 421), ("127.0.0.1.attacker.example", 421), ("[x", 421)],
)  # fmt: skip
def test_a_page_of_another_name_reads_nothing(client: Client, host: str, code: int) -> None:
    """An attacker's name that points to the loopback, with the documented tunnel open, is another origin."""
    answer = client.ask("GET", "/api/status", Host=host)
    assert (answer.status, "localhost" in answer.text) == (code, code == 421)


def test_the_name_it_listens_as_is_its_own() -> None:
    assert is_own_name("mast.example.org:8321", "Mast.example.org")
    assert not is_own_name("mast.example.org:8321", "0.0.0.0")  # noqa: S104
