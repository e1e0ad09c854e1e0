"""The process that Python workers are forked from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql import SparkSession


def parent(batches: Iterable[Any]) -> Iterator[Any]:
    """Who has forked this worker, and whether that had loaded what the jobs need."""
    command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode()
    loaded = all(name in sys.modules for name in ("pandas", "spark_jobs.transforms.packing"))
    for _ in batches:
        yield pa.RecordBatch.from_pylist([{"command": command, "loaded": loaded}])


def test_a_worker_shares_what_the_jobs_need(spark: SparkSession) -> None:
    [found] = spark.range(1, numPartitions=1).mapInArrow(parent, "command string, loaded boolean").collect()
    assert "spark_jobs.workers" in found.command
    assert found.loaded


def archives(batches: Iterable[Any]) -> Iterator[Any]:
    """Archives, or folders in them, whose lists Python reads again before a task."""
    places = [place for place, found in sys.path_importer_cache.items() if isinstance(found, zipimporter)]
    for _ in batches:
        yield pa.record_batch({"place": pa.array(map(str, places), pa.string())})


def test_a_worker_reads_no_archive_before_each_task(spark: SparkSession) -> None:
    for _ in range(2):
        found = spark.range(1, numPartitions=1).mapInArrow(archives, "place string").collect()
        assert [row.place for row in found] == []
