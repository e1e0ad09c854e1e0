"""Users of Kafka and their permissions: what is missing is found and added; nothing is taken but on request.

Passwords are sent to Kafka over the connection that the properties describe, and kept nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
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

from cloud.errors import CloudError
from cloud.kafka.cluster_check import NoAnswer, answer_of, open_admin
from cloud.kafka.roles import Permission

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
