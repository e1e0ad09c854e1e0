"""Kafka's refusals in a failure's text and to a running query. Real ones: test_secured_kafka.py."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql import DataFrame

from spark_jobs.platform.errors import JobError
from spark_jobs.platform.kafka_access import KafkaAccessError, refusal_in
from spark_jobs.platform.settings import parse_run
from spark_jobs.streaming.query import Job, Source
from spark_jobs.streaming.supervisor import Supervised, reason_of

ERRORS = "Caused by: org.apache.kafka.common.errors."


@pytest.mark.parametrize(
    ("cause", "refusal"),
    [
        ("TopicAuthorizationException: Not authorized to access topics: [mqtt.co2, mqtt.raw]",
         "Kafka forbids the jobs' user mqtt.co2, mqtt.raw: allow Describe and Read, of alerts, commands, "
         "lake.* and streams' topics Write"),
        ("TimeoutException: Topic north.lake.mast not present in metadata after 60000 ms.",
         "Kafka has no topic north.lake.mast: fieldgate provision topics makes it"),
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


class _Query:
    isActive = True  # noqa: N815 - Spark's name
    stopped = False

    def stop(self) -> None:
        self.stopped = True


class _Follower(Job):
    name = "follower"
    topics = "mqtt[.].+"

    def source(self) -> Source:
        raise NotImplementedError

    def batch(self, rows: DataFrame, number: int) -> None:
        raise NotImplementedError


def test_a_running_query_ends_when_its_topics_are_forbidden() -> None:
    class Forbidden:
        def check(self, *, running: bool) -> None:
            assert running
            raise KafkaAccessError("Kafka forbids it")

    anything: Any = object()
    query = _Query()
    supervised = Supervised("follower", anything, parse_run(["ingest"]), _Follower)
    supervised.job = _Follower()
    supervised.job.topic_ids = cast("Any", Forbidden())
    supervised.query = supervised._metrics = cast("Any", query)
    supervised.supervise()
    assert (query.stopped, supervised.failures) == (True, 1)
