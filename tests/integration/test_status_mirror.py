"""The gateway's status in a real Kafka: what it publishes, and the will of a run that was killed."""

from __future__ import annotations

from pathlib import Path

from paho.mqtt import publish, subscribe

from cloud.wire.status_records import StatusRecord, parse_status
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.integration.test_daemon import daemon_config
from tests.support.mast import GatewayProcess, records, run_gateway
from tests.support.servers import eventually, unique_name


def statuses(kafka: str, gateway: str) -> list[bytes]:
    """A gateway's, in the order Kafka has them: the last is the one it keeps."""
    key = gateway.encode()
    return [message.value() or b"" for message in records(kafka, ["gateway.status"]) if message.key() == key]


def retained(mosquitto: LocalMosquitto, gateway: str) -> bytes:
    message = subscribe.simple(  # type: ignore[no-untyped-call]
        f"fieldgate/{gateway}/status", hostname=mosquitto.host, port=mosquitto.port
    )
    return bytes(message.payload)


def goes_online(kafka: str, mast: GatewayProcess) -> StatusRecord:
    """The status of the daemon's own run, once it is what Kafka keeps and what the broker retains."""
    run = eventually(lambda: mast.status_now().get("run"))

    def last() -> StatusRecord | None:
        """The last one in Kafka, where the broker retains the same bytes."""
        found = statuses(kafka, mast.id)
        return parse_status(found[-1]) if found and retained(mast.mosquitto, mast.id) == found[-1] else None

    status = eventually(
        last, until=lambda found: found is not None and (found.run, found.state) == (run, "online")
    )
    assert status is not None
    return status


def test_online_killed_will_passed_on_and_a_clean_stop(
    provisioned: str, mosquitto: LocalMosquitto, tmp_path: Path
) -> None:
    name = unique_name("mast")
    # A slow machine's Kafka isn't silent.
    config = daemon_config(name, speed=5, commit_interval_s=20)
    with run_gateway(tmp_path, config, name, provisioned, mosquitto) as mast:
        status = goes_online(provisioned, mast)
        assert (status.gateway, status.clock, status.uplink) == (name, "synced", "healthy")
        assert (status.revision, status.version is None, status.time_us is None) == (1, False, False)
        (first,) = statuses(provisioned, name)
        mast.kill()
        will = eventually(lambda: retained(mosquitto, name), until=lambda payload: payload != first)
    assert parse_status(will) == StatusRecord(name, "offline", status.run, version=status.version)
    assert statuses(provisioned, name) == [first]

    with run_gateway(tmp_path, config, name, provisioned, mosquitto) as mast:
        # It comes once, byte for byte, and is not the last word.
        eventually(lambda: statuses(provisioned, name).count(will))
        status = goes_online(provisioned, mast)

        # A will that comes late takes neither place for long.
        late = will.replace(parse_status(will).run.encode(), b"longago")
        publish.single(
            f"fieldgate/{name}/status", late, qos=1, retain=True, hostname=mosquitto.host, port=mosquitto.port
        )
        eventually(lambda: statuses(provisioned, name).count(late))
        assert goes_online(provisioned, mast).run == status.run
        assert mast.stop() == 0
        offline = retained(mosquitto, name)
    last = parse_status(offline)
    assert (last.state, last.run, last.is_will) == ("offline", status.run, False)
    assert last.time_us is not None
    found = statuses(provisioned, name)
    assert found[-1] == offline
    assert (found.count(will), found.count(late)) == (1, 1)
