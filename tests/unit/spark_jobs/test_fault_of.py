"""Which failures a record's content leads to, and which are of what is around it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError

from spark_jobs.platform.errors import JobError
from spark_jobs.sinks.delta import FencedError
from spark_jobs.streaming.query import fault_of

WORKER = 'thrown\nTraceback (most recent call last):\n  File "x.py", line 1\n{}\n\tat x.X'


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OverflowError("int too\nlarge"), "OverflowError: int too large"),
        (pa.ArrowInvalid("no such"), "ArrowInvalid: no such"),
        (Py4JError("x: [CAST_OVERFLOW] The value 1.0E303D"), "CAST_OVERFLOW: The value 1.0E303D"),
        (Py4JError("[ARITHMETIC_OVERFLOW.WITH_HINT] long overflow"), "ARITHMETIC_OVERFLOW: long overflow"),
        (Py4JError(WORKER.format("KeyError: 'a'")), "KeyError: 'a'"),
        # Words of a record that are like those of a machine in trouble.
        (ValueError("bad unit 'MemoryError'"), "ValueError: bad unit 'MemoryError'"),
        (Py4JError(WORKER.format("KeyError: 'crashed.temperature'")), "KeyError: 'crashed.temperature'"),
        (Py4JError(WORKER.format("pyarrow.lib.ArrowInvalid: no")), "ArrowInvalid: no"),
    ],
)
def test_of_content(error: Exception, words: str) -> None:
    assert fault_of(error) == words


@pytest.mark.parametrize(
    "error",
    [
        JobError("stopping"),
        FencedError("another process"),
        OSError("no route"),
        MemoryError(),
        ConnectionResetError("gone"),
        Py4JError("java.io.IOException: bucket is away"),
        Py4JError("org.apache.kafka.common.errors.TimeoutException: no broker"),
        Py4JError("SparkException: Python worker exited unexpectedly (crashed)"),
        Py4JError("java.lang.OutOfMemoryError: Java heap space"),
        Py4JError(WORKER.format("MemoryError: ")),
        Py4JError(WORKER.format("OSError: disk full")),
        Py4JError(WORKER.format("ModuleNotFoundError: No module named 'x'")),
    ],
)
def test_of_what_is_around_it(error: Exception) -> None:
    assert fault_of(error) is None
