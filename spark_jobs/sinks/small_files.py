"""Small files of ``readings`` are joined beside its writer.

Delta's auto-compaction does that within the commit of a partition's fiftieth small file, and all readings
wait for it: 5 to 7 s at 1,000 a second on two cores (docs/performance.md).
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

log = logging.getLogger("fieldgate.jobs.ingest")

MANY: Final = 50
"""A date with this many small files is worth joining."""
_JOINED_BYTES: Final = 8 << 20


class SmallFiles:
    """Counts what one writer adds to a table by date; owned by the writer's thread."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        # Limits of file sizes are set on it, which are for no other job.
        self._spark = spark.newSession()
        self._spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(_JOINED_BYTES // 2))
        self._spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(_JOINED_BYTES))
        self._location = location
        self._added = Counter[str]()
        self._thread = threading.Thread()

    def add(self, files: Sequence[Mapping[str, Any]]) -> None:
        """Takes the files of a commit (``date``, ``content``); joins those of dates that have many by now."""
        self._added.update(str(each["date"]) for each in files if len(each["content"]) < _JOINED_BYTES // 2)
        due = [date for date, count in self._added.items() if count >= MANY]
        if not due or self._thread.is_alive():
            return
        for date in due:
            del self._added[date]
        self._thread = threading.Thread(target=self._join, args=(due,), name="small-files", daemon=True)
        self._thread.start()

    def _join(self, dates: Sequence[str]) -> None:
        where = ", ".join(f"'{each}'" for each in dates)
        try:
            self._spark.sql(f"optimize delta.`{self._location}` where date in ({where})").collect()
        except (PySparkException, Py4JError, OSError) as error:
            # It changes no row: the next fifty, or upkeep, join them as well.
            reason = next(iter(str(error).splitlines()), "")[:200]
            log.info("event=ingest.not_joined dates=%d error=%s", len(dates), reason)
