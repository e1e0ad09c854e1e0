"""From a fault at a mast to the mail, by the programs as they are installed.

gpsd, Mosquitto, Kafka, Spark and the mail server are real. Emulated are the sentences of a GPS receiver and
the file in which a Pi's firmware reports its supply.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cloud.kafka.provision import provision_topics
from cloud.wire.reading_records import EVENTS_TOPIC
from gateway.commands.demo.mosquitto import LocalMosquitto
from tests.faults.disks import Disk
from tests.faults.kafka import HurtBroker
from tests.faults.uplink import Uplink
from tests.integration.test_notify import Mails, mail_server, notifying, wait_for
from tests.spark.jobs.test_reported_alerts import event
from tests.spark.programs import QUICK, Program
from tests.spark.results import note
from tests.support.config import PLACE, config_text, cup, sensor
from tests.support.mast import GatewayProcess, on_a_pi
from tests.support.servers import eventually, fieldgate
from tests.unit.drivers.test_gpsd import RealGpsd, Receiver, real_gpsd

pytestmark = [pytest.mark.system, pytest.mark.spark]

DRIVE_MPS = 15.0
METRES_A_DEGREE = 111_195.0
MORE_RULES = """
[[rule]]
name = "sends-much"
kind = "health"
field = "bytes_sent"
above = 5e3
message = "{gateway}: {value:.0f} bytes since the report before"
"""


class Fleet:
    """Masts that one Mosquitto and one Kafka serve, and when the fault of each began (monotonic)."""

    def __init__(self, directory: Path, kafka: str, mosquitto: LocalMosquitto, opened: ExitStack) -> None:
        self._directory = directory
        self._kafka = kafka
        self._mosquitto = mosquitto
        self._opened = opened
        self.begun_s: dict[tuple[str, str], float] = {}
        """By mast and rule."""

    def mast(self, name: str, config: str, kafka: str | None = None) -> GatewayProcess:
        """One that isn't started yet; its status is where its config has it, for other commands."""
        place = self._directory / name
        place.mkdir()
        made = GatewayProcess(place, config, name, kafka or self._kafka, self._mosquitto)
        made.write(f'{config}\n[status]\nlisten = "127.0.0.1:{made.status_port}"\n')
        self._opened.callback(made.end)
        return made

    def fails(self, mast: str, rule: str) -> None:
        self.begun_s[mast, rule] = time.monotonic()


@contextmanager
def jobs_running(directory: Path, kafka: str) -> Iterator[None]:
    """``fieldgate jobs run ingest alerts``, with the packaged rules and one more, once it reads."""
    rules = directory / "rules.toml"
    rules.write_text((files("spark_jobs.alerting") / "default_rules.toml").read_text() + MORE_RULES)
    command = [
        *(sys.executable, "-m", "gateway.cli", "jobs", "run", "ingest", "alerts", "--rules", str(rules)),
        *("--bootstrap-servers", kafka, "--lake", str(directory / "lake")),
        *("--checkpoints", str(directory / "checkpoints"), *QUICK),
    ]
    with Program(command, directory / "jobs.log") as program:
        program.awaits("event=query.start", 3)
        yield


def mailed(mails: Mails) -> dict[tuple[str, str], float]:
    """When each alert was mailed first, by mast and rule: a line has the rule, the next one the mast."""
    found: dict[tuple[str, str], float] = {}
    for mail, at_s in zip(mails.found, mails.at_s, strict=False):
        for rule, place in pairwise(mail.get_content().splitlines()):
            found.setdefault((place.partition(",")[0].partition(" ")[0], rule.partition(",")[0]), at_s)
    return found


@real_gpsd
@pytest.mark.timeout(1200)
def test_each_fault_of_a_mast_is_mailed(
    tmp_path: Path, mosquitto: LocalMosquitto, free_port: int, full: bool
) -> None:
    if not full:
        pytest.skip("only with --full: a drive takes six minutes; test_reported_alerts.py mails two faults")
    with ExitStack() as opened:
        kafka = opened.enter_context(HurtBroker(tmp_path / "kafka"))
        provision_topics(kafka.bootstrap_servers, partitions=2, replication=1)
        uplink = opened.enter_context(Uplink(kafka.uplink_port, kafka.inner_port))
        mails, url = opened.enter_context(mail_server(free_port))
        cloud = tmp_path / "cloud.toml"
        target = f'[notify.olga]\nurl = "{url}"\ngroup = "1s"\n'
        cloud.write_text(f'[kafka]\nbootstrap_servers = "{kafka.bootstrap_servers}"\n{target}')
        cloud.chmod(0o600)
        notify = opened.enter_context(notifying(cloud))
        wait_for(notify, "event=notify.reads")
        opened.enter_context(jobs_running(tmp_path, kafka.bootstrap_servers))

        fleet = Fleet(tmp_path, kafka.bootstrap_servers, mosquitto, opened)
        drive_away(fleet, opened)
        sends = fleet.mast("sends", config_text(cup(), gateway={"id": "sends"}))
        sends.launch()
        weaken_the_supply(fleet, tmp_path)
        let_a_calibration_end(fleet)
        refuse_a_config(fleet)
        fill_an_outbox(fleet, opened.enter_context(Disk(tmp_path, 48)), uplink)
        let_an_outbox_grow(fleet, kafka.bootstrap_servers)
        report_what_was_sent(fleet, sends)
        eventually(
            lambda: fleet.begun_s.keys() - mailed(mails).keys(), 600, until=lambda missing: not missing
        )
        took_s = {each: mailed(mails)[each] - begun_s for each, begun_s in fleet.begun_s.items()}
    note("fault at a mast to mail", {rule: f"{seconds:.1f} s" for (_, rule), seconds in took_s.items()})
    # It is far enough away after half a minute, and that is sure after five more.
    assert took_s["moved", "mast-moved"] > 330


