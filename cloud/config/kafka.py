"""``[kafka]``: the servers, and librdkafka's properties as librdkafka takes them and as Java's clients do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cloud.config.secret import KINDS, ContentKey, Secret, SecretKey, UnreadableError
from cloud.toml_models import Table
from cloud.toml_problems import KeyPath, WrongTable
from cloud.toml_source import by_dotted_name
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


class Login(Table):
    """``[kafka.properties]``: aliases are librdkafka's names."""

    protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], BeforeValidator(_upper)
    ] = named("security.protocol", "PLAINTEXT")
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = named("sasl.mechanism")
    username: str | None = named("sasl.username")
    password: SecretKey | None = named("sasl.password")
    ca: ContentKey | None = named("ssl.ca.location")
    certificate: ContentKey | None = named("ssl.certificate.location")
    key: ContentKey | None = named("ssl.key.location")
    key_password: SecretKey | None = named("ssl.key.password")
    host_check: Literal["https", "none"] | None = named("ssl.endpoint.identification.algorithm")

    @model_validator(mode="after")
    def _together(self) -> Self:
        problems = tuple(self._problems())
        if problems:
            raise WrongTable(*problems)
        return self

    def given(self) -> dict[str, Any]:
        """What isn't as by default, by librdkafka's names."""
        return {
            str(field.validation_alias): own
            for name, field in type(self).model_fields.items()
            if (own := getattr(self, name)) != field.default
        }

    def _problems(self) -> Iterator[tuple[KeyPath, str]]:
        """What doesn't go together: the key, and what to write."""
        given = self.given()
        login = self.protocol.startswith("SASL_")
        for name in sorted(given):
            if name.startswith("sasl.") and not login:
                right = "SASL_SSL or SASL_PLAINTEXT"
            elif name.startswith("ssl.") and not self.protocol.endswith("SSL"):
                right = "SSL or SASL_SSL"
            else:
                continue
            yield (name,), f"has no effect with security.protocol {self.protocol}: that must be {right}"
        if login and self.mechanism is None:
            yield ("security.protocol",), "needs sasl.mechanism too, such as SCRAM-SHA-512"
        needs = [
            ("ssl.certificate.location", "ssl.key.location"),
            ("ssl.key.location", "ssl.certificate.location"),
            ("ssl.key.password", "ssl.key.location"),
        ]
        if self.mechanism in _LOGIN_MODULES:
            needs += [("sasl.mechanism", "sasl.username"), ("sasl.mechanism", "sasl.password")]
        for name, other in needs:
            if name in given and other not in given:
                yield (name,), f"needs {other} too"


class KafkaConfig(Table):
    """``[kafka]``: the connection to Kafka."""

    servers: Annotated[str, AfterValidator(server_list)] = named("bootstrap_servers", "127.0.0.1:9092")
    prefix: Annotated[str, AfterValidator(topic_prefix)] = ""
    login: Annotated[Login, BeforeValidator(lambda given: by_dotted_name(given, KINDS))] = named(
        "properties", Login()
    )

    def properties(self) -> dict[str, str]:
        """For librdkafka, without servers and prefix. Raises UnreadableError."""
        given = self.login.given()
        for name, value in given.items():
            if isinstance(value, Secret):
                given[name] = value.name if name.endswith(".location") else value.reveal()
        return given

    def java_options(self) -> dict[str, str]:
        """For Java's clients, files and secrets by their content, as executors may not have the files.

        Raises UnreadableError.
        """
        login = self.login
        options = {"bootstrap.servers": self.servers, "security.protocol": login.protocol}
        if login.mechanism is not None:
            options["sasl.mechanism"] = login.mechanism
        if login.mechanism in _LOGIN_MODULES and login.username is not None and login.password is not None:
            options["sasl.jaas.config"] = (
                f"{_LOGIN_MODULES[login.mechanism]} required "
                f"username={_quoted(login.username)} password={_quoted(login.password.reveal())};"
            )
        if login.ca is not None:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": login.ca.reveal()}
        if login.key is not None and login.certificate is not None:
            key = login.key.reveal()
            if not any(each in key for each in _JAVA_KEY):
                pkcs8 = "is no PKCS#8 key, which Java needs: openssl pkcs8 -topk8 -in … -out …"
                raise UnreadableError(login.key, f"{login.key.name} {pkcs8}")
            options |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": login.certificate.reveal(),
                "ssl.keystore.key": key,
            }
        if login.key_password is not None:
            options["ssl.key.password"] = login.key_password.reveal()
        if login.host_check is not None:
            options["ssl.endpoint.identification.algorithm"] = login.host_check.replace("none", "")
        return options


def _quoted(text: str) -> str:
    """A value of a JAAS file, whose strings are those of Java's StreamTokenizer."""
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(plain, escaped)
    return f'"{text}"'
