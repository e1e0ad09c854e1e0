"""A Kafka with logins, end to end: gateway, topics, all jobs, accounts; refusals are named, mended, and over.

The jobs meet a wrong authority, a wrong password and a missing permission, and go on as each is mended;
meanwhile nothing that others may read shows a secret.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.cimpl import Producer
from pyspark.sql import SparkSession

from cloud.config import load
from cloud.errors import CloudError
from cloud.kafka.provision import provision_topics
from cloud.kafka.topic_scan import read_furthest
from cloud.local.process import free_port
from cloud.operate.identity import IdentityTopic
from cloud.wire.identities import IdentityRecord, Step, gateway_key
from cloud.wire.reading_records import ALERTS_TOPIC, encode_reading, reading_key
from gateway.commands.demo.mosquitto import LocalMosquitto
from spark_jobs.jobs import replay
from spark_jobs.platform.settings import parse_command
from tests.spark.programs import Program
from tests.spark.records import reading
from tests.spark.running import QUICK_JAVA, QUICK_PLANS
from tests.spark.shown import shown
from tests.support.accounts import read_accounts
from tests.support.commands import query as run_query
from tests.support.config import config_text, cup
from tests.support.mast import records, run_gateway
from tests.support.secured_kafka import SecuredBroker
from tests.support.servers import eventually, fieldgate

TOPIC = "mqtt.wind_speed"
MASTER = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
PASSWORD, KEY_PASSWORD, WRONG = 'jobs "sesame" \\ one', "key-sesame", "wrong-sesame"
RULES = """\
max_age = "1d"
[[rule]]
name = "any-wind"
kind = "threshold"
above = -1
quantity = "wind_speed"
"""
LOG = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
logger.repl.name = org.apache.spark.api.python.PythonGatewayServer
logger.repl.level = info
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %c{1}: %m%n%ex
"""
"""Everything that Spark and Kafka's clients log by themselves, their configuration included."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        broker.set_password("mast-07", "mast-sesame")
        broker.set_password("jobs", PASSWORD)
        broker.allow("mast-07", AclOperation.WRITE, AclOperation.DESCRIBE)
        yield broker


@pytest.fixture(scope="module")
def place(broker: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``scram.toml`` and ``mtls.toml``, and what they name: the jobs' own, which are changed in place."""
    place = tmp_path_factory.mktemp("cloud")
    for name in ("ca.pem", "jobs.pem", "jobs.key", "jobs.locked.key"):
        (place / name).write_bytes((broker.certificates / name).read_bytes())
    for name, text in (("password", PASSWORD), ("key.password", KEY_PASSWORD), ("rules.toml", RULES)):
        (place / name).write_text(text)
    # What plans show of a query is looked at: they are as Spark has them.
    quick = (item for item in QUICK_PLANS if item[0] != "spark.sql.ui.explainMode")
    plans = "\n".join(f'{key} = "{value}"' for key, value in quick)
    rest = f"""\
ssl.ca.location = "ca.pem"
ssl.certificate.location = "jobs.pem"
ssl.key.location = "jobs.locked.key"
ssl.key.password = {{ file = "key.password" }}
[lake]
path = "lake"
[jobs]
interval = "1m"
trigger = "2s"
rules = "rules.toml"
[jobs.conf]
spark.driver.extraJavaOptions = "{QUICK_JAVA}"
{plans}
spark.eventLog.enabled = true
spark.eventLog.compress = false
spark.eventLog.dir = "{place / "events"}"
"""
    login = 'security.protocol = "SASL_SSL"\nsasl.mechanism = "SCRAM-SHA-512"\nsasl.username = "jobs"\n'
    login += 'sasl.password = { file = "password" }\n'
    rest += '[identity]\nmaster_key = { file = "master.key" }\n'
    (place / "master.key").write_text(MASTER)
    (place / "events").mkdir()
    (place / "scram.toml").write_text(_head(broker.scram) + login + rest)
    mtls = _head(broker.mtls) + 'security.protocol = "SSL"\n' + rest
    (place / "mtls.toml").write_text(mtls)
    return place


def _head(servers: str) -> str:
    return f'[kafka]\nbootstrap_servers = "{servers}"\n[kafka.properties]\n'


@pytest.fixture(scope="module")
def filled(broker: SecuredBroker) -> None:
    """There are topics, and twenty readings: a test that is run again alone has them too."""
    provision_topics(broker.bootstrap_servers, partitions=1, replication=1)
    produce(broker, "early-run", 20)


def test_a_gateway_its_topics_and_its_accounts(
    broker: SecuredBroker, place: Path, tmp_path: Path, mosquitto: LocalMosquitto
) -> None:
    def scan() -> None:
        kafka = load(place / "scram.toml").kafka
        read_furthest(broker.scram, properties=kafka.properties())

    with pytest.raises(
        CloudError, match=f"^Kafka at {broker.scram} forbids gateway.runs: allow Describe and Read$"
    ):
        scan()
    broker.allow("jobs", AclOperation.ALL)
    assert fieldgate("check", "--cloud", place / "mtls.toml").returncode == 0
    done = fieldgate("provision", "topics", "--cloud", place / "mtls.toml", "--partitions", "1")
    assert (done.returncode, done.stderr) == (0, "")
    properties = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "mast-07",
        "sasl.password": "mast-sesame", "ssl.ca.location": str(place / "ca.pem"),
    }  # fmt: skip
    config = config_text(cup(interval_s=0.2), kafka={"properties": properties})
    with run_gateway(tmp_path, config, "mast-07", broker.scram, mosquitto) as gateway:
        gateway.sample(20)
        gateway.delivered()
        assert gateway.stop() == 0
    (account,) = read_accounts(broker.bootstrap_servers).of("mast-07")
    assert account.sampled == account.stored >= 20
    scan()
    (place / "password").write_text(WRONG)
    with pytest.raises(CloudError, match="invalid credentials"):
        scan()
    (place / "password").write_text(PASSWORD)
    broker.forbid("jobs")


