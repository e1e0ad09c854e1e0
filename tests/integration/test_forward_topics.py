"""Forwards with a Kafka topic and steps of their own, through a real daemon: what came is accounted for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cloud.wire.reading_records import (
    DEAD_LETTER_TOPIC,
    Reading,
    encode_reading,
    parse_dead_letter,
    parse_reading,
)
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.integration.test_third_party import headers, send, settled
from tests.support.commands import called
from tests.support.config import config_text, dht
from tests.support.mast import published, records, run_gateway
from tests.support.servers import eventually, unique_name

COUNT = 50

RULES = """
[[forward]]
filter = "plant/+/state"
payload = "raw"
channel = "plant"
topic = "{name}.{1}"
key = "{1}"
steps = [
  { unless = { type = "heartbeat" } },
  { drop = ["debug"] },
  { mask = ["user.password"] },
  { rename = { lvl = "level" } },
  { set = { site = "north", device = "{1}" } },
]
[[forward]]
filter = "shed/+"
payload = "number"
quantity = "co2"
channel = "{1}"
topic = "{name}-readings"
steps = [{ set = { site = "north" } }]
"""


def provision(config: Path, kafka: str, *arguments: str) -> list[str]:
    done = called("provision", "topics", "-c", str(config), "--bootstrap-servers", kafka, *arguments)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith("exists")]


def numbers(kafka: str, topic: str) -> dict[int, dict[str, Any]]:
    """The raw messages of a topic by their seq."""
    return {int(headers(each)["seq"]): json.loads(each.value() or b"") for each in records(kafka, [topic])}


def test_each_message_ends_in_its_topic_and_the_accounts_balance(
    provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    name = unique_name("mast")
    text = config_text(gateway={"id": name}, outbox={"commit_interval_s": 0.5}) + RULES.replace(
        "{name}", name
    )
    config = tmp_path / "provision.toml"
    config.write_text(text)
    unknown = f"unknown  {name}.{{1}}: create what it becomes, messages for it wait in the outbox until then"
    assert provision(config, provisioned, "--dry-run") == [f"missing  {name}-readings", unknown]
    assert provision(config, provisioned) == [f"created  {name}-readings", unknown]
    admin = AdminClient({"bootstrap.servers": provisioned})
    admin.create_topics([NewTopic(f"{name}.pump", 1, 1)])[f"{name}.pump"].result(timeout=20)

    messages = []
    for count in range(COUNT):
        state = b'{"lvl": %d.50, "user": {"name": "bob", "password": "secret"}, "debug": [1]}' % count
        messages += [("plant/pump/state", state), ("plant/valve/state", state)]
        messages += [("plant/pump/state", b'{"type": "heartbeat"}'), ("shed/hall", b"%d" % (400 + count))]
    bad = {
        ("plant/pump/state", b'{"user": "secret"'): "NOT_JSON",
        ("plant/pump/state", b'["secret"]'): "NOT_AN_OBJECT",
        ("plant/a b/state", b'{"user": {"password": "secret"}}'): "BAD_TOPIC",
        ("shed/hall", b"warm"): "NOT_A_NUMBER",
    }
    with run_gateway(tmp_path, text, name, provisioned, mosquitto) as mast:
        eventually(lambda: mast.status_now().get("mqtt_connected"))
        send(mosquitto, messages + list(bad))
        # What is for the valve is stored before Kafka refuses its topic, and nothing waits for the valve.
        status = eventually(
            mast.status,
            until=lambda now: (
                (now["received"], now["dead_letters"]) == (len(messages) + len(bad), len(bad))
                and (now["outbox_records"], now["in_flight"]) == (COUNT, 0)
                and bool(now["parked"])
            ),
        )
        assert status["ignored"]["FILTERED"] == COUNT
        assert list(status["parked"]) == [f"{name}.valve"]
        pump = numbers(provisioned, f"{name}.pump")
        assert len(pump) == COUNT

        admin.create_topics([NewTopic(f"{name}.valve", 1, 1)])[f"{name}.valve"].result(timeout=20)
        settled(mast, 0)
        assert mast.stop() == 0
        record = mast.run_record()
    valve = numbers(provisioned, f"{name}.valve")
    assert sorted([*pump, *valve]) == list(range(1, 2 * COUNT + 1))
    assert record["last_raw_seq"] == {"plant.raw": 2 * COUNT}
    for device, found in (("pump", pump), ("valve", valve)):
        expected = {"user": {"name": "bob", "password": "***"}, "site": "north", "device": device}
        assert [found[seq] for seq in sorted(found)] == [
            {"level": count + 0.5, **expected} for count in range(COUNT)
        ]
    raw = next(iter(records(provisioned, [f"{name}.pump"])))
    assert raw.key() == b"pump"
    assert b'"level":0.50' in (raw.value() or b"")

    dead_letters = [
        parse_dead_letter(each.value() or b"") for each in records(provisioned, [DEAD_LETTER_TOPIC])
    ]
    ours = [letter for letter in dead_letters if letter.gateway == name]
    assert sorted((letter.source, letter.reason) for letter in ours) == sorted(
        (source, reason) for (source, _), reason in bad.items()
    )
    assert not [letter for letter in ours if b"secret" in letter.payload]

    readings = [parse_reading(each.value() or b"") for each in records(provisioned, [f"{name}-readings"])]
    assert [(one.channel, one.seq, one.value, one.extra) for one in readings] == [
        ("hall.co2", count + 1, 400 + count, {"site": "north"}) for count in range(COUNT)
    ]
    # The accounts find these readings by the run's record.
    assert (record["last_seq"], record["reading_topics"]) == ({"hall.co2": COUNT}, [f"{name}-readings"])


def test_a_field_of_the_gateway_is_in_each_reading_of_its_sensors(
    provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    name = unique_name("mast")
    gateway = {"id": name, "set": {"site": "north"}}
    text = config_text(dht(), gateway=gateway, outbox={"commit_interval_s": 0.5})
    with run_gateway(tmp_path, text, name, provisioned, mosquitto) as mast:
        mast.sample(4)
        assert mast.stop() == 0
    ours = published(provisioned, "mqtt.temperature", name, mast.outbox)
    assert ours
    assert {each["site"] for each in ours} == {"north"}


OWN = """
[[quantity]]
name = "{quantity}"
unit = "m3"
kind = "accumulated"
range = [0, 50]
[[forward]]
filter = "meter/+"
payload = "number"
quantity = "{quantity}"
channel = "{1}"
scale = 0.1
counter_end = 10000
[[forward]]
filter = "loggers/#"
"""


def test_a_quantity_of_the_configs_own_has_a_topic_like_any_other(
    provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    name = unique_name("mast")
    quantity = name.replace("-", "_")
    text = config_text(gateway={"id": name}) + OWN.replace("{quantity}", quantity)
    made = called("provision", "topics", "--bootstrap-servers", provisioned, "--quantity", quantity)
    assert f"created  mqtt.{quantity}" in made.stdout.splitlines()
    wrong = called("provision", "topics", "--bootstrap-servers", provisioned, "--quantity", "water level")
    assert "water level is no quantity's name" in wrong.stderr
    device = Reading(
        gateway="logger-9", channel=f"x.{quantity}", quantity=quantity, unit="m3",
        time_us=1_780_000_000_000_000, period_ms=1000, value=1.0, raw=None, raw_unit=None, quality=1,
        reasons=(), run="r", seq=1, clock="synced", cal=None,
    )  # fmt: skip
    with run_gateway(tmp_path, text, name, provisioned, mosquitto) as mast:
        eventually(lambda: mast.status_now().get("mqtt_connected"))
        totals = [("meter/a", b"%d" % total) for total in (9990, 5, 25, 1000)]
        send(mosquitto, [*totals, ("loggers/logger-9", encode_reading(device))])
        status = settled(mast, len(totals) + 1)
        assert (status["ignored"]["FIRST_TOTAL"], status["dead_letters"]) == (1, 0)
        assert mast.stop() == 0
    readings = [parse_reading(each.value() or b"") for each in records(provisioned, [f"mqtt.{quantity}"])]
    ours = sorted((each for each in readings if each.gateway == name), key=lambda each: each.seq)
    assert [each.value for each in ours] == pytest.approx([1.5, 2.0, 97.5])
    assert [(each.raw, each.quality, each.reasons) for each in ours] == [
        (5.0, 1, ()), (25.0, 1, ()), (1000.0, 4, ("OVER_RANGE",)),
    ]  # fmt: skip
    assert {(each.channel, each.unit, each.extra["quantity_kind"]) for each in ours if each.extra} == {
        (f"a.{quantity}", "m3", "accumulated")
    }
    assert [each for each in readings if each.gateway == "logger-9"] == [device]
