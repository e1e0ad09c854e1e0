"""Kafka's refusals in the text of a failure."""

from __future__ import annotations

import pytest

from spark_jobs.errors import JobError
from spark_jobs.kafka_access import refusal_in
from spark_jobs.streaming.supervisor import reason_of

ERRORS = "Caused by: org.apache.kafka.common.errors."


@pytest.mark.parametrize(
    ("cause", "refusal"),
    [
        ("TopicAuthorizationException: Not authorized to access topics: [mqtt.co2, mqtt.raw]",
         "Kafka forbids the jobs' user mqtt.co2, mqtt.raw: allow Describe and Read, of alerts and commands "
         "Write"),
        ("SaslAuthenticationException: Authentication failed",
         "Kafka refuses the login: Authentication failed; see sasl.mechanism, sasl.username and "
         "sasl.password"),
        ("UnsupportedSaslMechanismException: PLAIN not enabled",
         "Kafka refuses the login: PLAIN not enabled; see sasl.mechanism, sasl.username and "
         "sasl.password"),
        ("SslAuthenticationException: SSL handshake failed",
         "no TLS connection with Kafka: SSL handshake failed; see ssl.ca.location and the certificates"),
        ("TimeoutException: Timed out waiting for a node assignment", None),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line(cause: str, refusal: str | None) -> None:
    failure = (
        f"[STREAM_FAILED] Query failed\n{ERRORS}{cause}\n\tat java.base/java.lang.Thread.run(Thread.java:840)"
    )
    assert refusal_in(failure) == refusal
    if refusal is not None:
        assert reason_of(RuntimeError(failure)) == refusal
    assert reason_of(JobError("as it is")) == "as it is"
