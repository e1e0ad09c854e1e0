"""What is found wrong in a status: area, severity, words and remedy, one thing at a time."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from cloud.kafka.producer import Refusal
from gateway.commands.commissioning.checks import Result
from gateway.commands.commissioning.command import gateway_checks
from gateway.config import Config, load
from gateway.ports import REFUSALS
from gateway.status.findings import find, stalled
from gateway.status.metrics import render
from gateway.status.status import (
    DownlinksStatus,
    DownlinkStatus,
    Finding,
    Interlock,
    ParkedStatus,
    RelayStatus,
    Status,
)
from tests.support.config import baro, config_text, write_config
from tests.support.status import COMMANDS, CONFIG, HEALTHY, HTTP, MACHINE, status

FORBIDDEN = ParkedStatus(7200, "TOPIC_AUTHORIZATION_FAILED: no")
KEPT = "; readings are kept in the outbox meanwhile"
ROOM = "a larger outbox.max_bytes, or a larger disk"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Live, and with a listener for posted readings that isn't open."""
    return load(write_config(tmp_path, config_text(baro(), board={"kind": "simulated"})))


def wrong(config: Config, found: Status) -> list[tuple[str, str, str]]:
    return [(each.area, each.severity, each.what) for each in find(found, config) if each.severity != "ok"]


def test_all_is_well(config: Config) -> None:
    assert list(find(HEALTHY, config)) == [
        Finding("daemon", "ok", "runs, version 0.1.0, for 60 s"),
        Finding("clock", "ok", 'taken as right: clock.trust = "always"'),
        Finding("mqtt", "ok", "the local broker is connected"),
        Finding("kafka", "ok", "last confirmation 2 s ago"),
        Finding("outbox", "ok", "12 records wait, 25% full, room for 41.0 days without Kafka"),
    ]


def test_only_what_the_kernel_reports_is_called_synchronised(config: Config) -> None:
    by_kernel = dataclasses.replace(config, clock=dataclasses.replace(config.clock, trust="kernel"))
    assert Finding("clock", "ok", "synchronised") in find(HEALTHY, by_kernel)
    assert Finding("clock", "ok", "synchronised") not in find(HEALTHY, config)


RULES = (
    Interlock("dht.temperature < 3", "relay.heater on", "stale"),
    Interlock("cup.wind_speed > 9 for 3 s", "relay.heater off", "clear"),
)
RELAY = RelayStatus(state="off", why="normal", problem=None, switches=0, interlocks=RULES[1:])
TOPIC = DownlinkStatus(received=5, published=3, refused={"NO_KEY": 2}, lag=0)


