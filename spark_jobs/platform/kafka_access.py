"""Whether Kafka lets the jobs in: one clear error, in place of retries without end or of no rows at all.

Spark tries a refused login again for half a minute, waits for minutes where a listener wants TLS, and takes
topics that it may not see for topics that aren't there yet.
"""

from __future__ import annotations

import re
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from cloud.kafka.listener_probe import listener_fault
from cloud.wire.quantities import QUANTITIES
from cloud.wire.reading_records import READING_TOPIC_PREFIX
from spark_jobs.platform.errors import JobError
from spark_jobs.platform.java import java_of
from spark_jobs.platform.settings import Settings

_PATIENCE_MS: Final = "10000"
_NAMED: Final = 8
"""Of forbidden topics: what mends one mends all, mostly."""
_REFUSED: Final = re.compile(
    r"org\.apache\.kafka\.common\.errors\.((?:Sasl|Ssl|UnsupportedSasl)\w*Exception): ([^\n]*)"
)
_MISSING: Final = re.compile(r"Topic (\S+) not present in metadata after")
_TOPICS: Final = re.compile(r"Not authorized to access topics: \[([^\]\n]*)\]")


class KafkaAccessError(JobError):
    """Kafka refuses the jobs; the message has what to mend."""


def refusal_in(text: str) -> str | None:
    """What Kafka refuses, in a failure's text with its causes; None where it is another failure."""
    if forbidden := _TOPICS.search(text):
        return _forbidden(forbidden[1].split(", "))
    if missing := _MISSING.search(text):
        return f"Kafka has no topic {missing[1]}: fieldgate provision topics makes it"
    refused = _REFUSED.search(text)
    if refused is None:
        return None
    exception, message = refused.groups()
    if "Sasl" in exception:
        return f"Kafka refuses the login: {message}; see sasl.mechanism, sasl.username and sasl.password"
    return f"no TLS connection with Kafka: {message}; see ssl.ca.location and the certificates"


def require_access(
    spark: SparkSession, settings: Settings, pattern: str, *, running: bool = False
) -> dict[str, str]:
    """Tries the login, and which of the topics that a Java pattern matches may be read; their ids by name.

    Raises KafkaAccessError, CloudError. A Kafka that isn't reached is no error: queries wait for it. While a
    query is ``running`` one that is slow to answer isn't taken for a listener of another kind.
    """
    java = java_of(spark)
    patience = dict.fromkeys(("request.timeout.ms", "default.api.timeout.ms"), _PATIENCE_MS)
    try:
        admin = java.org.apache.kafka.clients.admin.AdminClient.create(settings.kafka_properties() | patience)
    except Py4JJavaError as error:
        reason = _causes(error)[-1]
        pbes1 = ": encrypt the key with openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES" if "PBES2" in reason else ""
        raise KafkaAccessError(f"Kafka's client can't be made: {reason}{pbes1}") from None
    try:
        return _require_topics(java, admin, settings, pattern)
    except Py4JJavaError as error:
        properties = {} if settings.kafka is None else settings.kafka.properties()
        causes = "\n".join(_causes(error))
        fault = None
        if "Ssl" in causes or not (running or "Sasl" in causes):
            # Java has one text for all wrong certificates, and none for a listener of another kind.
            fault = listener_fault(settings.bootstrap_servers, properties)
        refusal = fault or refusal_in(causes)
        if refusal is not None:
            raise KafkaAccessError(f"{refusal} (Kafka at {settings.bootstrap_servers})") from None
        return {}
    finally:
        admin.close()


def _require_topics(java: Any, admin: Any, settings: Settings, pattern: str) -> dict[str, str]:
    matches = java.java.util.regex.Pattern.compile(pattern).asMatchPredicate().test
    seen = [name for name in admin.listTopics().names().get() if matches(name)]
    described = java.org.apache.kafka.clients.admin.DescribeTopicsOptions().includeAuthorizedOperations(True)
    if seen:
        answers = admin.describeTopics(seen, described).allTopicNames().get()
        read = java.org.apache.kafka.common.acl.AclOperation.READ
        blind = sorted(
            name for name in seen
            if (may := answers.get(name).authorizedOperations()) is not None and not may.contains(read)
        )  # fmt: skip
        if blind:
            raise KafkaAccessError(_forbidden(blind))
        return {name: str(answers.get(name).topicId()) for name in seen}
    # None that may be seen: those of the pattern that are known by name are not there yet, or all forbidden.
    known = [f"{settings.prefix}{READING_TOPIC_PREFIX}{quantity}" for quantity in QUANTITIES]
    known += [settings.dead_letter_topic, settings.runs_topic, settings.channels_topic]
    named = list(filter(matches, known))
    futures = admin.describeTopics(named).topicNameValues()
    if named and all(_fails_with(futures.get(name), "TopicAuthorizationException") for name in named):
        raise KafkaAccessError(_forbidden(named))
    return {}


def _fails_with(future: Any, exception: str) -> bool:
    try:
        future.get()
    except Py4JJavaError as error:
        return any(exception in cause for cause in _causes(error))
    return False


def _forbidden(topics: list[str]) -> str:
    named = ", ".join(topics[:_NAMED]) + (f" and {len(topics) - _NAMED} more" if len(topics) > _NAMED else "")
    writes = "of alerts, commands, lake.* and streams' topics Write"
    return f"Kafka forbids the jobs' user {named}: allow Describe and Read, {writes}"


def _causes(error: Py4JJavaError) -> list[str]:
    """A Java exception and its causes, one line each."""
    found = []
    cause = error.java_exception
    while cause is not None:
        found.append(str(cause.toString()))
        cause = cause.getCause()
    return found
