"""A broker whose certificate is wrong while a mast runs: said at once, mended without a restart."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka.admin._acl import AclOperation

from cloud.kafka.provision import provision_topics
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.support.config import config_text, cup
from tests.support.mast import GatewayProcess, published
from tests.support.secured_kafka import SecuredBroker, make_wrong_certificates
from tests.support.servers import eventually, fieldgate

WITHIN_S = 30.0
WIDE = {"COLUMNS": "300"}
FAULTS = {
    "expired": "the broker's certificate has expired, or this machine's clock is wrong",
    "elsewhere": (
        "the broker's certificate is not for 127.0.0.1: use the name it has in the bootstrap servers"
    ),
}


@pytest.mark.timeout(1200)
def test_an_expired_and_a_foreign_certificate_are_named_everywhere_and_cost_nothing(
    tmp_path: Path, mosquitto: LocalMosquitto, full: bool
) -> None:
    if not full:
        pytest.skip("three starts of a broker; test_sink_errors.py and test_listener_probe.py have the texts")
    with SecuredBroker(tmp_path / "kafka") as broker:
        provision_topics(broker.bootstrap_servers, partitions=1)
        broker.allow("mast-07", AclOperation.ALL)
        make_wrong_certificates(broker.certificates)
        files = {"ssl.ca.location": "ca.pem", "ssl.certificate.location": "mast-07.pem",
                 "ssl.key.location": "mast-07.key"}  # fmt: skip
        properties = {name: str(broker.certificates / file) for name, file in files.items()}
        mast = GatewayProcess(tmp_path, "", "mast-07", broker.mtls, mosquitto)
        mast.write(
            config_text(
                cup(interval_s=0.2),
                kafka={
                    "bootstrap_servers": broker.mtls,
                    "properties": {"security.protocol": "SSL", **properties},
                },
                mqtt={"port": mosquitto.port},
                status={"listen": f"127.0.0.1:{mast.status_port}"},
                outbox={"commit_interval_s": 0.5},
                commands={"allow": ["self-test"]},
            )
        )
        mast.launch()
        try:
            mast.sample(5)
            mast.delivered()
            mended_after = list(FAULTS)[-1]
            for certificate, text in FAULTS.items():
                broker.wear(certificate)
                # Connections that stand don't see it.
                broker.stop()
                broker.start()
                hurt_s = time.monotonic()
                eventually(lambda: mast.status()["kafka_problem"], WITHIN_S, until=lambda now: now == text)  # noqa: B023
                assert time.monotonic() < hurt_s + WITHIN_S
                status = mast.status()
                assert status["kafka_refusal"] == "certificate"
                assert 'fieldgate_kafka_refuses{reason="certificate"} 1.0' in mast.metrics()
                assert f"event=kafka.listener_refuses reason={text}" in mast.log.read_text()
                shown = fieldgate("status", "-c", mast.path, environment=WIDE).stdout
                assert f"error   kafka     {text}" in shown
                found = fieldgate("doctor", "-c", mast.path, environment=WIDE).stdout
                assert f"error   kafka     {broker.mtls}: {text}" in found
                assert f"error   kafka     {text}" in found
                assert "a certificate that is valid for the name in bootstrap_servers" in found
                eventually(lambda: mast.status()["outbox_records"], WITHIN_S, until=lambda kept: kept > 5)
                if certificate == mended_after:
                    # One fault follows the other within one outage.
                    broker.wear("broker")
                    mast.delivered()
                    assert mast.status()["kafka_refusal"] is None
            mast.sample(5)
            mast.delivered()
            eventually(lambda: mast.status()["commands"]["problem"], 90, until=lambda now: now is None)
            assert mast.stop() == 0
        finally:
            mast.end()
        last = mast.run_record()["last_seq"]["cup.wind_speed"]
        kept = published(broker.bootstrap_servers, "mqtt.wind_speed", "mast-07", mast.outbox)
    assert {record["seq"] for record in kept} == set(range(1, last + 1))
    assert mast.log.read_text().count("event=daemon.start ") == 1
