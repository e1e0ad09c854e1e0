"""Which tests run beside each other when several processes share them (``pytest -n``)."""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling

# The jobs in this process's own session, and whole pipelines of processes: each kind in turn. The faults
# share a broker of their own.
_TOGETHER: Final = {
    "tests/spark/test_alerts_job.py": "pipelines",
    "tests/spark/test_job_faults.py": "pipelines",
    "tests/spark/test_jobs.py": "pipelines",
    "tests/spark/test_secured_kafka.py": "pipelines",
    "tests/spark/": "spark",
    "tests/integration/test_demo": "pipelines",
    "tests/integration/test_end_to_end": "pipelines",
    "tests/faults/": "faults",
}


class SparkInTurn(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """A file's tests stay in one process, with their fixtures; those that start Spark do so by kind.

    Two sessions at once, each of which wants all cores, take longer than one after the other. By path,
    for pytest-xdist's own groups have no effect with pytest 9.2 (pytest-xdist's issue 1386).
    """

    def _split_scope(self, nodeid: str) -> str:
        for path, scope in _TOGETHER.items():
            if nodeid.startswith(path):
                return scope
        return nodeid.partition("::")[0]
