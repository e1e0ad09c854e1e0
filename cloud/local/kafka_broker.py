"""A Kafka broker of one's own on this machine, for the demo and the tests: one KRaft node, loopback only.

Data, configuration and log live in one directory; starting again on it keeps the topics. It is not for
production: replication is 1 and nothing is authenticated.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import uuid
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from cloud.errors import CloudError
from cloud.local.process import Child, LocalServer, free_port, shared_classes

_JARS_VARIABLE: Final = "FIELDGATE_JARS"
_FORMAT_TIMEOUT_S: Final = 60.0
_ANSWER_TIMEOUT_S: Final = 2.0
_SETTINGS: Final = Path(__file__).with_name("kafka_broker.properties")
_LOGGING: Final = Path(__file__).with_name("kafka_broker.log4j2.properties")


class BrokerError(CloudError):
    """The local broker can't be started; the message names the remedy."""


def jar_directory(name: str) -> Path:
    """The directory of jars ``name`` (kafka, spark): in $FIELDGATE_JARS, else in .jars beside the packages.

    Raises BrokerError when there are none.
    """
    root = os.environ.get(_JARS_VARIABLE)
    directory = (Path(root) if root else Path(__file__).resolve().parents[2] / ".jars") / name
    if not any(directory.glob("*.jar")):
        raise BrokerError(
            f"no jars in {directory}: run `make setup`, "
            f"or set {_JARS_VARIABLE} to the directory that holds {name}/"
        )
    return directory


class LocalBroker(LocalServer):
    """One broker process; topics and their records stay across a restart."""

    name = "Kafka"
    error = BrokerError
    start_timeout_s = 60.0
    stop_timeout_s = 15.0

    def __init__(
        self, directory: Path, *, port: int | None = None, controller_port: int | None = None
    ) -> None:
        super().__init__(directory, port, "kafka.log")
        self.controller_port = controller_port or free_port()

    @property
    def bootstrap_servers(self) -> str:
        """What clients connect to."""
        return f"127.0.0.1:{self.port}"

    def _spawn(self) -> Child:
        """Start the process, formatting new storage first."""
        if shutil.which("java") is None:
            raise BrokerError("java is not installed: run `make setup`")
        jars = jar_directory("kafka")
        properties = self._configure()
        if not (self.directory / "data" / "meta.properties").exists():
            self._format(jars, properties)
        command = self._java(jars, "-Xmx512m", "kafka.Kafka", str(properties))
        return Child(command, self.log, parent_death_signal=signal.SIGKILL)

    def answers(self) -> bool:
        """True when the broker gives its metadata to a client."""
        if not super().answers():
            return False
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        try:
            return bool(client.list_topics(timeout=_ANSWER_TIMEOUT_S).brokers)
        except KafkaException:
            return False

    def _configure(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        listens = f"PLAINTEXT://127.0.0.1:{self.port}"
        controller = f"127.0.0.1:{self.controller_port}"
        properties = self.directory / "server.properties"
        properties.write_text(
            f"{_SETTINGS.read_text()}"
            f"listeners={listens},CONTROLLER://{controller}\nadvertised.listeners={listens}\n"
            f"controller.quorum.voters=1@{controller}\nlog.dirs={self.directory / 'data'}\n"
        )
        return properties

    def _java(self, jars: Path, *arguments: str) -> tuple[str, ...]:
        # The JIT's first stage only: on two cores the second one costs more than it ever gives back here.
        quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        log4j = f"-Dlog4j2.configurationFile={_LOGGING}"
        return ("java", "-cp", f"{jars}/*", log4j, *quick, *shared_classes(jars), *arguments)

    def _format(self, jars: Path, properties: Path) -> None:
        # Joined by "=": an id that begins with a dash would be taken for an option.
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = (
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster_id}",
            "--config",
            str(properties),
        )
        try:
            done = subprocess.run(
                self._java(jars, *tool),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_FORMAT_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise BrokerError(f"formatting Kafka's storage took over {_FORMAT_TIMEOUT_S:g} s") from error
        if done.returncode:
            raise BrokerError(f"formatting Kafka's storage failed:\n{done.stdout}{done.stderr}".rstrip())
