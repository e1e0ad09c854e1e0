"""Addresses that can't work are refused by ``check``, with what to write; those that can are taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import check
from tests.support.config import config_text, cup, sensor, write_config


def problems(directory: Path, *more: object, **sections: object) -> list[str]:
    text = config_text(*(more or (cup(),)), **sections)  # type: ignore[arg-type] # as they come
    return [str(each) for each in check(write_config(directory, text))[1] if each.severity == "error"]


@pytest.mark.parametrize(
    ("section", "key", "address", "words"),
    [
        ("mqtt", "host", "tcp://10.0.0.5:1883", 'write "10.0.0.5", and port = 1883'),
        ("mqtt", "host", "mqtt://broker", 'write "broker"'),
        ("mqtt", "host", "broker:1883", 'write "broker", and port = 1883'),
        ("mqtt", "host", "[::1]", 'write "::1"'),
        ("mqtt", "host", "[fe80::1]:1883", 'write "fe80::1", and port = 1883'),
        ("mqtt", "host", "a broker", "a name or an IP address"),
        ("mqtt", "host", "10.0.0.500", "a name or an IP address"),
        ("mqtt", "host", "broker/", "a name or an IP address"),
        ("kafka", "bootstrap_servers", "::1:9092", 'write "[::1]:9092"'),
        ("kafka", "bootstrap_servers", "a:9092;b:9092", 'write "a:9092,b:9092"'),
        ("kafka", "bootstrap_servers", "a:9092,*:9092", "a name or an IP address"),
        ("kafka", "bootstrap_servers", "[10.0.0.5]:9092", "a name or an IP address"),
        ("kafka", "bootstrap_servers", "kafka/:9092", "a name or an IP address"),
        ("status", "listen", "*:8321", 'write "0.0.0.0:8321"'),
        ("status", "listen", "http://127.0.0.1:8321", 'write "127.0.0.1:8321"'),
        ("status", "listen", "10.0.0.500:8321", 'must be "host:port"'),
        ("http", "listen", "*:8323", 'write "0.0.0.0:8323"'),
        ("mqtt_proxy", "listen", "tcp://127.0.0.1:1884", 'write "127.0.0.1:1884"'),
    ],
)
def test_what_can_not_work_is_refused_with_what_to_write(
    section: str, key: str, address: str, words: str, tmp_path: Path
) -> None:
    found = problems(tmp_path, **{section: {key: address}})
    assert any(f"{section}.{key}" in problem and words in problem for problem in found), found


@pytest.mark.parametrize(
    ("section", "key", "address"),
    [
        ("mqtt", "host", "::1"),
        ("mqtt", "host", "fe80::1%eth0"),
        ("mqtt", "host", "mast_7-broker.local."),
        ("mqtt", "host", "bröker.example"),
        ("kafka", "bootstrap_servers", "[::1]:9092, kafka-1.example:9092"),
        ("kafka", "bootstrap_servers", "10.0.0.5:9092"),
        ("status", "listen", "[::]:8321"),
        ("status", "listen", "localhost:8321"),
    ],
)
def test_what_can_work_is_taken(section: str, key: str, address: str, tmp_path: Path) -> None:
    status = {"token": "0123456789abcdef0123456789abcdef"}
    assert problems(tmp_path, **{"status": status, section: {**(status if section == "status" else {}),
                                                               key: address}}) == []  # fmt: skip


def test_hosts_of_sensors_too(tmp_path: Path) -> None:
    modbus = sensor(
        "plant",
        "modbus",
        host="tcp://10.0.0.9:502",
        interval_s=5,
        registers=[{"quantity": "irradiance", "address": 5, "type": "s16", "table": "input"}],
    )
    found = problems(tmp_path, modbus)
    assert [each.partition('sensor["plant"].')[2] for each in found] == [
        'host: must be a name or an IP address alone: write "10.0.0.9", and port = 502'
    ]
