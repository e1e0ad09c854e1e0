"""Lakes on S3: Hadoop's file system for them, and commits that several writers can make."""

from __future__ import annotations

import uuid
from typing import Final
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from cloud.errors import CloudError
from cloud.lake.object_store import in_words, is_s3
from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.files import Files
from spark_jobs.platform.java import hadoop_configuration
from spark_jobs.platform.settings import Settings

LOG_STORE: Final = "fieldgate.ConditionalPutLogStore"
_IMPLEMENTATION: Final = "spark.delta.logStore.s3a.impl"


def uses_s3(settings: Settings) -> bool:
    """Whether anything that the jobs write is in a bucket."""
    return any(map(is_s3, (settings.lake, settings.checkpoints, settings.models)))


def options(settings: Settings) -> dict[str, str]:
    """Spark's configuration for it, without credentials: Java's command line would show them."""
    store = settings.store
    found = {_IMPLEMENTATION: LOG_STORE}
    if is_s3(settings.checkpoints):
        found["spark.sql.streaming.checkpointFileManagerClass"] = (
            "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
        )
    if store is not None:
        path_style = store.path_style if store.path_style is not None else store.endpoint is not None
        region = store.region or ("us-east-1" if store.endpoint else None)
        given = {
            "endpoint": store.endpoint,
            "endpoint.region": region,
            "path.style.access": str(path_style).lower(),
        }
        found |= {f"spark.hadoop.fs.s3a.{key}": value for key, value in given.items() if value is not None}
    return found


def log_in(spark: SparkSession, settings: Settings) -> None:
    """Gives Hadoop the credentials, where the config has them. Raises SettingsError."""
    store = settings.store
    if store is None or store.access_key is None or store.secret_key is None:
        return
    hadoop = hadoop_configuration(spark)
    try:
        hadoop.set("fs.s3a.access.key", store.access_key.reveal())
        hadoop.set("fs.s3a.secret.key", store.secret_key.reveal())
    except CloudError as error:
        raise SettingsError(str(error)) from error


def refuse_unsafe(spark: SparkSession, settings: Settings) -> None:
    """Tries the bucket of the lake and, where it is another, that of the checkpoints of ``jobs run``.

    Raises SettingsError where one can't be used, or one writer could overwrite another's commit.
    """
    refuse_unsafe_place(spark, settings, "lake", settings.lake)
    if settings.jobs and urlsplit(settings.checkpoints)[:2] != urlsplit(settings.lake)[:2]:
        refuse_unsafe_place(spark, settings, "checkpoints", settings.checkpoints)


def refuse_unsafe_place(spark: SparkSession, settings: Settings, name: str, place: str) -> None:
    """As ``refuse_unsafe``, for one place by the settings' name for it. What is in no bucket isn't tried."""
    if not is_s3(place):
        return
    files = Files(spark)
    probe = f"{place.rstrip('/')}/_probe-{uuid.uuid4().hex}"
    try:
        is_safe = files.create_new(probe, "first") and not files.create_new(probe, "second")
        files.delete(probe)
    except Py4JJavaError as error:
        reason = in_words(error, place, settings.store)
        first = str(error.java_exception).partition("\n")[0]
        raise SettingsError(f"{name} {place}: {reason or first}") from error
    if not is_safe:
        raise SettingsError(
            f"{name} {place}: its store overwrites what must be new (it ignores If-None-Match: *), and "
            "commits of two writers would be lost; use one that has conditional puts, as Amazon S3, MinIO or "
            "versitygw have"
        )
