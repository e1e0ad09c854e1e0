"""A locked Kafka: who may do what by the roles provisioned; a mast whose access is taken and given."""

from __future__ import annotations

import http.client
import io
import json
import os
import shlex
import signal
import tarfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType  # type: ignore[attr-defined] # no __all__
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._config import ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewPartitions, NewTopic

from cloud.errors import CloudError
from cloud.kafka.listener_probe import listener_fault
from cloud.kafka.producer import KafkaSink
from cloud.kafka.provision import TOPICS, provision_topics
from cloud.kafka.readers import KeyReader, Place, TopicReader
from cloud.local.process import free_port
from cloud.operate.identity import IdentityTopic
from cloud.operate.users import Users
from cloud.wire.channel_records import CHANNELS_TOPIC
from cloud.wire.identities import IdentityRecord, gateway_key, proves, proving_run
from gateway.cli import main
from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.config import load
from tests.integration.test_docs import blocks
from tests.integration.test_third_party import foreign_reading
from tests.support.config import config_text, cup
from tests.support.mast import GatewayProcess, published, records
from tests.support.mqtt_device import CONNECTED, connect, device, puback, publish as publish_packet
from tests.support.secured_kafka import SecuredBroker
from tests.support.servers import eventually, fieldgate

GATEWAY: Final = "mast-07"
MASTER: Final = "0123456789abcdef0123456789abcdef"
OWN: Final = ("plant.inverter", "elsewhere", "settings")
ALL: Final = (*TOPICS, *OWN)
DEVICES: Final = """
[[forward]]
filter = "plant/+"
payload = "raw"
topic = "plant.{1}"
[[downlink]]
topic = "settings"
mqtt_topic = "devices/{key}"
"""
WRONG: Final = "".join(("wrong", "-sesame-of-a-device"))
LISTENERS: Final = {
    "http": 'tokens = "http-tokens"',
    "mqtt_proxy": 'passwords = "mqtt-users"\naccess = "mqtt-access"',
}
READINGS: Final = {name for name in TOPICS if name.startswith("mqtt.")}
LAKE: Final = {name for name in TOPICS if name.startswith("lake.")}
GATEWAYS: Final = {
    f"gateway.{name}" for name in
    ("status", "runs", "channels", "sites", "events", "command-results", "dead-letter")
}  # fmt: skip
DESCRIBED: Final = {f"gateway.{name}" for name in ("status", "runs", "channels", "sites", "events", "alerts")}
WRITES: Final = {
    GATEWAY: READINGS | GATEWAYS | {"plant.inverter"},
    "fieldgate-jobs": {"gateway.alerts", "gateway.commands"} | LAKE,
    "anna": set(),
    "olga": {"gateway.commands", "gateway.identities"},
}
READS: Final = {
    GATEWAY: {"gateway.commands", "settings"},
    "fieldgate-jobs": set(TOPICS) | {"plant.inverter"},
    "anna": READINGS | DESCRIBED | LAKE | {"plant.inverter"},
    "olga": set(ALL),
}
OPERATORS: Final = {
    "create topic", "more partitions", "describe configs", "alter configs", "create acl", "describe acls",
    "delete acls", "set password",
}  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("locked")) as broker:
        provision_topics(broker.bootstrap_servers, partitions=1, others=OWN)
        broker.set_password("root", "root-sesame")
        yield broker


