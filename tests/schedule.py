"""Which tests run beside each other when several processes share them (``pytest -n``)."""

from __future__ import annotations

from typing import Final

from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_SPARK: Final = ("tests/spark/", "tests/integration/test_demo.py", "tests/integration/test_end_to_end")
_WITH_SPARK: Final = 2
"""Processes that start Spark: on two cores a third one takes longer than it saves."""
_TOGETHER: Final = (
    # They share a broker of their own.
    ("tests/faults/",),
    # They share the package, which takes long to build.
    ("tests/integration/test_debian_package.py", "tests/integration/test_installed_package.py"),
)
"""Files of one scope, which share a fixture."""
_FIRST: Final = (
    "tests/spark/jobs/test_statistics_job.py",
    "tests/spark/test_job_faults.py",
    "tests/spark/platform/test_secured_kafka.py",
    "tests/integration/test_end_to_end.py",
    "tests/spark/platform/test_topic_prefix.py",
    "tests/spark/jobs/test_missing.py",
    "tests/spark/jobs/test_jobs.py",
    "tests/spark/jobs/test_records_job.py",
    "tests/spark/jobs/test_anomaly.py",
    "tests/spark/sinks/test_ingest_sink.py",
    "tests/spark/jobs/test_alerts_job.py",
)
"""The longest, or at the end the others would wait for them."""


class SparkOnTwo(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """A file's tests stay in one process, with their fixtures; those that start Spark go to two processes.

    These keep their session for all of them; what waits for other servers runs beside. By path, for
    pytest-xdist's own groups have no effect with pytest 9.2 (pytest-xdist's issue 1386).
    """

    def __init__(self, config: object, log: Producer) -> None:
        super().__init__(config, log)
        self._with_spark: set[WorkerController] = set()

    def _split_scope(self, nodeid: str) -> str:
        scopes = (together[0] for together in _TOGETHER if nodeid.startswith(together))
        return next(scopes, nodeid.partition("::")[0])

    def _assign_work_unit(self, node: WorkerController) -> None:
        wants_spark = node in self._with_spark or len(self._with_spark) < _WITH_SPARK
        scope = min(self.workqueue, key=lambda each: (each.startswith(_SPARK) != wants_spark, _rank(each)))
        if scope.startswith(_SPARK):
            self._with_spark.add(node)
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


def _rank(scope: str) -> int:
    return _FIRST.index(scope) if scope in _FIRST else len(_FIRST)
