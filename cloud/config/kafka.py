"""``[kafka]``: the servers, and librdkafka's properties as librdkafka takes them and as Java's clients do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from cloud.config.secret import Secret, UnreadableError
from cloud.values import server_list, topic_prefix

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_JAVA_KEY: Final = ("-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----")


def named(alias: str, default: Any = None) -> Any:
    """A field that has another name in the file."""
    return Field(default=default, validation_alias=alias)


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


class KafkaConfig(BaseModel):
    """The connection to Kafka. Aliases with a dot are librdkafka's names, in ``[kafka.properties]``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)

    servers: Annotated[str, AfterValidator(server_list)] = named("bootstrap_servers", "127.0.0.1:9092")
    prefix: Annotated[str, AfterValidator(topic_prefix)] = named("prefix", "")
    protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], BeforeValidator(_upper)
    ] = named("security.protocol", "PLAINTEXT")
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = named("sasl.mechanism")
    username: str | None = named("sasl.username")
    password: Secret | None = named("sasl.password")
    ca: Secret | None = named("ssl.ca.location")
    certificate: Secret | None = named("ssl.certificate.location")
    key: Secret | None = named("ssl.key.location")
    key_password: Secret | None = named("ssl.key.password")
    host_check: Literal["https", "none"] | None = named("ssl.endpoint.identification.algorithm")

    def problems(self) -> Iterator[tuple[str, str]]:
        """What doesn't go together: the key, and what to write."""
        given = {
            alias for name, field in type(self).model_fields.items()
            if (alias := str(field.validation_alias)) and getattr(self, name) != field.default
        }  # fmt: skip
        login = self.protocol.startswith("SASL_")
        for name in sorted(given):
            if name.startswith("sasl.") and not login:
                right = "SASL_SSL or SASL_PLAINTEXT"
            elif name.startswith("ssl.") and not self.protocol.endswith("SSL"):
                right = "SSL or SASL_SSL"
            else:
                continue
            yield name, f"has no effect with security.protocol {self.protocol}: that must be {right}"
        if login and self.mechanism is None:
            yield "security.protocol", "needs sasl.mechanism too, such as SCRAM-SHA-512"
        needs = [
            ("ssl.certificate.location", "ssl.key.location"),
            ("ssl.key.location", "ssl.certificate.location"),
            ("ssl.key.password", "ssl.key.location"),
        ]
        if self.mechanism in _LOGIN_MODULES:
            needs += [("sasl.mechanism", "sasl.username"), ("sasl.mechanism", "sasl.password")]
        for name, other in needs:
            if name in given and other not in given:
                yield name, f"needs {other} too"

    def properties(self) -> dict[str, str]:
        """For librdkafka, without servers and prefix. Raises UnreadableError."""
        found: dict[str, str] = {}
        for name, field in type(self).model_fields.items():
            value, alias = getattr(self, name), str(field.validation_alias)
            if isinstance(value, Secret):
                found[alias] = value.name if alias.endswith(".location") else value.reveal()
            elif value != field.default:
                found[alias] = value
        return {name: value for name, value in found.items() if name not in ("bootstrap_servers", "prefix")}

    def java_options(self) -> dict[str, str]:
        """For Java's clients, files and secrets by their content, as executors may not have the files.

        Raises UnreadableError.
        """
        options = {"bootstrap.servers": self.servers, "security.protocol": self.protocol}
        if self.mechanism is not None:
            options["sasl.mechanism"] = self.mechanism
        if self.mechanism in _LOGIN_MODULES and self.username is not None and self.password is not None:
            options["sasl.jaas.config"] = (
                f"{_LOGIN_MODULES[self.mechanism]} required "
                f"username={_quoted(self.username)} password={_quoted(self.password.reveal())};"
            )
        if self.ca is not None:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.ca.reveal()}
        if self.key is not None and self.certificate is not None:
            key = self.key.reveal()
            if not any(each in key for each in _JAVA_KEY):
                pkcs8 = "is no PKCS#8 key, which Java needs: openssl pkcs8 -topk8 -in … -out …"
                raise UnreadableError(self.key, f"{self.key.name} {pkcs8}")
            options |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": self.certificate.reveal(),
                "ssl.keystore.key": key,
            }
        if self.key_password is not None:
            options["ssl.key.password"] = self.key_password.reveal()
        if self.host_check is not None:
            options["ssl.endpoint.identification.algorithm"] = self.host_check.replace("none", "")
        return options


def _quoted(text: str) -> str:
    """A value of a JAAS file, whose strings are those of Java's StreamTokenizer."""
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(plain, escaped)
    return f'"{text}"'
