"""Schemas of readings in Avro by id: those that the lake keeps, and from the registry what is new.

Only the driver has this; workers get the schemas along with their task. A registry that is away stops
nothing: what the lake has it has for good, and records by another schema wait in ``quarantine`` for
``jobs replay``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from cloud.errors import CloudError
from cloud.registry import NotRegistered, Registry
from spark_jobs.platform.frames import rows_frame
from spark_jobs.platform.schemas import SCHEMAS
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, write

log = logging.getLogger("fieldgate.jobs.schemas")

_ASK_AGAIN_S: Final = 60.0
_TIMEOUT_S: Final = 5.0
_MOST_ASKED: Final = 10
"""Ids asked for at a time: whoever may write to a topic may name any."""
_REMEMBERED: Final = 10_000


class ReadingSchemas:
    """``known`` are the schemas by id. Owned by one thread; ``keep``: what is new goes into the lake."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        *,
        keep: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spark, self._settings, self._keep, self._clock = spark, settings, keep, clock
        self._asked_s: dict[int, float] = {}
        self._problem: str | None = None
        self.known: Mapping[int, str] = self._stored()

    def learn(self, ids: Collection[int]) -> bool:
        """Look for schemas that aren't known; whether one was found. Those in vain rest for a minute."""
        now_s = self._clock()
        wanted = [
            number for number in sorted(ids)
            if number not in self.known and self._asked_s.get(number, -_ASK_AGAIN_S) + _ASK_AGAIN_S <= now_s
        ][:_MOST_ASKED]  # fmt: skip
        if not wanted:
            return False
        if len(self._asked_s) > _REMEMBERED:
            self._asked_s.clear()
        self._asked_s |= dict.fromkeys(wanted, now_s)
        # Another job may have asked already.
        found = self._stored()
        fresh = self._fetched([number for number in wanted if number not in found])
        if fresh and self._keep:
            location = ensure_table(self._spark, self._settings, SCHEMAS)
            write(rows_frame(self._spark, SCHEMAS.schema, list(fresh.items())).coalesce(1), location)
        self.known = {**self.known, **found, **fresh}
        return any(number in self.known for number in wanted)

    def _stored(self) -> dict[int, str]:
        location = self._settings.table(SCHEMAS.name)
        if not DeltaTable.isDeltaTable(self._spark, location):
            return {}
        rows = self._spark.read.format("delta").load(location).collect()
        return {row.id: row.schema for row in rows}

    def _fetched(self, wanted: Collection[int]) -> dict[int, str]:
        fresh: dict[int, str] = {}
        if not wanted:
            return fresh
        problem: str | None = None
        named = self._settings.registry
        try:
            access = None if named is None else named.access()
            registry = None if access is None else Registry(access, _TIMEOUT_S)
            for number in wanted:
                if registry is None:
                    problem = f"schema {number}: [schema_registry] of cloud.toml names no registry"
                    break
                try:
                    fresh[number] = registry.schema(number)
                    log.info("event=schemas.learnt id=%d", number)
                except NotRegistered as error:
                    problem = f"schema {number}: {error}"
        except CloudError as error:
            problem = str(error)
        if problem not in (None, self._problem):
            log.warning("event=schemas.unknown remedy=replay problem=%s", problem)
        self._problem = problem
        return fresh
