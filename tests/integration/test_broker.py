"""The broker and the Mosquitto of tests and demo: they start, keep data, stop, and never outlive us."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from cloud.command_line import CommandError
from cloud.local.kafka_broker import BrokerError, LocalBroker
from cloud.local.process import Child, free_port, last_lines
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.support.servers import eventually, unique_name

PROJECT = Path(__file__).resolve().parents[2]


def produce(broker: LocalBroker, topic: str, values: list[bytes]) -> list[KafkaError | None]:
    outcomes: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _message: outcomes.append(error))
    assert producer.flush(20) == 0
    return outcomes


def consume(broker: LocalBroker, topic: str, count: int) -> list[tuple[bytes | None, int]]:
    """``count`` records of a topic: value and timestamp type."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": unique_name("group"),
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    taken: list[tuple[bytes | None, int]] = []
    try:

        def poll() -> int:
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None
                taken.append((message.value(), message.timestamp()[0]))
            return len(taken)

        eventually(poll, until=lambda found: found >= count)
    finally:
        consumer.close()
    return taken


def test_records_have_the_time_at_which_it_got_them(
    kafka: LocalBroker, kafka_topic: Callable[..., str]
) -> None:
    topic = kafka_topic("stamped")
    assert produce(kafka, topic, [b"one"]) == [None]
    assert consume(kafka, topic, 1) == [(b"one", TIMESTAMP_LOG_APPEND_TIME)]


def test_topics_are_not_created_by_asking_for_them(kafka: LocalBroker) -> None:
    name = unique_name("never-made")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "allow.auto.create.topics": True})
    error = admin.list_topics(name, timeout=10).topics[name].error
    assert error is not None
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_it_listens_on_loopback_only(kafka: LocalBroker) -> None:
    assert kafka.pid is not None
    listeners = [
        c for c in psutil.Process(kafka.pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN
    ]
    addresses = {(c.laddr.ip.removeprefix("::ffff:"), c.laddr.port) for c in listeners}
    assert addresses == {("127.0.0.1", kafka.port), ("127.0.0.1", kafka.controller_port)}


def test_without_jars_it_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIELDGATE_JARS", str(tmp_path / "nowhere"))
    with pytest.raises(BrokerError, match=r"no jars in .*nowhere/kafka: run `make setup`"):
        LocalBroker(tmp_path / "broker").start()


def test_a_taken_port_fails_with_the_end_of_the_log(tmp_path: Path, kafka: LocalBroker) -> None:
    broker = LocalBroker(tmp_path, controller_port=kafka.controller_port)
    with pytest.raises(BrokerError, match=r"(?s)Kafka ended with 1; the end of .*Address already in use"):
        broker.start()
    assert broker.exit_code == 1


def test_children_die_with_a_killed_parent(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib, signal\n"
        "from gateway.commands.demo.mosquitto import LocalMosquitto\n"
        "broker = LocalMosquitto(pathlib.Path(sys.argv[1]))\n"
        "broker.start()\n"
        "print(broker.pid, flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen(
        (sys.executable, "-c", program, str(tmp_path)), cwd=PROJECT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.name() == "mosquitto"
        parent.kill()
    # Whoever inherits it may leave it a zombie for a while.
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_stop_kills_what_ignores_sigterm(tmp_path: Path) -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    child = Child((sys.executable, "-u", "-c", deaf), tmp_path / "log")
    eventually(lambda: last_lines(tmp_path / "log"), until=lambda log: log == "deaf")
    assert child.exit_code is None
    assert child.stop(0.2) == -signal.SIGKILL
    assert child.exit_code == -signal.SIGKILL


def test_an_unknown_program_ends_with_its_name_in_the_log(tmp_path: Path) -> None:
    child = Child(("no-such-program",), tmp_path / "log")
    assert eventually(lambda: child.exit_code, until=lambda code: code is not None) == 127
    assert "no-such-program: No such file or directory" in last_lines(tmp_path / "log")


def test_last_lines_are_the_last_ones(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(str(number) for number in range(100_000)) + "\n")
    assert last_lines(log, 3) == "99997\n99998\n99999"
    assert last_lines(tmp_path / "absent") == ""


def test_free_ports_are_below_the_ephemeral_range() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 < free_port() < lowest for _ in range(50))


def test_mosquitto_carries_two_megabytes_and_forgets_on_restart(mosquitto: LocalMosquitto) -> None:
    received: list[MQTTMessage] = []
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.on_connect = lambda connected, *_: connected.subscribe("flood", qos=1)
    client.on_message = lambda _client, _data, message: received.append(message)
    subscribed: list[bool] = []
    client.on_subscribe = lambda *_: subscribed.append(True)
    client.connect(mosquitto.host, mosquitto.port)
    client.loop_start()
    try:
        eventually(lambda: subscribed)
        # Until it is acknowledged, a client sends it anew to a broker that comes back.
        client.publish("flood", b"x" * 2_000_000, qos=1, retain=True).wait_for_publish(90)
        eventually(lambda: received)
        assert len(received[0].payload) == 2_000_000
        first_pid = mosquitto.pid
        mosquitto.restart()
        assert mosquitto.pid != first_pid
        eventually(lambda: len(subscribed), until=lambda count: count == 2)
        assert len(received) == 1  # a retained message would have come with the subscription
    finally:
        client.disconnect()
        client.loop_stop()


def test_a_killed_mosquitto_is_gone_and_may_be_started_at_once(mosquitto: LocalMosquitto) -> None:
    for _ in range(20):
        killed = mosquitto.pid
        mosquitto.kill()
        assert mosquitto.exit_code == -signal.SIGKILL
        mosquitto.start()
        assert mosquitto.pid != killed


def test_mosquitto_on_a_taken_port_reports_it(tmp_path: Path, mosquitto: LocalMosquitto) -> None:
    second = LocalMosquitto(tmp_path / "second", port=mosquitto.port)
    with pytest.raises(CommandError, match=f"something else listens on 127.0.0.1:{mosquitto.port} already"):
        second.start()
    assert second.pid is None
