"""The jobs by name, in the order data flows; loaded only when they run, for PySpark takes a second."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

STREAMING: Final = {
    "ingest": "spark_jobs.jobs.ingest:RecordsJob spark_jobs.jobs.ingest:IngestJob",
    "statistics": "spark_jobs.jobs.statistics:StatisticsJob",
    "mast": "spark_jobs.jobs.mast:MastJob",
    "presence": "spark_jobs.jobs.presence:PresenceJob",
    "anomaly": "spark_jobs.jobs.anomaly:AnomalyJob",
    "alerts": "spark_jobs.jobs.alerts:AlertsJob",
    "publish": "spark_jobs.jobs.publish:PublishJob",
    "stream": "spark_jobs.jobs.stream:StreamJob",
}
"""``jobs run NAME…``: queries that follow the streams. ``--once`` runs them in this order.

A job may be several queries, each a class, separated by spaces, in the order in which ``--once`` runs them;
``stream`` is one for each ``[[stream]]`` of the config.
"""

BY_NAME_ONLY: Final = ("publish", "stream")
"""Jobs that ``all`` doesn't include: not every fleet wants its tables in Kafka a second time, or streams."""

COMMANDS: Final[dict[str, str]] = {
    "maintain": "spark_jobs.jobs.maintain",
    "package": "spark_jobs.platform.package",
    "recalibrate": "spark_jobs.jobs.recalibrate",
    "replay": "spark_jobs.jobs.replay",
    "size": "spark_jobs.jobs.size",
    "streams": "spark_jobs.jobs.stream",
    "train": "spark_jobs.jobs.train",
}
"""``jobs NAME``: a module with ``DESCRIPTION``, ``add_arguments(parser)`` and ``main(options, settings)``.

``main`` does its work and returns; it raises JobError with a text for the operator.
"""


def load(place: str) -> Any:
    """What is named by ``module`` or ``module:attribute``."""
    module, _, attribute = place.partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found