@pytest.fixture(scope="module")
def place(broker: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page's commands ran: ``cloud.toml`` has the login of an operator, made by them."""
    place = tmp_path_factory.mktemp("operator")
    (users,) = (block for block in blocks("docs/secure-cluster.md", "toml") if "[users]" in block.text)
    (commands,) = (
        block.text for block in blocks("docs/secure-cluster.md", "sh") if "test_locked_kafka" in block.mark
    )
    text = users.text.replace("# topics", "topics")
    (place / "cloud.toml").write_text(f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\n{text}')
    (place / "mast-07.toml").write_text(config_text(cup()) + DEVICES)
    lines = [shlex.split(line)[1:] for line in commands.splitlines()]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert [main(line) for line in lines[:2]] == [0, 0]
        passwords = dict(line.split() for line in Path("new-passwords").read_text().splitlines())
        assert set(passwords) == {"olga", "fieldgate-jobs", "anna"}
        Path("olga.password").write_text(passwords["olga"])
        login = f"""\
[kafka]
bootstrap_servers = "{broker.scram}"
[kafka.properties]
security.protocol = "SASL_SSL"
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "olga"
sasl.password = {{ file = "olga.password" }}
ssl.ca.location = "{broker.certificates / "ca.pem"}"
"""
        Path("master.key").write_text(MASTER)
        Path("cloud.toml").write_text(login + text + '[identity]\nmaster_key = { file = "master.key" }\n')
        # The broker's login may not have a password yet that its metadata has.
        eventually(lambda: main(lines[2]), 30, until=lambda code: code == 0)
    return place


def login(broker: SecuredBroker, place: Path, user: str) -> dict[str, str]:
    """Librdkafka's properties of one of them."""
    passwords = dict(line.split() for line in (place / "new-passwords").read_text().splitlines())
    access = tomllib.loads((place / "mast-07.access.toml").read_text())
    passwords[GATEWAY] = access["files"]["sasl.password"]
    return {
        "bootstrap.servers": broker.scram, "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user, "sasl.password": passwords[user], "log_level": "0",
        "ssl.ca.location": str(broker.certificates / "ca.pem"),
    }  # fmt: skip


def written(properties: dict[str, str]) -> set[str]:
    """The topics that take a record."""
    taken: set[str] = set()
    # As the gateway's is; who may write nothing would end with a fatal error.
    idempotent = str(bool(WRITES[properties.get("sasl.username", GATEWAY)])).lower()
    producer = Producer({**properties, "enable.idempotence": idempotent, "delivery.timeout.ms": "20000"})

    def report(error: object, message: Message) -> None:
        if error is None:
            taken.add(message.topic() or "")

    for topic in ALL:
        # What is known to be forbidden is refused at once.
        with suppress(KafkaException):
            producer.produce(topic, b"{}", b"key", on_delivery=report)
    assert producer.flush(30) == 0
    return taken


def read(properties: dict[str, str]) -> set[str]:
    """The topics whose record is given; each has one."""
    given: dict[str, bool] = {}
    name = f"{properties['sasl.username']}-test"
    consumer = Consumer({**properties, "group.id": name, "enable.auto.commit": "false"})
    try:
        # Who may read a topic sees it; of one that is not seen librdkafka reports nothing.
        seen = set(consumer.list_topics(timeout=20).topics) & set(ALL)
        consumer.assign([TopicPartition(topic, 0, 0) for topic in seen])
        end_s = time.monotonic() + 30
        while len(given) < len(seen) and time.monotonic() < end_s:
            message = consumer.poll(0.2)
            if message is not None and (topic := message.topic()) is not None:
                given[topic] = message.error() is None
    finally:
        consumer.close()
    assert set(given) == seen
    return {topic for topic, allowed in given.items() if allowed}


def admin_calls(properties: dict[str, str]) -> dict[str, Callable[[], Any]]:
    """Each raises where it is forbidden; the result of those allowed changes nothing that others need."""
    admin = AdminClient(dict(properties))
    anything: Any = None
    nobody, jobs = (
        AclBindingFilter(
            ResourceType.ANY, anything, ResourcePatternType.ANY, f"User:{user}", anything, AclOperation.ANY,
            AclPermissionType.ANY,
        ) for user in ("nobody", "fieldgate-jobs")
    )  # fmt: skip

    def see_permissions() -> None:
        if not admin.describe_acls(jobs).result(timeout=20):
            raise CloudError("not authorized: librdkafka gives an empty list then")

    mine = AclBinding(
        ResourceType.TOPIC, "none", ResourcePatternType.LITERAL, "User:nobody", "*", AclOperation.READ,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    place = ConfigResource(ConfigResource.Type.TOPIC, "elsewhere")
    entry = ConfigEntry("retention.ms", "1000000", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ConfigResource.Type.TOPIC, "elsewhere", incremental_configs=[entry])
    password = UserScramCredentialUpsertion(
        "nobody", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"sesame"
    )
    return {
        "create topic": lambda: admin.create_topics([NewTopic("new", 1, 1)], validate_only=True),
        "more partitions": lambda: admin.create_partitions(
            [NewPartitions("elsewhere", 2)], validate_only=True
        ),
        "describe configs": lambda: admin.describe_configs([place]),
        "alter configs": lambda: admin.incremental_alter_configs([changed]),
        "delete topic": lambda: admin.delete_topics(["elsewhere"]),
        "delete records": lambda: admin.delete_records([TopicPartition("mqtt.raw", 0, 1)]),
        "delete group": lambda: admin.delete_consumer_groups(["none"]),
        "create acl": lambda: admin.create_acls([mine]),
        "describe acls": see_permissions,
        "delete acls": lambda: admin.delete_acls([nobody]),
        "set password": lambda: admin.alter_user_scram_credentials([password]),
    }


def allowed_calls(properties: dict[str, str]) -> set[str]:
    """The admin calls that Kafka doesn't forbid."""
    calls = admin_calls(properties)
    return {name for name, call in calls.items() if not is_forbidden(call)}


def is_forbidden(call: Callable[[], Any]) -> bool:
    """Whether Kafka refuses a call for want of a permission."""
    try:
        for answer in (call() or {}).values():
            answer.result(timeout=20)
    except (KafkaException, CloudError) as error:
        reason = error.args[0].name() if isinstance(error, KafkaException) else str(error)
        if "authoriz" not in reason.lower():
            raise
        return True
    return False


def logs_in(properties: dict[str, str]) -> bool:
    """Log in as a user without an operator's permissions. Returns False where Kafka refuses the password."""
    with pytest.raises(CloudError, match=r"uthentication|doesn't let us manage users") as refusal:
        Users(properties["bootstrap.servers"], properties, 10)
    return "manage users" in str(refusal.value)


def test_a_listener_says_whether_it_has_logins(broker: SecuredBroker) -> None:
    tls = {"security.protocol": "SSL", "ssl.ca.location": str(broker.certificates / "ca.pem")}
    fault = listener_fault(broker.scram, tls)
    assert fault is not None
    assert "wants a login: security.protocol must be SASL_SSL" in fault.text
    assert listener_fault(broker.bootstrap_servers, {}) is None


def test_a_gateway_keeps_its_place_in_its_own_group_alone(broker: SecuredBroker, place: Path) -> None:
    properties = login(broker, place, GATEWAY)
    with pytest.raises(CloudError, match="allow Read on the consumer group"):
        TopicReader(broker.scram, properties, "fieldgate-mast-08", {"settings": "latest"})
    reader = TopicReader(broker.scram, properties, "fieldgate-mast-07", {"settings": "latest"})
    try:
        reader.commit(reader.begun)
        reader.flush()
        assert reader.committed == reader.begun
    finally:
        reader.close()


def test_commands_are_guarded_by_a_group_of_the_gateways_own_and_read_without_its_permission_too(
    broker: SecuredBroker, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An access of before that group was granted."""
    properties, key = login(broker, place, GATEWAY), GATEWAY.encode()
    for group, guarded in (("fieldgate-mast-07-commands", True), ("fieldgate-elsewhere-commands", False)):
        caplog.clear()
        start = Place(None, None, 1)
        reader = KeyReader(broker.scram, properties, "gateway.commands", key, start, member=(group, "run"))
        try:
            eventually(lambda reader=reader: reader.read(0.5) is not None or reader.at_end)  # type: ignore[misc] # of a loop
        finally:
            reader.close()
        assert ("event=commands.unguarded" in caplog.text) != guarded


def test_each_role_may_do_what_it_is_for_and_nothing_else(broker: SecuredBroker, place: Path) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for topic in ALL:
        producer.produce(topic, b"{}", b"key")
    assert producer.flush(30) == 0
    for user in WRITES:
        properties = login(broker, place, user)
        assert written(properties) == WRITES[user], user
        assert read(properties) == READS[user], user
        assert allowed_calls(properties) == (OPERATORS if user == "olga" else set()), user
    foreign = {**login(broker, place, GATEWAY), "sasl.password": "wrong"}
    with pytest.raises(CloudError, match="uthentication"):
        Users(broker.scram, foreign, 10)
    with pytest.raises(CloudError, match=r"doesn't let us manage users: use an operator's login"):
        Users(broker.scram, login(broker, place, "anna"), 10)


def test_doing_it_again_changes_nothing_and_what_differs_is_shown(
    broker: SecuredBroker, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    again = ["provision", "users", "--cloud", "cloud.toml"]
    assert main(again) == 0
    capsys.readouterr()
    gateway = ["provision", "gateway", GATEWAY, "--cloud", "cloud.toml"]
    assert main([*gateway, "-c", "mast-07.toml"]) == 0
    assert capsys.readouterr().out == "keeps its password  mast-07: --rotate makes another\n"
    broker.allow("anna", AclOperation.WRITE, topic="elsewhere")
    config = Path("cloud.toml").read_text()
    Path("other.toml").write_text(config.replace("65_536", "32_768"))
    other = ["provision", "users", "--cloud", "other.toml"]
    surplus = "surplus   anna: WRITE on topic elsewhere; it stays: kafka-acls --remove takes it\n"

    def shows() -> str:
        assert main(other) == 0
        return capsys.readouterr().out

    # Kafka has what it was given a moment after it has taken it.
    shown = eventually(shows, 20, until=lambda text: text.startswith(surplus))
    quotas = [line.split() for line in shown.removeprefix(surplus).splitlines()]
    assert [line[:2] for line in quotas] == [["quota", "kafka-configs"]] * 2
    # Kafka's own tool takes the arguments as they are shown, with an operator's login in the file they name.
    olga = login(broker, place, "olga")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    Path("operator.properties").write_text(f"""\
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={module} required username="olga" password="{olga["sasl.password"]}";
ssl.truststore.type=PEM
ssl.truststore.location={olga["ssl.ca.location"]}
""")
    broker.kafka_configs(*quotas[1][2:])
    described = broker.kafka_configs(
        "--bootstrap-server", broker.bootstrap_servers, "--describe", *quotas[1][7:14]
    )
    assert "producer_byte_rate=32768" in described
    assert (place / "mast-07.access.toml").stat().st_mode & 0o777 == 0o600
    assert main([*gateway, "--rotate", "-o", "mast-07.access.toml"]) == 1
    assert "mast-07.access.toml: File exists" in capsys.readouterr().err


def test_a_rotated_password_is_another_and_the_old_one_is_refused(
    broker: SecuredBroker, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    gateway = ["provision", "gateway", "mast-08", "--cloud", "cloud.toml"]
    users = ["provision", "users", "--cloud", "cloud.toml"]
    assert main([*gateway, "-o", "old.toml"]) == main([*gateway, "--rotate", "-o", "new.toml"]) == 0
    shared = {**login(broker, place, GATEWAY), "sasl.username": "mast-08"}
    old, new = (tomllib.loads(Path(f"{name}.toml").read_text()) for name in ("old", "new"))
    # A broker takes another password a moment after it has been told.
    eventually(lambda: logs_in({**shared, "sasl.password": new["files"]["sasl.password"]}), 20)
    assert not logs_in({**shared, "sasl.password": old["files"]["sasl.password"]})
    before = login(broker, place, "anna")
    assert main([*users, "--rotate", "nobody"]) == 2
    assert main([*users, "--rotate", "anna", "--passwords", "rotated"]) == 0
    assert [line.split()[0] for line in Path("rotated").read_text().splitlines()] == ["anna"]
    eventually(lambda: not logs_in(before), 20)
    passwords = Path("new-passwords").read_text().replace(f"anna {before['sasl.password']}\n", "")
    Path("new-passwords").write_text(passwords + Path("rotated").read_text())
    assert logs_in(login(broker, place, "anna"))
    shown = capsys.readouterr()
    assert before["sasl.password"] not in shown.out + shown.err


def test_a_certificate_takes_the_place_of_a_password(
    broker: SecuredBroker, place: Path, tmp_path: Path
) -> None:
    certificate, key = (broker.certificates / f"mast-07.{end}" for end in ("pem", "key"))
    access, config = tmp_path / "access.toml", tmp_path / "gateway.toml"
    provision = ["provision", "gateway", GATEWAY, "--cloud", str(place / "cloud.toml")]
    provision += ["-c", str(place / "mast-07.toml"), "--bootstrap-servers", broker.mtls]
    assert main([*provision, "--certificate", str(certificate), "--key", str(key), "-o", str(access)]) == 0
    sensor = "cup=hall-anemometer:17,slope=0.765,offset=0.35"
    assert main(["init", "--access", str(access), "--sensor", sensor, "-o", str(config)]) == 0
    kafka = load(config).kafka
    assert kafka.bootstrap_servers == broker.mtls
    named = {name: Path(path).read_bytes() for name, path in kafka.properties.items() if "location" in name}
    assert named["ssl.certificate.location"] == certificate.read_bytes()
    properties = {**kafka.properties, "bootstrap.servers": broker.mtls, "log_level": "0"}
    assert written(properties) == WRITES[GATEWAY]
    assert allowed_calls(properties) == set()


def test_a_quota_of_backlogs_holds_no_new_reading_back(broker: SecuredBroker, place: Path) -> None:
    properties = {name: value for name, value in login(broker, place, GATEWAY).items() if "boot" not in name}
    broker.set_rate("backlog", 20_000)
    live, backlog = (KafkaSink[float](broker.scram, name, properties) for name in ("live", "backlog"))
    took: list[float] = []
    sent = taken = 0
    try:
        live.send(Row(b"{}"), time.monotonic())
        eventually(lambda: live.poll(0.1))
        begin_s = time.monotonic()
        while backlog.limited is None or len(took) < 40:
            # Bytes that no compression makes less of.
            while backlog.open < 20:
                sent += backlog.send(Row(os.urandom(5_000)), 0.0)
            live.send(Row(b"{}"), time.monotonic())
            answers = eventually(lambda: live.poll(0.05), poll_s=0.0)
            taken += len(backlog.poll())
            if backlog.limited is not None:
                took += [time.monotonic() - sent_s for sent_s, _ in answers]
            assert time.monotonic() < begin_s + 60
        assert backlog.limited == "Kafka's quota for backlog is reached: what is over it waits"
        assert live.limited is None
        # Far less than the wait of the records that are over the quota.
        assert sorted(took)[20] < 0.5, took
        assert taken < sent
    finally:
        live.close()
        backlog.close()
        broker.set_rate("backlog", 65_536)


class Row:
    """A record of other devices."""

    topic, key = "mqtt.raw", b"key"
    headers: tuple[tuple[str, bytes], ...] = ()

    def __init__(self, value: bytes) -> None:
        self.value = value


class Trouble:
    """A mast whose login is hurt and mended while it runs."""

    def __init__(self, mast: GatewayProcess, directory: Path) -> None:
        self.mast, self.directory = mast, directory

    def reload(self) -> None:
        before = self.mast.log.read_text().count("event=daemon.reloaded")
        self.mast.process.send_signal(signal.SIGHUP)
        eventually(lambda: self.mast.log.read_text().count("event=daemon.reloaded") > before)

    def shows(self, text: str, kind: str, event: str) -> None:
        """The reason stands in status, metrics and log within 30 s, while readings are kept."""

        def reasons() -> str:
            status = self.mast.status()
            return str([status["kafka_problem"], status["parked"]])

        begin_s = time.monotonic()
        eventually(reasons, 30, until=lambda found: text in found)
        metric = f'fieldgate_kafka_refuses{{reason="{kind}"}} 1.0'
        eventually(lambda: metric in self.mast.metrics(), 30)
        # The log is written beside.
        eventually(
            lambda: any(text in line and event in line for line in self.mast.log.read_text().splitlines()), 30
        )
        assert time.monotonic() < begin_s + 30

    def kept(self) -> None:
        eventually(lambda: self.mast.status()["outbox_records"], 30, until=lambda waiting: waiting > 0)


def posted_with(place: Path, mast: GatewayProcess) -> list[str]:
    """The secrets of its devices, after each was used, and a wrong one."""
    rows = [line.split() for line in (place / "handed-out").read_text().splitlines()]
    given = {kind: secret for kind, _, secret in rows}
    status = mast.status()
    for token, answer in ((given["token"], 200), (WRONG, 401)):
        connection = http.client.HTTPConnection("127.0.0.1", status["http"]["port"], timeout=30)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/readings", foreign_reading("logger-3", 1), headers)
        assert connection.getresponse().status == answer
        connection.close()
    for password, answered in ((given["user"], CONNECTED + puback(1)), (WRONG, b"\x20\2\0\5")):
        sent = (connect(user="soil", password=password), publish_packet("devices/soil/a", b"1", 1))
        with device(status["mqtt_proxy"]["port"], *sent) as soil:
            soil.expect(answered)
    return [*given.values(), WRONG]


def shown_by(mast: GatewayProcess, place: Path) -> dict[str, str]:
    """What a running gateway shows; the bundle has what doctor and the status command have."""
    bundle = place / "bundle.tar.gz"
    assert fieldgate("support-bundle", "-c", mast.path, bundle).returncode == 0
    with tarfile.open(bundle) as files:
        texts = {
            each.name: (files.extractfile(each) or io.BytesIO()).read() for each in files if each.isfile()
        }
    shown = {f"bundle's {name}": content.decode(errors="replace") for name, content in texts.items()}
    shown["status"] = json.dumps(mast.status())
    shown["metrics"] = "\n".join(mast.metrics())
    for process in [psutil.Process(mast.pid), *psutil.Process(mast.pid).children(recursive=True)]:
        shown[f"command line of {process.pid}"] = " ".join(process.cmdline())
    assert len(shown) > 8
    return shown


def identity_record(broker: SecuredBroker) -> IdentityRecord:
    known = IdentityTopic(broker.bootstrap_servers, {}, 10).read(GATEWAY).record
    assert known is not None
    return known


def test_a_mast_whose_access_is_wrong_keeps_its_readings_and_says_why(
    broker: SecuredBroker, place: Path, tmp_path: Path, mosquitto: LocalMosquitto
) -> None:
    """Wrong password, wrong authority, revoked, quota reached: each is mended without a restart."""
    config, cloud = tmp_path / "gateway.toml", place / "cloud.toml"
    sensor = "cup=hall-anemometer:17,slope=0.765,offset=0.35,interval_s=0.2"
    access = tmp_path / "mast.access.toml"
    access.write_bytes((place / "mast-07.access.toml").read_bytes())
    init = ["init", "--access", str(access), "-o", str(config)]
    assert main([*init, "--board", "simulated", "--sensor", sensor]) == 0
    text = config.read_text()
    for path in ("kafka.password", "kafka-ca.pem"):
        assert f'"{tmp_path / path}"' in text
    text = text.replace('#path = "/var/lib/fieldgate/outbox.db"', 'path = "outbox.db"')
    text = text.replace("#allow = []", 'allow = ["self-test"]')
    for name, lines in LISTENERS.items():
        assert f"\n[{name}]\n" in text
        text = text.replace(f"\n[{name}]\n", f'\n[{name}]\nlisten = "127.0.0.1:{free_port()}"\n{lines}\n')
    config.write_text(f'{text}\n[[forward]]\nfilter = "devices/#"\npayload = "raw"\n')
    assert main(["provision", "devices", "-c", str(config), "--device", "soil", "--token", "logger-3",
                 "--passwords", str(tmp_path / "handed-out")]) == 0  # fmt: skip
    mast = GatewayProcess(tmp_path, config.read_text(), GATEWAY, broker.scram, mosquitto)
    mast.launch()
    hurt = Trouble(mast, tmp_path)
    try:
        mast.sample(5)
        mast.delivered()
        run, key = mast.run_record()["run"], (tmp_path / "identity.key").read_text().strip()
        assert key == gateway_key(MASTER, GATEWAY, 1)
        assert proves(key, GATEWAY, run)
        assert mast.status()["run_proves_itself"]
        # An operator's command reaches the mast, and its result him, by these permissions.
        assert main(["command", "send", GATEWAY, "self-test", "--cloud", str(cloud)]) == 0
        other = (broker.certificates / "other.pem").read_bytes()
        authority = "certificate is of an authority that isn't in ssl.ca.location"
        for name, wrong, *reason in (
            ("kafka.password", b"wrong", "invalid credentials", "login", "event=kafka.error"),
            ("kafka-ca.pem", other, authority, "certificate", "event=kafka.listener_refuses"),
        ):
            right = (tmp_path / name).read_bytes()
            (tmp_path / name).write_bytes(wrong)
            hurt.reload()
            hurt.shows(*reason)
            hurt.kept()
            (tmp_path / name).write_bytes(right)
            hurt.reload()
            mast.delivered()
        provision = ["provision", "gateway", GATEWAY, "--cloud", str(cloud)]
        provision += ["-c", str(place / "mast-07.toml")]
        given = identity_record(broker).generation
        assert main([*provision, "--revoke"]) == 0
        hurt.shows("TOPIC_AUTHORIZATION_FAILED", "permission", "event=topic.parked")
        hurt.kept()
        access.unlink()
        assert main([*provision, "-o", str(access)]) == 0
        before = (tmp_path / "kafka.password").read_bytes()
        assert main(init) == 0
        assert (tmp_path / "kafka.password").read_bytes() != before
        hurt.reload()
        mast.delivered()
        broker.set_rate("live", 1024)
        eventually(
            lambda: mast.status()["kafka_problem"], 30, until=lambda found: "quota for live" in str(found)
        )
        # It stands while Kafka makes one wait, now and then.
        metric = 'fieldgate_kafka_refuses{reason="quota"} 1.0'
        eventually(mast.metrics, 30, until=lambda lines: metric in lines)
        eventually(lambda: "event=kafka.quota_reached client=live" in mast.log.read_text(), 30)
        broker.set_rate("live", 262_144)
        mast.sample(5)
        mast.delivered()
        devices = posted_with(tmp_path, mast)
        shown = shown_by(mast, tmp_path)
        assert mast.stop() == 0
        log = mast.log.read_text()
    finally:
        mast.end()
    last = mast.run_record()["last_seq"]["cup.wind_speed"]
    kept = published(broker.bootstrap_servers, "mqtt.wind_speed", GATEWAY, mast.outbox)
    assert {record["seq"] for record in kept} == set(range(1, last + 1))
    assert log.count("event=daemon.start ") == 1
    secrets = [before.decode().strip(), (tmp_path / "kafka.password").read_text().strip(), key, *devices]
    secrets.append((tmp_path / "identity.key").read_text().strip())
    places = {**shown, "log": log}
    assert [place for place, text in places.items() if any(secret in text for secret in secrets)] == []
    # Another key after the revocation; the run of before it goes on, and is welcome.
    assert (tmp_path / "identity.key").read_text().strip() == gateway_key(MASTER, GATEWAY, given + 1)
    assert main(["provision", "gateway", GATEWAY, "--cloud", str(cloud), "--enforce"]) == 0
    known = identity_record(broker)
    assert [step.least for step in known.steps] == [1, None, given + 1]
    assert known.runs == {run}
    of_run = ("run", run.encode())
    described = list(records(broker.bootstrap_servers, [CHANNELS_TOPIC]))
    assert {of_run in (each.headers() or ()) for each in described if each.value() != b"{}"} == {True}


def test_since_when_runs_must_prove_themselves_is_an_operators(
    broker: SecuredBroker, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    topic = IdentityTopic(broker.bootstrap_servers, {}, 10)

    def provision(*options: str, gateway: str = "mast-21") -> str:
        capsys.readouterr()
        code = main(["provision", "gateway", gateway, "--cloud", "cloud.toml", *options])
        shown = capsys.readouterr()
        return shown.out if code == 0 else shown.err

    assert "has no key yet: provision gateway mast-21 --rotate" in provision("--enforce")
    shown = provision("--dry-run")
    assert "identity  mast-21: would be: key 1, from " in shown
    assert topic.read("mast-21").record is None
    # Nobody has seen it: from its first run on.
    assert "on its new runs must prove themselves by key 1" in provision("-o", "m21.toml")
    access = tomllib.loads(Path("m21.toml").read_text())
    assert access["identity_key"] == gateway_key(MASTER, "mast-21", 1)
    assert provision() == "keeps its password  mast-21: --rotate makes another\n"
    assert provision("--enforce") == "identity  mast-21: nothing to change\n"

    # One that is at work: its runs first show that it has the key.
    at_work = f"run-{time.time_ns()}"

    def publish_run(run: str) -> None:
        record = {"v": 1, "gateway": "mast-22", "run": run, "state": "running", "last_seq": {}}
        place = "gateway.runs", run.encode(), json.dumps(record).encode()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce(place[0], place[2], place[1])
        assert producer.flush(30) == 0

    publish_run(at_work)
    shown = provision("-o", "m22.toml", gateway="mast-22")
    assert shown.count("identity  mast-22: key 1\n") == 1
    assert "no run of mast-22 has proven itself by key 1 yet" in provision("--enforce", gateway="mast-22")
    key = tomllib.loads(Path("m22.toml").read_text())["identity_key"]
    publish_run(proving_run(key, "mast-22", "0123456789ab"))
    assert "by key 1" in provision("--enforce", gateway="mast-22")
    known = topic.read("mast-22").record
    assert known is not None
    assert known.runs == {at_work}
    assert "runs needn't prove themselves" in provision("--no-enforce", gateway="mast-22")
    refused = provision("--accept-run", "no/run", gateway="mast-22")
    assert refused.startswith("fieldgate: no/run is no run's id")
    assert "accepts run other" in provision("--accept-run", "other", gateway="mast-22")
    known = topic.read("mast-22").record
    assert known is not None
    assert known.runs == {at_work, "other"}
    assert [step.least for step in known.steps] == [1, 0]
