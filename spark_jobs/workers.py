"""Forks Python workers, as ``pyspark.daemon`` does, that share what each of them would import for itself.

Arrow and pandas take a worker two seconds of processor time and 60 MB of memory of its own.
"""

from __future__ import annotations

import gc
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def leave_archives() -> None:
    """Takes archives off the path of imports where all of it is installed besides.

    Before each task a worker has Python read the list of each archive again from which it has imported a
    package: 100 ms of processor time, nine tenths of what workers took at 1,000 readings a second (measured).
    """
    archives = [place for place in sys.path if Path(place).is_file()]
    others = [place for place in sys.path if place not in archives]
    if all(PathFinder.find_spec(name, others) for name in ("pyspark", "py4j", "cloud", "spark_jobs")):
        sys.path[:] = others
        for place in archives:
            sys.path_importer_cache.pop(place, None)


if __name__ == "__main__":
    leave_archives()

    # Only now: they are not to come out of an archive.
    from pyspark.daemon import manager

    import spark_jobs.transforms.mast_values
    import spark_jobs.transforms.packing
    import spark_jobs.transforms.statistics  # noqa: F401 - for the workers

    # A collection would write to all pages, which are then no longer shared.
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