def drive_away(fleet: Fleet, opened: ExitStack) -> None:
    """A mast with a GPS receiver is driven north."""
    receiver = Receiver()
    opened.callback(receiver.close)
    latitude, longitude = PLACE["latitude"], PLACE["longitude"]
    receiver.position = latitude, longitude
    gpsd = RealGpsd(receiver)
    gpsd.start()
    opened.callback(gpsd.stop)
    config = config_text(
        sensor("gps", "gpsd", port=gpsd.port),
        gateway={"id": "moved", **PLACE},
        board={"kind": "raspberry-pi"},
        clock={"trust": "always"},
    )
    mast = fleet.mast("moved", config)
    mast.launch()
    eventually(mast.sampled)
    fleet.fails("moved", "mast-moved")

    arrived = threading.Event()

    def drive() -> None:
        while not arrived.wait(0.2):
            driven_m = DRIVE_MPS * (time.monotonic() - fleet.begun_s["moved", "mast-moved"])
            receiver.position = latitude + driven_m / METRES_A_DEGREE, longitude

    threading.Thread(target=drive, daemon=True).start()
    opened.callback(arrived.set)


def weaken_the_supply(fleet: Fleet, directory: Path) -> None:
    within, bits = on_a_pi(directory)
    mast = fleet.mast("weak", config_text(cup(), gateway={"id": "weak"}))
    mast.launch(within=within)
    assert eventually(mast.status_now)["under_voltage"] in (None, 0)
    bits.write_text("50005\n")
    fleet.fails("weak", "weak-supply")


def let_a_calibration_end(fleet: Fleet) -> None:
    today = datetime.now(UTC).date()
    due = cup(calibrated=today - timedelta(days=710), expires=today + timedelta(days=20))
    mast = fleet.mast("due", config_text(due, gateway={"id": "due"}))
    fleet.fails("due", "calibration-ends")
    mast.launch()


def refuse_a_config(fleet: Fleet) -> None:
    mast = fleet.mast("refuses", config_text(cup(), gateway={"id": "refuses"}))
    mast.launch()
    eventually(mast.sampled)
    fleet.fails("refuses", "config-refused")
    assert mast.reload(mast.config().replace("0.765", '"much"')) is not None


def fill_an_outbox(fleet: Fleet, disk: Disk, uplink: Uplink) -> None:
    """Without Kafka, on a disk that other files fill; its event leaves when Kafka is back."""
    outbox = {"path": str(disk.path / "outbox.db"), "min_free_disk": "16MiB"}
    config = config_text(cup(), gateway={"id": "full"}, outbox=outbox)
    mast = fleet.mast("full", config, f"127.0.0.1:{uplink.port}")
    mast.launch()
    eventually(lambda: mast.status_now().get("confirmed"))
    uplink.close()
    mast.spilling()
    disk.fill()
    eventually(lambda: mast.status()["outbox_problem"])
    uplink.open()
    fleet.fails("full", "outbox-in-memory")


def let_an_outbox_grow(fleet: Fleet, kafka: str) -> None:
    """Ten days' reports, as daemons make them, of an outbox that is full in eight."""
    producer = Producer({"bootstrap.servers": kafka})
    now = datetime.now(UTC)
    for day in range(10):
        share = {"outbox_bytes": (day + 1) << 26, "outbox_max_bytes": 1 << 30}
        at = now - timedelta(days=9 - day, minutes=1)
        producer.produce(EVENTS_TOPIC, event("grows", day + 1, "report", at, **share), b"grows")
    fleet.fails("grows", "outbox-filling")
    assert producer.flush(20) == 0


def report_what_was_sent(fleet: Fleet, mast: GatewayProcess) -> None:
    """Once the daemon has counted it, which it does once a minute."""
    eventually(lambda: mast.status_now().get("bytes_sent"), 100, until=lambda sent: (sent or 0) > 5e3)
    fleet.fails("sends", "sends-much")
    done = fieldgate("service", "report", "-c", mast.path)
    assert done.returncode == 0, done.stderr
    assert '"bytes_sent":' in done.stdout
