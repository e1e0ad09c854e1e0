"""The real Mosquitto, with Debian's main file and the configuration that was provisioned."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from cloud.local.process import Child, free_port, last_lines, listening
from gateway.cli import main
from gateway.commands.demo.mosquitto import _program
from gateway.commands.provision import certificates
from tests.support.servers import eventually
from tests.unit.gateway.commands.test_provision_mosquitto import TRIXIE_UNIT


@dataclass
class Broker:
    """The broker as it was set up."""

    port: int
    lan: int
    password: str
    pid: int


@contextmanager
def provisioned(root: Path, *more: str) -> Iterator[Broker]:
    port, lan, passwords = free_port(), free_port(), root / "passwords"
    (root / "usr/lib/systemd/system").mkdir(parents=True)
    (root / "usr/lib/systemd/system/mosquitto.service").write_text(TRIXIE_UNIT)
    options = ["--root", str(root), "--port", str(port), "--lan", str(lan), *more]
    options += ["--passwords", str(passwords)]
    assert (
        main(["provision", "mosquitto", *options, "--device", "soil=sensors/soil/#", "--device", "rain"]) == 0
    )
    password = dict(line.split() for line in passwords.read_text().splitlines())["soil"]
    # What is below / on a machine is below the root here.
    conf = root / "etc/mosquitto/conf.d/fieldgate.conf"
    conf.write_text(conf.read_text().replace("file /etc/", f"file {root}/etc/"))
    (root / "lib").mkdir()
    # Debian's own file, but for the places; started by root it would give up what it needs to read these.
    debians = root / "mosquitto.conf"
    debians.write_text(
        f"persistence true\npersistence_location {root}/lib/\nlog_dest stderr\nlog_type all\n"
        + ("user root\n" if os.geteuid() == 0 else "")
        + f"include_dir {conf.parent}\n"
    )
    child = Child((_program(), "-c", str(debians)), root / "log")
    try:
        eventually(lambda: listening(port) and listening(lan), 20)
        yield Broker(port, lan, password, child.pid)
    except AssertionError:
        pytest.fail(last_lines(root / "log"))
    finally:
        child.stop(5)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    root = tmp_path_factory.mktemp("machine")
    with provisioned(root) as found:
        yield found
    # Configured to keep nothing, though Debian's own file has it otherwise.
    assert not (root / "lib/mosquitto.db").exists()


class Visitor:
    """One MQTT 5 client: how it was received, and what it received."""

    def __init__(
        self, port: int, user: str | None = None, password: str | None = None, authority: Path | None = None
    ) -> None:
        self.answer = ""
        self.published: list[str] = []
        self.received: list[str] = []
        self._answered = threading.Event()
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        if user is not None:
            self._client.username_pw_set(user, password)
        if authority is not None:
            self._client.tls_set(str(authority))
        self._client.on_connect = self._connected
        self._client.on_publish = lambda _c, _d, _id, reason, _p: self.published.append(str(reason))
        self._client.on_message = lambda _c, _d, message: self.received.append(message.topic)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        assert self._answered.wait(20)

    def _connected(
        self, _client: object, _data: object, _flags: object, reason: object, _more: object
    ) -> None:
        self.answer = str(reason)
        self._answered.set()

    def publish(self, topic: str) -> str:
        """The broker's word on a message."""
        before = len(self.published)
        self._client.publish(topic, b"1", qos=1)
        eventually(lambda: len(self.published), 20, until=lambda n: n > before)
        return self.published[-1]

    def subscribe(self, topic: str) -> None:
        subscribed = threading.Event()
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.subscribe(topic, qos=1)
        assert subscribed.wait(20)

    def leave(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def visitors() -> Iterator[list[Visitor]]:
    there: list[Visitor] = []
    yield there
    for each in there:
        each.leave()


def test_programs_of_this_machine_need_no_password(broker: Broker, visitors: list[Visitor]) -> None:
    visitors.append(Visitor(broker.port))
    assert visitors[0].answer == "Success"
    visitors[0].subscribe("fieldgate/#")
    assert visitors[0].publish("fieldgate/mast-07/cup/wind_speed") == "Success"
    eventually(lambda: visitors[0].received, 20)


@pytest.mark.parametrize(("user", "word"), [(None, None), ("soil", "wrong"), ("nobody", "x")])
def test_the_lan_needs_a_password(
    user: str | None, word: str | None, broker: Broker, visitors: list[Visitor]
) -> None:
    visitors.append(Visitor(broker.lan, user, word))
    assert visitors[0].answer == "Not authorized"


def test_a_device_publishes_to_its_own_topics_and_reads_its_downlink_only(
    broker: Broker, visitors: list[Visitor]
) -> None:
    here, soil = Visitor(broker.port), Visitor(broker.lan, "soil", broker.password)
    visitors += [here, soil]
    assert soil.answer == "Success"
    here.subscribe("#")
    assert soil.publish("sensors/rain/tips") == "Not authorized"
    assert soil.publish("fieldgate/mast-07/cup/wind_speed") == "Not authorized"
    assert soil.publish("sensors/soil/a/moisture") == "Success"
    eventually(lambda: here.received, 20, until=lambda received: received == ["sensors/soil/a/moisture"])
    # Whatever it subscribes to, it receives its own downlink alone, which it can't write.
    soil.subscribe("#")
    for topic in ("sensors/soil/a/moisture", "fieldgate/x", "downlink/rain/set", "downlink/soil/set"):
        here.publish(topic)
    eventually(lambda: len(here.received), 20, until=lambda n: n == 5)
    assert soil.publish("downlink/soil/set") == "Not authorized"
    assert soil.received == ["downlink/soil/set"]


def test_a_megabyte_passes_and_nine_do_not(broker: Broker, visitors: list[Visitor]) -> None:
    visitors.append(Visitor(broker.port))
    client = visitors[0]._client
    gone = threading.Event()
    client.on_disconnect = lambda *_: gone.set()
    client.publish("big", bytes(2 << 20), qos=1)
    eventually(lambda: visitors[0].published, 20)
    assert not gone.is_set()
    client.publish("big", bytes(9 << 20), qos=1)
    assert gone.wait(20)


def test_a_burst_waits_for_a_slow_subscriber(broker: Broker, visitors: list[Visitor]) -> None:
    """Mosquitto's own default keeps 1,000 and drops the newest."""
    slow, quick = Visitor(broker.port), Visitor(broker.port)
    visitors += [slow, quick]
    slow.subscribe("burst/#")
    slow._client.loop_stop()
    for _ in range(3000):
        quick._client.publish("burst/x", b"1", qos=1)
    eventually(lambda: len(quick.published), 30, until=lambda n: n == 3000)
    assert set(quick.published) == {"Success"}
    slow._client.loop_start()
    eventually(lambda: len(slow.received), 30, until=lambda n: n == 3000)


def test_the_lan_encrypted_with_a_certificate_that_was_made(
    tmp_path: Path, visitors: list[Visitor], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = tmp_path / "etc/mosquitto/fieldgate-ca.pem"
    with provisioned(tmp_path, "--tls", "--name", "127.0.0.1") as broker:
        visitors.append(Visitor(broker.lan, "soil", broker.password, authority))
        assert visitors[0].answer == "Success"
        assert visitors[0].publish("sensors/rain/1") == "Not authorized"
        assert visitors[0].publish("sensors/soil/1") == "No matching subscribers"
        # By another authority's certificates, and under a name that isn't in it, nobody is deceived.
        with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
            connect(broker.lan, None, "127.0.0.1")
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            connect(broker.lan, authority, "localhost")
        # Renewed while it runs: a new connection sees it, one that stands goes on.
        before = ssl.get_server_certificate(("127.0.0.1", broker.lan))
        monkeypatch.setattr(certificates, "_RENEWED_DAYS", 821)
        assert main(["provision", "mosquitto", "--root", str(tmp_path), "--renew"]) == 0
        os.kill(broker.pid, signal.SIGHUP)
        eventually(
            lambda: ssl.get_server_certificate(("127.0.0.1", broker.lan)), 20, until=lambda now: now != before
        )
        connect(broker.lan, authority, "127.0.0.1")
        assert visitors[0].publish("sensors/soil/1") == "No matching subscribers"
        visitors.pop().leave()


def connect(port: int, authority: Path | None, name: str) -> None:
    context = ssl.create_default_context(cafile=authority)
    with (
        socket.create_connection(("127.0.0.1", port)) as connection,
        context.wrap_socket(connection, server_hostname=name),
    ):
        pass