@pytest.mark.parametrize(
    ("change", "area", "severity", "what", "remedy"),
    [
        ({"main_loop_ago_s": 16.0}, "daemon", "error", "main loop stalled for 16 s", "restart fieldgate"),
        ({"stuck": ("forwarder",)}, "daemon", "error", "forwarder stalled", "restart fieldgate"),
        ({"config": replace(CONFIG, error="x.toml:3: no")}, "config", "error", ":\nx.toml:3: no", "reload"),
        ({"config": replace(CONFIG, problems=("x.toml:7: y",))}, "config", "error", "x.toml:7: y", "reload"),
        ({"sensors_hung": ("dht", "gps")}, "sensor", "error", "hangs: dht, gps", "its wiring"),
        (
            {"machine": replace(MACHINE, disk_free_bytes=10_000_000)}, "disk", "error", "10 MB free, outbox.",
            "free the disk",
        ),
        (
            {"machine": replace(MACHINE, cpu_celsius=80.0)}, "heat", "warning", "the processor is at 80 °C",
            "shade",
        ),
        ({"supply_troubles": ("throttled",)}, "heat", "warning", "at 48 °C and slowed down", "shade"),
        ({"supply_troubles": ("under_voltage",)}, "power", "error", "the supply is below 4.63 V", "stronger"),
        ({"clock": "unsynced", "held": 5123}, "clock", "warning", "5,123 readings wait", "fieldgate phone"),
        ({"clock": "unsynced", "clock_given": True}, "clock", "warning", "as a phone or GPS gave it", "GPS"),
        ({"mqtt_connected": False}, "mqtt", "error", "no connection to the local broker", "mosquitto"),
        ({"mqtt_taken_over": True}, "mqtt", "error", "another gateway with this id", "another gateway.id"),
        ({"broker_dropped": 7}, "mqtt", "warning", "dropped 7 messages", "max_queued_messages"),
        (
            {"dead_letters": 3000}, "mqtt", "warning",
            "3,000 messages since the daemon's start weren't forwarded, and are in gateway.dead-letter",
            "event=message.refused",
        ),
        ({"kafka_confirmed_ago_s": None}, "kafka", "warning", "confirmed nothing so far", KEPT),
        ({"kafka_confirmed_ago_s": 90.1}, "kafka", "warning", "last confirmation 90 s ago", KEPT),
        (
            {"parked": {"mqtt.co2": FORBIDDEN}, "kafka_problem": FORBIDDEN.problem}, "kafka", "error",
            "rejects records for mqtt.co2, for 2 h: TOPIC_AUTHORIZATION_FAILED: no",
            f"fieldgate provision gateway gives it: docs/secure-cluster.md{KEPT}",
        ),
        (
            {"kafka_late_s": 0.82}, "kafka", "warning",
            "it confirms after 0.82 s: over half of outbox.commit_interval_s, so each reading is written to",
            "outbox.commit_interval_s above 1.6, as far as a power cut may cost",
        ),
        (
            {"outbox_problem": "disk I/O error", "outbox_memory_records": 9, "outbox_memory_bytes": 2048},
            "outbox", "error",
            "can't be written, 9 of its records are in memory only (2,048 bytes): disk I/O error", "replace",
        ),
        ({"outbox_days_left": 6.9}, "outbox", "warning", "room for 6.9 days without Kafka", ROOM),
        ({"outbox_bytes": 900 << 20}, "outbox", "warning", "88% full", ROOM),
        ({"dropped": {"OUTBOX_FULL": 3, "DISK_LOW": 1}}, "outbox", "warning", "4 records were dropped", ROOM),
        (
            {"site_moved_m": 12345}, "site", "warning",
            "the mast was moved: by GPS it is 12,345 m from its place in the config",
            "find out who moved it",
        ),
        (
            {"relays": {"heater": replace(RELAY, interlocks=RULES)}}, "relay", "warning",
            "heater: off (normal)", "safe until there is a good reading of dht.temperature",
        ),
        (
            {"relays": {"fan": replace(RELAY, problem="BCM pin 24 is in use by 'w1'", interlocks=RULES)}},
            "relay", "error", "fan: BCM pin 24 is in use by 'w1'", "the daemon tries again each second",
        ),
        ({"commands": replace(COMMANDS, problem="no Read")}, "command", "error", "be read: no Read", ""),
        (
            {"downlinks": DownlinksStatus(problem="no login", topics={})}, "downlink", "error",
            "can't be read: no login", "",
        ),
        (
            {"downlinks": DownlinksStatus(problem=None, topics={"settings": TOPIC})}, "downlink", "warning",
            "settings: received 5, published 3, waiting 0, refused NO_KEY 2", "",
        ),
        (
            {"http": replace(HTTP, port=8323, requests=4, readings=9, refused=1)}, "http", "warning",
            "port 8323: requests 4, readings 9, refused 1, unauthorized 0", "",
        ),
    ],
)  # fmt: skip
def test_each_thing_that_is_wrong_is_one_finding(
    config: Config, change: dict[str, Any], area: str, severity: str, what: str, remedy: str
) -> None:
    (found,) = [each for each in find(status(**change), config) if each.severity != "ok"]
    assert (found.area, found.severity) == (area, severity)
    assert what in found.what
    assert remedy in (found.remedy or "")
    # An installer's report has it as a fault.
    checks = gateway_checks(status(**change, findings=(found,)), [])
    assert checks[area] == Result("fault", found.what)


