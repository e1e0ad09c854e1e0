"""``fieldgate provision users`` and ``provision gateway``: Kafka's users, their permissions and quotas.

What is missing is made; what is there stays, but for a password with ``--rotate`` and a gateway's whole
access with ``--revoke``. Doing it again changes nothing. Kafka's own tool sets
quotas: its commands are shown.

Passwords are sent to Kafka over the connection that the cloud's config describes, and kept nowhere.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined] # no __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from cloud.command_line import CONFIG_PATH, OK, USAGE, CommandError, fail, os_problem
from cloud.config import CloudConfig, load
from cloud.errors import CloudError
from cloud.kafka import roles
from cloud.kafka.cluster_check import NoAnswer, answer_of, open_admin
from cloud.kafka.roles import Permission, within
from cloud.operate.access_file import Access
from cloud.operate.identity import GatewayIdentity
from cloud.operate.provision import Needs
from cloud.values import server_list
from cloud.whole_files import write_secret
from cloud.wire.reading_records import GATEWAY_ID, RUN_ID

_KINDS: Final = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "cluster": ResourceType.BROKER}
_ITERATIONS: Final = 8192
_OPERATOR: Final = "use an operator's login"
_REMEDIES: Final = {
    KafkaError.SECURITY_DISABLED: "it has no authorizer: set authorizer.class.name on the brokers",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _OPERATOR,
}


@dataclass(frozen=True, slots=True)
class Difference:
    """What a user lacks, and what it has beside; ``known`` is whether it has a SCRAM-SHA-512 password."""

    missing: tuple[Permission, ...]
    surplus: tuple[str, ...]
    known: bool


class Users:
    """The users of one cluster. Each call raises CloudError with Kafka's reason."""

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, str], timeout_s: float) -> None:
        try:
            self._admin, _ = open_admin(bootstrap_servers, properties, timeout_s)
        except NoAnswer as error:
            raise CloudError(f"no answer from Kafka at {bootstrap_servers}: {error}") from error
        self._where, self._timeout_s = bootstrap_servers, timeout_s
        # Without these rights librdkafka 2.16 gives no permissions instead of a refusal, and a request for
        # passwords ends this process.
        described = self._admin.describe_cluster(include_authorized_operations=True)
        rights = self._result(described).authorized_operations or ()
        if not {AclOperation.DESCRIBE, AclOperation.ALTER} <= set(rights):
            raise CloudError(f"Kafka at {self._where} doesn't let us manage users: {_OPERATOR}")

    def compare(self, user: str, wanted: Iterable[Permission]) -> Difference:
        """A user as it is with how it should be."""
        there = set(self._result(self._admin.describe_acls(_everything_of(user))))
        needed = {_binding(user, each): each for each in wanted}
        missing = sorted(permission for binding, permission in needed.items() if binding not in there)
        return Difference(tuple(missing), tuple(sorted(map(_text, there - set(needed)))), self._known(user))

    def allow(self, user: str, permissions: Iterable[Permission]) -> None:
        """Add permissions."""
        if bindings := [_binding(user, each) for each in permissions]:
            self._results(self._admin.create_acls(bindings))

    def set_password(self, user: str, password: str) -> None:
        """Make a user who logs in with a password, or replace the password.

        Connections that stand stay, until the broker requires another login (``connections.max.reauth.ms``).
        """
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        change = UserScramCredentialUpsertion(user, info, password.encode())
        self._results(self._admin.alter_user_scram_credentials([change]))

    def revoke(self, user: str) -> None:
        """Take all permissions, which counts at once, and the password."""
        self._results(self._admin.delete_acls([_everything_of(user)]))
        if self._known(user):
            gone = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512)
            self._results(self._admin.alter_user_scram_credentials([gone]))

    def _known(self, user: str) -> bool:
        answer: Any = self._admin.describe_user_scram_credentials([user])
        try:
            infos = answer_of(answer[user], self._timeout_s).scram_credential_infos
        except KafkaException as error:
            if error.args[0].code() == KafkaError.RESOURCE_NOT_FOUND:
                return False
            raise self._refused(error) from error
        return any(each.mechanism == ScramMechanism.SCRAM_SHA_512 for each in infos)

    def _results(self, answers: Mapping[Any, Future[Any]]) -> None:
        for answer in answers.values():
            self._result(answer)

    def _result(self, answer: Future[Any]) -> Any:
        try:
            return answer_of(answer, self._timeout_s)
        except KafkaException as error:
            raise self._refused(error) from error

    def _refused(self, error: KafkaException) -> CloudError:
        reason = error.args[0]
        remedy = _REMEDIES.get(reason.code(), "nothing else was changed")
        return CloudError(f"Kafka at {self._where} refuses: {reason.str()}: {remedy}")