@pytest.mark.usefixtures("filled")
@pytest.mark.timeout(900)
def test_the_jobs_go_on_as_each_refusal_is_mended_and_show_no_secret(
    broker: SecuredBroker, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Workers get a key; of a mast that isn't there nothing is asked.
    enforced = IdentityRecord("mast-99", 1, (Step(0, 1),))
    IdentityTopic(broker.bootstrap_servers, {}, 10).write(enforced)
    (place / "ca.pem").write_bytes((broker.certificates / "other.pem").read_bytes())
    (place / "password").write_text(WRONG)
    (place / "log4j2.properties").write_text(LOG)
    ui = free_port()
    # In the order of Spark's command line the last one counts.
    java = f"{QUICK_JAVA} -Dlog4j2.configurationFile=file:{place}/log4j2.properties"
    options = ["--cloud", str(place / "scram.toml"), "--conf", f"spark.driver.extraJavaOptions={java}"]
    options += ["--conf", "spark.ui.enabled=true", "--conf", f"spark.ui.port={ui}"]
    command = [sys.executable, "-m", "spark_jobs", "run", "ingest", "alerts", *options]
    with Program(command, place / "log") as jobs:
        jobs.awaits("the broker's certificate is of an authority that isn't in ssl.ca.location")
        (place / "ca.pem").write_bytes((broker.certificates / "ca.pem").read_bytes())
        jobs.awaits("Kafka refuses the login: Authentication failed during authentication due to invalid")
        (place / "password").write_text(PASSWORD)
        jobs.awaits("Kafka forbids the jobs' user ")
        broker.allow("jobs", AclOperation.ALL)
        eventually(lambda: stored(place, capsys) >= 20, 300, poll_s=1.0)
        eventually(lambda: list(records(broker.bootstrap_servers, [ALERTS_TOPIC])), 120)
        jobs.awaits("event=identities.read gateways=1")
        assert seen(place, ui, jobs) == []
        # Taken away while they run, and given back.
        before = jobs.log.count("Kafka forbids the jobs' user ")
        broker.forbid("jobs")
        produce(broker, "late-run", 1)
        jobs.awaits("Kafka forbids the jobs' user ", before + 1)
        broker.allow("jobs", AclOperation.ALL)
        eventually(lambda: stored(place, capsys, "late-run") == 1, 300, poll_s=1.0)
        failures = [line for line in jobs.log.splitlines() if "event=query.failed" in line]
        # At last its Java alone is killed, which the Python has to notice.
        jobs.jvm().kill()
        assert jobs.ends(60) == 1
        assert "event=jobs.failed Spark has ended" in jobs.log
    assert all("Kafka" in line and len(line) < 400 for line in failures), failures


@pytest.mark.usefixtures("filled")
def test_replay_over_mtls(
    broker: SecuredBroker,
    place: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker.allow("jobs", AclOperation.ALL)
    begin = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 86_400))
    arguments = ["--cloud", str(place / "mtls.toml"), "--from", begin, "--dry-run", "--json"]
    monkeypatch.setattr(replay, "running_session", lambda *_: nullcontext(spark))
    replay.main(*parse_command("replay", arguments))
    assert json.loads(capsys.readouterr().out)["records"] >= 20


def stored(place: Path, capsys: pytest.CaptureFixture[str], run: str = "%") -> int:
    """How many readings of runs are in the table, as ``query`` has it."""
    sql = f"SELECT count(*) AS n FROM readings WHERE run LIKE '{run}'"  # noqa: S608 - the test's own word
    capsys.readouterr()
    if run_query([sql, "--cloud", str(place / "scram.toml"), "--json"]) != 0:
        return 0
    count: int = json.loads(capsys.readouterr().out)[0]["n"]
    return count


def produce(broker: SecuredBroker, run: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    now_us = time.time_ns() // 1000
    for seq in range(1, count + 1):
        item = reading(seq, run=run, at_us=now_us - (count - seq) * 1_000_000)
        producer.produce(TOPIC, encode_reading(item), reading_key(item.gateway, item.channel))
    assert producer.flush(30) == 0


def seen(place: Path, ui: int, jobs: Program) -> list[str]:
    """Where a secret is shown: log, event log, checkpoints, tables, command lines, Spark's interface."""
    key = (place / "jobs.locked.key").read_text().splitlines()[1]
    secrets = [PASSWORD, PASSWORD.replace("\\", "\\\\").replace('"', '\\"'), "sesame", key]
    secrets += [MASTER, gateway_key(MASTER, "mast-99", 1)]
    named = {"master.key", "password", "key.password", "jobs.key", "jobs.locked.key"}
    texts = shown(place, named, ui, jobs)
    assert "ConsumerConfig values" in texts[str(place / "log")], "the clients' configuration is in no log"
    (plans,) = (text for name, text in texts.items() if "/sql?details" in name)
    assert "kafka" in plans.lower(), "no plan with Kafka is shown"
    return [name for name, text in texts.items() if any(secret in text for secret in secrets)]