def test_what_is_well_is_shown_with_its_figures(config: Config) -> None:
    topic = replace(TOPIC, refused={}, lag=None)
    found = status(
        relays={"lamp": RELAY},
        commands=replace(COMMANDS, allow=("read",), results={"done": 2}),
        downlinks=DownlinksStatus(problem=None, topics={"settings": topic}),
        http=replace(HTTP, port=8323, requests=3, readings=7),
        own_time=True,
        clock="unsynced",
        broker_dropped=None,
    )
    assert wrong(config, found) == []
    shown = {each.area: each.what for each in find(found, config)}
    assert shown["relay"] == "lamp: off (normal)"
    assert shown["command"] == "read; done 2"
    assert shown["downlink"] == "settings: received 5, published 3, waiting ?"
    assert shown["http"] == "port 8323: requests 3, readings 7, refused 0, unauthorized 0"
    assert shown["mqtt"] == "the local broker is connected; whether it drops messages is unknown"
    assert shown["clock"] == "the simulated board has its own"


def test_a_listener_that_is_configured_and_not_open(tmp_path: Path) -> None:
    text = config_text(baro(), http={"listen": "127.0.0.1:8323"})
    assert wrong(load(write_config(tmp_path, text)), HEALTHY) == [
        ("http", "error", "the daemon doesn't listen on 127.0.0.1:8323")
    ]


def test_a_metered_uplink_confirms_once_a_batch(tmp_path: Path) -> None:
    config = load(write_config(tmp_path, config_text(baro(), uplink={"mode": "metered", "batch_s": 600})))
    assert wrong(config, status(kafka_confirmed_ago_s=1290.0)) == []
    assert wrong(config, status(kafka_confirmed_ago_s=1290.1))


def test_each_kind_of_refusal_has_a_remedy_and_a_metric(config: Config) -> None:
    assert set(get_args(Refusal)) < set(REFUSALS)
    for kind in REFUSALS:
        found = status(kafka_problem="it is so", kafka_refusal=kind)
        assert wrong(config, found) == [("kafka", "warning" if kind == "quota" else "error", "it is so")]
        lines = render(found).decode().splitlines()
        refused = [line for line in lines if line.startswith("fieldgate_kafka_refuses{")]
        assert f'fieldgate_kafka_refuses{{reason="{kind}"}} 1.0' in refused
        assert sum(line.endswith(" 1.0") for line in refused) == 1


def test_a_restart_is_for_what_it_may_cure() -> None:
    dark = status(uplink="spilling", mqtt_connected=False, sensors_hung=("dht",), outbox_problem="full")
    assert stalled(dark) == []
    assert stalled(status(main_loop_ago_s=16.0, stuck=("forwarder",))) == [
        "main loop stalled for 16 s",
        "forwarder stalled",
    ]


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        ({}, 0),
        ({"mqtt_taken_over": True}, 1),
        ({"commands": replace(COMMANDS, problem="another gateway with this id reads")}, 1),
    ],
)
def test_another_gateway_with_this_id_is_a_metric(change: dict[str, Any], taken: int) -> None:
    assert f"fieldgate_id_taken {taken}.0" in render(status(**change)).decode()


def test_a_commissioning_without_a_daemon_or_with_one_that_is_behind(config: Config) -> None:
    assert gateway_checks(None, []) == {
        "daemon": Result("fault", "the daemon doesn't run: sudo systemctl enable --now fieldgate")
    }
    well = replace(HEALTHY, findings=tuple(find(HEALTHY, config)))
    assert {check: each.outcome for check, each in gateway_checks(well, []).items()} == dict.fromkeys(
        ("daemon", "clock", "mqtt", "kafka", "outbox", "calibrations"), "passed"
    )
    behind = gateway_checks(well, ["a.wind_speed"])["calibrations"]
    assert (behind.outcome, "other figures for a.wind_speed: " in behind.words) == ("fault", True)