def _binding(user: str, permission: Permission) -> AclBinding:
    begins = permission.name.endswith("*") and permission.name != "*"
    return AclBinding(
        _KINDS[permission.kind],
        permission.name[:-1] if begins else permission.name,
        ResourcePatternType.PREFIXED if begins else ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[permission.operation],
        AclPermissionType.ALLOW,
    )


def _everything_of(user: str) -> AclBindingFilter:
    anything: Any = None
    return AclBindingFilter(
        ResourceType.ANY, anything, ResourcePatternType.ANY, f"User:{user}", anything, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip


def _text(binding: AclBinding) -> str:
    """A binding as a permission is shown; with what a permission doesn't have, where it has that."""
    kind = next((name for name, each in _KINDS.items() if each == binding.restype), "resource")
    operation = AclOperation(binding.operation).name
    name = binding.name + ("*" if binding.resource_pattern_type == ResourcePatternType.PREFIXED else "")
    more = "" if binding.host == "*" else f" from {binding.host}"
    denied = "" if binding.permission_type == AclPermissionType.ALLOW else "not "
    return f"{denied}{Permission(kind, name, operation)}{more}"  # type: ignore[arg-type] # one of _KINDS


_PASSWORD_BYTES: Final = 24


def provision_users(arguments: argparse.Namespace) -> int:
    """``provision users``. Raises CloudError, ConfigError, CommandError."""
    config = load(arguments.cloud)
    users = _open(config, arguments)
    fresh: dict[str, str] = {}
    everyone = _wanted(config)
    if unknown := next((name for name in arguments.rotate if name not in everyone), None):
        return fail(f"--rotate {unknown}: {arguments.cloud} has no such name in [users]", USAGE)
    for name, wanted in everyone.items():
        difference = users.compare(name, wanted)
        if name in arguments.rotate or not (difference.known or arguments.certificates):
            fresh[name] = secrets.token_urlsafe(_PASSWORD_BYTES)
            print(f"password  {name}")
        _show(name, difference)
        if not arguments.dry_run:
            users.allow(name, difference.missing)
    if fresh and not arguments.dry_run:
        _set(users, fresh, arguments.passwords)
    _show_quotas(config)
    return OK


def provision_gateway(arguments: argparse.Namespace, needs: Needs | None) -> int:
    """``provision gateway``. Raises CloudError, ConfigError, CommandError."""
    gateway, config = arguments.gateway, load(arguments.cloud)
    if GATEWAY_ID.fullmatch(gateway) is None:
        return fail(f"{gateway} is no gateway's id: a-z, 0-9 and -, at most 63", USAGE)
    if (arguments.certificate is None) != (arguments.key is None):
        return fail("--certificate and --key go together", USAGE)
    user, output = arguments.user or gateway, arguments.output or Path(f"{gateway}.access.toml")
    identity = GatewayIdentity(config, gateway, arguments.timeout, dry_run=arguments.dry_run)
    if (run := arguments.accept_run) is not None and RUN_ID.fullmatch(run) is None:
        return fail(f"{run} is no run's id: letters, digits and -, at most 64", USAGE)
    if arguments.enforce or arguments.no_enforce or run:
        identity.change(accepted=run, enforce=arguments.enforce)
        return OK
    users = _open(config, arguments)
    if arguments.revoke:
        if not arguments.dry_run:
            users.revoke(user)
        identity.revoke()
        print(f"{'would revoke' if arguments.dry_run else 'revoked'}  {user}")
        return OK
    difference = users.compare(user, within(config.kafka.prefix, _of_gateway(arguments, needs)))
    _show(user, difference)
    by_certificate = arguments.certificate is not None
    makes = by_certificate or arguments.rotate or not difference.known
    if arguments.dry_run:
        if makes:
            identity.hand_out(another=arguments.rotate)
        print(f"{'would write' if makes else 'keeps its password'}  {output if makes else user}")
        return OK
    users.allow(user, difference.missing)
    if not makes:
        print(f"keeps its password  {user}: --rotate makes another")
        return OK
    password = None if by_certificate else secrets.token_urlsafe(_PASSWORD_BYTES)
    access = _access(gateway, user, config, arguments, password)
    # First: what the mast has and the jobs don't know would prove nothing.
    if (key := identity.hand_out(another=arguments.rotate)) is not None:
        access = replace(access, identity_key=key)
    # Before Kafka: a password that it has and nobody else would lock the mast out.
    access.write(output)
    if password is not None:
        try:
            users.set_password(user, password)
        except CloudError as error:
            raise CommandError(
                f"{error}: whether Kafka has {user}'s new password isn't known. {output} stays: then it is "
                "the only one. Where the mast still logs in, do it again with --rotate and -o another file"
            ) from error
    print(f"written  {output}")
    print(f"On the mast: sudo fieldgate init --access {output.name} -o {CONFIG_PATH}")
    return OK


def _open(config: CloudConfig, arguments: argparse.Namespace) -> Users:
    return Users(config.kafka.servers, config.kafka.properties(), arguments.timeout)


def _wanted(config: CloudConfig) -> dict[str, frozenset[Permission]]:
    """The permissions of each user, who may have several roles."""
    users, prefix = config.users, config.kafka.prefix
    derived = [stream.topic for stream in config.streams]
    found = [(name, roles.operator()) for name in users.operators]
    found += [(name, roles.job(users.topics, derived)) for name in users.jobs]
    found += [(name, roles.analyst(name, (*users.topics, *derived))) for name in users.analysts]
    wanted: dict[str, frozenset[Permission]] = {}
    for name, permissions in found:
        wanted[name] = wanted.get(name, frozenset()) | within(prefix, permissions)
    return wanted


def _show(user: str, difference: Difference) -> None:
    for permission in difference.missing:
        print(f"allow     {user}: {permission}")
    for text in difference.surplus:
        print(f"surplus   {user}: {text}; it stays: kafka-acls --remove takes it")


def _set(users: Users, fresh: dict[str, str], path: Path | None) -> None:
    """Set new passwords; they stand in the file before Kafka has them."""
    lines = "".join(f"{name} {password}\n" for name, password in fresh.items())
    if path is not None:
        try:
            write_secret(path, lines)
        except OSError as error:
            raise CommandError(os_problem(error, path, "name another file")) from error
    try:
        for name, password in fresh.items():
            users.set_password(name, password)
    finally:
        # After an error too: Kafka may have some of them.
        if path is None:
            sys.stdout.write(f"\nShown once; write them down:\n{lines}")


def _show_quotas(config: CloudConfig) -> None:
    """Print a command of Kafka's own tool for each quota: librdkafka has no request that sets one."""
    rates = {"live": config.users.live_bytes_s, "backlog": config.users.backlog_bytes_s}
    for client, rate in rates.items():
        if rate is not None:
            print(
                f"quota     kafka-configs --bootstrap-server {config.kafka.servers} "
                "--command-config operator.properties --alter --entity-type users --entity-default "
                f"--entity-type clients --entity-name {client} --add-config producer_byte_rate={rate}"
            )


def _of_gateway(arguments: argparse.Namespace, needs: Needs | None) -> frozenset[Permission]:
    """What a gateway needs by its config; of topics with placeholders only how they begin is known."""
    if needs is None:
        return roles.gateway()
    begins = {template.partition("{")[0] for template in needs.open_templates}
    if "" in begins:
        raise CommandError(
            f"{arguments.config}: a forward's topic begins with a placeholder: give it a prefix of its own"
        )
    topics = needs.topics | {f"{each}*" for each in begins}
    return roles.gateway(topics, arguments.gateway, needs.downlinks)


def _access(
    gateway: str, user: str, config: CloudConfig, arguments: argparse.Namespace, password: str | None
) -> Access:
    """What the mast needs. Raises CommandError, UnreadableError."""
    kafka = config.kafka
    tls = kafka.login.protocol.endswith("SSL")
    try:
        servers = server_list(arguments.bootstrap_servers or kafka.servers)
    except ValueError as error:
        raise CommandError(f"--bootstrap-servers {error}") from error
    authority = kafka.login.ca
    files = {"ssl.ca.location": authority.reveal()} if tls and authority is not None else {}
    if password is None:
        try:
            files["ssl.certificate.location"] = arguments.certificate.read_text()
            files["ssl.key.location"] = arguments.key.read_text()
        except (OSError, UnicodeError) as error:
            raise CommandError(f"the certificate and its key can't be read: {error}") from error
        return Access(gateway, servers, {"security.protocol": "SSL"}, files, prefix=kafka.prefix)
    protocol = "SASL_SSL" if tls else "SASL_PLAINTEXT"
    login = {"security.protocol": protocol, "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": user}
    return Access(gateway, servers, login, {"sasl.password": password, **files}, prefix=kafka.prefix)
