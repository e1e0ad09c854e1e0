"""Forks Python workers, as ``pyspark.daemon`` does, that share what each of them would import for itself.

Arrow and pandas take a worker two seconds of processor time and 60 MB of memory of its own.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

import spark_jobs.transforms.mast_values
import spark_jobs.transforms.packing
import spark_jobs.transforms.statistics  # noqa: F401 - for the workers

if __name__ == "__main__":
    # A collection would write to all pages, which are then no longer shared.
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
