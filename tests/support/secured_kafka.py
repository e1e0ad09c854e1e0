"""A Kafka with logins: SCRAM over TLS, mTLS, and an authorizer that denies by default.

Beside these listeners it has one without a login, whose user may do everything: for the test itself.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from cloud.local.kafka_broker import LocalBroker, jar_directory
from cloud.local.process import free_port

_SECURITY: Final = """\
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SCRAM://127.0.0.1:{scram},\
MTLS://127.0.0.1:{mtls}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SCRAM://127.0.0.1:{scram},MTLS://127.0.0.1:{mtls}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SCRAM:SASL_SSL,MTLS:SSL
inter.broker.listener.name=PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location={certificates}/broker.both
ssl.allow.dn.changes=true
ssl.allow.san.changes=true
ssl.truststore.type=PEM
ssl.truststore.location={certificates}/ca.pem
ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/,DEFAULT
listener.name.mtls.ssl.client.auth=required
listener.name.scram.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.scram.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


def make_certificates(directory: Path) -> None:
    """Two authorities (``ca``, ``other``), and of the first: a broker's, users ``jobs`` and ``mast-07``."""
    directory.mkdir(parents=True)

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=directory)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for name in ("ca", "other"):
        openssl("req", "-x509", *new_key, "-subj", f"/CN={name}", "-days", "2",
                "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip
    for name in ("broker", "jobs", "mast-07"):
        openssl("req", "-x509", *new_key, "-subj", f"/CN={name}", "-days", "2", "-CA", "ca.pem",
                "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1",
                "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip
    (directory / "broker.both").write_text(
        "".join((directory / f"broker.{end}").read_text() for end in ("key", "pem"))
    )
    openssl("pkcs8", "-topk8", "-in", "jobs.key", "-out", "jobs.locked.key",
            "-passout", "pass:key-sesame", "-v1", "PBE-SHA1-3DES")  # fmt: skip


class SecuredBroker(LocalBroker):
    """``bootstrap_servers`` is the listener without a login; ``scram`` and ``mtls`` are the others."""

    start_timeout_s = 150.0

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.certificates = self.directory / "certificates"
        self._ports = free_port(), free_port()
        self.scram, self.mtls = (f"127.0.0.1:{port}" for port in self._ports)

    def _configure(self) -> Path:
        properties = super()._configure()
        if not self.certificates.exists():
            make_certificates(self.certificates)
        scram, mtls = self._ports
        with properties.open("a") as file:
            file.write(
                _SECURITY.format(
                    port=self.port, controller=self.controller_port, scram=scram, mtls=mtls,
                    certificates=self.certificates,
                )
            )  # fmt: skip
        return properties

    def set_password(self, user: str, password: str) -> None:
        """Make a SCRAM user, or change the password."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(user, info, password.encode())
        self._each(lambda admin: admin.alter_user_scram_credentials([change]))

    def allow(self, user: str, *operations: AclOperation, topic: str = "*") -> None:
        """Allow operations on a topic, all of them by default."""
        self._each(lambda admin: admin.create_acls([_acl(user, each, topic) for each in operations]))

    def forbid(self, user: str) -> None:
        """Take all of a user's permissions."""
        anything: Any = None
        everything = AclBindingFilter(
            ResourceType.ANY, anything, ResourcePatternType.ANY, f"User:{user}", anything, AclOperation.ANY,
            AclPermissionType.ANY,
        )  # fmt: skip
        self._each(lambda admin: admin.delete_acls([everything]))

    def kafka_configs(self, *arguments: str) -> str:
        """Run Kafka's own ``kafka-configs``."""
        command = self._java(jar_directory("kafka"), "kafka.admin.ConfigCommand", *arguments)
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout

    def set_rate(self, client: str, rate: int) -> None:
        """Set the quota of every user's clients of one id, in bytes a second."""
        self.kafka_configs(
            "--bootstrap-server", self.bootstrap_servers, "--alter", "--entity-type", "users",
            "--entity-default", "--entity-type", "clients", "--entity-name", client,
            "--add-config", f"producer_byte_rate={rate}",
        )  # fmt: skip

    def _each(self, request: Callable[[AdminClient], Mapping[Any, Future[Any]]]) -> None:
        # Named, or it would be gone before the broker answers.
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        for done in request(admin).values():
            done.result(timeout=20)


def _acl(user: str, operation: AclOperation, topic: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*", operation,
        AclPermissionType.ALLOW,
    )  # fmt: skip
