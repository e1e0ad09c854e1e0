"""Which topics a query's checkpoint is about, by the ids that Kafka gives them.

Spark knows topics by name. In one that was created again, as when Kafka was rebuilt, offsets begin at 0:
Spark would fail there or, once the new topic has grown past the old one's end, leave out its beginning
without a word. So the ids are kept beside the checkpoint, in ``<checkpoints>/<query>/topics.json``; a topic
with another id ends that checkpoint, and the query begins again at the start of all its topics, storing only
what is missing.
"""

from __future__ import annotations

import json
import logging
import time

from pyspark.sql import SparkSession

from spark_jobs.platform.errors import JobError
from spark_jobs.platform.files import Files
from spark_jobs.platform.kafka_access import require_access
from spark_jobs.platform.settings import Settings

log = logging.getLogger("fieldgate.jobs")


class TopicsRecreatedError(JobError):
    """Topics were created again since the query has read them; its checkpoint was moved away."""


class TopicIds:
    """The ids of the topics that a query follows; ``pattern`` is a Java pattern of their names."""

    def __init__(self, spark: SparkSession, settings: Settings, query: str, pattern: str) -> None:
        self._spark, self._settings, self._query, self._pattern = spark, settings, query, pattern
        self._files = Files(spark)
        self._checkpoint = settings.checkpoint(query)
        self._place = f"{self._checkpoint.rpartition('/')[0]}/topics.json"
        self._kept: dict[str, str] = json.loads(self._files.read_bytes(self._place) or b"{}")

    def check(self, *, running: bool = False) -> None:
        """Keeps the ids of new topics. Raises TopicsRecreatedError, KafkaAccessError, CloudError."""
        found = require_access(self._spark, self._settings, self._pattern, running=running)
        again = sorted(name for name, topic_id in found.items() if self._kept.get(name, topic_id) != topic_id)
        if again and self._files.exists(self._checkpoint):
            if running:
                # The query is ended first: it writes to its checkpoint.
                raise TopicsRecreatedError(f"{', '.join(again)}: created again since {self._query} began")
            aside = f"{self._checkpoint}-until-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
            self._files.copy(self._checkpoint, aside)
            self._files.delete(self._checkpoint)
            self._keep(found)
            figures = self._query, ",".join(again), aside
            log.warning("event=topic.recreated query=%s topics=%s checkpoint=%s", *figures)
            raise TopicsRecreatedError(
                f"{', '.join(again)}: created again since {self._query} has read it. The query begins at the "
                f"start of its topics and stores only what is missing; its checkpoint until now is {aside}"
            )
        self._keep(found)

    def _keep(self, found: dict[str, str]) -> None:
        if not found.items() <= self._kept.items():
            self._kept |= found
            self._files.make_folder(self._place.rpartition("/")[0])
            self._files.write(self._place, json.dumps(self._kept, sort_keys=True), sync=True)
