"""The Spark session all jobs share."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkConf
from pyspark.sql import SparkSession

from cloud.local.process import shared_classes
from spark_jobs.platform import s3
from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.java import submitted_java
from spark_jobs.platform.package import write_package
from spark_jobs.platform.settings import Settings

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_PROJECT: Final = _PACKAGE.parent
_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_SECRETS: Final = "(?i)secret|passw|passphrase|token|access[.]?key|jaas|keystore|truststore|private key"
_MANY_ROWS: Final = 100_000
"""Read and sorted without generated code a row takes 8 us in place of 4; in a merge, that writes all rows of
the files it touches, 80 in place of 40 (measured)."""
_OPEN_CLUSTER: Final = "spark.fieldgate.openCluster"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"


def find_jars(kind: str = "spark") -> list[Path]:
    """The jars Spark needs beyond its own: in FIELDGATE_JARS, or in .jars/spark beside the packages.

    ``kind`` "s3" names those for a lake there. Raises SettingsError where there are none.
    """
    named = os.environ.get("FIELDGATE_JARS")
    folders = [Path(named) / kind, Path(named)] if named else [_PROJECT / ".jars" / kind]
    first, target = {"spark": ("delta-spark", "make jars"), "s3": ("fieldgate-s3", "make jars-s3")}[kind]
    for folder in folders:
        jars = sorted(folder.glob("*.jar"))
        if any(jar.name.startswith(first) for jar in jars):
            return jars
    what = {"spark": "Spark", "s3": "S3"}[kind]
    raise SettingsError(
        f"no {what} jars in {folders[-1]}: run `{target}`, or set FIELDGATE_JARS to their folder"
    )


def _cores(master: str) -> int:
    """Tasks at once of local[N] and local-cluster[N,cores,MB]; elsewhere as many as this machine's cores."""
    numbers = re.fullmatch(r"local(?:\[(\d+)(?:,\d+)?\]|-cluster\[(\d+),(\d+),\d+\])", master)
    if numbers is None:
        return os.cpu_count() or 2
    return int(numbers[1] or int(numbers[2]) * int(numbers[3]))


def _slots(settings: Settings) -> str:
    """The master, with room for as many tasks of each query on local[N] as there are cores.

    A task that waits for Kafka holds its slot for up to three minutes; with N slots for all queries those
    that follow tables would wait with it (measured: statistics stood still for the whole of an outage).
    """
    queries = len(settings.queries())
    if queries < 2 or not re.fullmatch(r"local\[\d+\]", settings.master):
        return settings.master
    return f"local[{_cores(settings.master) * queries}]"


def _submitted(settings: Settings) -> dict[str, str]:
    """The configuration of spark-submit, where it started this program: it holds over our own choice."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    utils = submitted_java().org.apache.spark.util.Utils
    given = dict(SparkConf().getAll())
    if not utils.classIsLoadable(_EXTENSION):
        raise SettingsError("spark-submit was given no Delta jar: --jars with all of .jars/spark/*.jar")
    if s3.uses_s3(settings) and not utils.classIsLoadable(s3.LOG_STORE):
        raise SettingsError("spark-submit was given no S3 jars: --jars with all of .jars/s3/*.jar too")
    return given


def _environment(*, local: bool) -> None:
    # Workers run in the driver's interpreter and find our packages wherever the driver was started; on a
    # cluster their interpreter may be elsewhere, and the packages are sent to them.
    if local:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    paths = [str(_PROJECT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


def _check_cluster(spark: SparkSession, master: str) -> None:
    """Ends the session where any host that reaches the driver could be an executor and get its tasks."""
    given = spark.sparkContext.getConf()
    if master.startswith("local") or given.get(_OPEN_CLUSTER) == "true":
        return
    needed = ("spark.authenticate", "spark.network.crypto.enabled")
    if lacking := [f"{name} true" for name in needed if given.get(name) != "true"]:
        spark.stop()
        raise SettingsError(
            f"{master}: set {', '.join(lacking)} in spark-defaults.conf (docs/operate-cluster.md): tasks "
            f"have Kafka's login and keys, and go to any executor; {_OPEN_CLUSTER} true accepts that"
        )


def spark_session(settings: Settings, app: str = "fieldgate") -> SparkSession:
    """Starts Spark, or joins the session of this process.

    Raises SettingsError without jars, or where the lake is in a bucket that can't be used.

    Under spark-submit its master and configuration are used, not those of the settings.
    """
    submitted = _submitted(settings)
    if submitted:
        settings = replace(settings, master=submitted.get("spark.master", settings.master))
    local = settings.master.startswith("local[") or settings.master == "local"
    _environment(local=settings.master.startswith("local"))
    cores, given = _cores(settings.master), dict(settings.conf)
    builder = SparkSession.builder.appName(app).master(settings.master if submitted else _slots(settings))
    options = {
        "spark.sql.extensions": _EXTENSION,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        # Tables are named by their place, so the catalog's own folder stays empty: one that exists already.
        "spark.sql.warehouse.dir": Path(tempfile.gettempdir()).as_uri(),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
        # Batches are small and alike: re-planning each of them costs more than it saves.
        "spark.sql.adaptive.enabled": "false",
        # Which line of ours made a column, for messages: it takes three calls of Java more for each.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.streaming.stopTimeout": "10s",
        # How often an idle query without a trigger interval polls; the default of 10 ms burns a core.
        "spark.sql.streaming.pollingDelay": "200ms",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.databricks.delta.snapshotPartitions": "2",
        # Once a partition has 50 files below half of this, the writer joins them after its commit; the first
        # time in its life at once, so a process that soon ends would do it in each of its lives.
        "spark.databricks.delta.autoCompact.enabled": str(not settings.once).lower(),
        "spark.databricks.delta.autoCompact.maxFileSize": str(8 << 20),
        # Spark's own choice, INT96, has no bounds in a file: for an hour all of each file would be read.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # What we merge are computed rows: reading them twice gives the same.
        "spark.databricks.delta.merge.materializeSource": "none",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        # Workers would else import a folder spark_jobs where the driver was started, whatever was sent them.
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        # Kafka's login and keys are options of queries, which plans, interface and event log would show.
        "spark.redaction.regex": _SECRETS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        _JAVA_OPTIONS: " ".join(
            [
                # Spark matches a stopped query's whole error text against a recursive regular expression.
                "-Xss64m",
                # With C1 alone the JVM reserves 48 MB, which is full in a minute; then it stops compiling.
                "-XX:ReservedCodeCacheSize=240m",
                # Up to some 2,000,000 records of a process C2 compiles longer than its code saves.
                *(["-XX:TieredStopAtLevel=1"] if settings.once else []),
                # Nobody waits for its pauses. Of two collectors Java takes none.
                *(["-XX:+UseSerialGC"] if settings.once and "GC" not in given.get(_JAVA_OPTIONS, "") else []),
                f"-Dlog4j2.configurationFile=file:{_PACKAGE / 'log4j2.properties'}",
            ]
        ),
    }
    more_jars = find_jars("s3") if s3.uses_s3(settings) and not submitted else []
    if submitted:
        # Its jars are on the class path already; its Java is started.
        del options[_JAVA_OPTIONS]
        options["spark.log.level"] = "WARN"
    elif local:
        jars = find_jars() + more_jars
        # On the class path no executor has to fetch them, which makes the start a second faster.
        options["spark.driver.extraClassPath"] = os.pathsep.join(map(str, jars))
        options[_JAVA_OPTIONS] = " ".join([options[_JAVA_OPTIONS], *shared_classes(jars[0].parent)])
        options["spark.python.daemon.module"] = "spark_jobs.workers"
    else:
        options["spark.jars"] = ",".join(map(str, find_jars() + more_jars))
    if s3.uses_s3(settings):
        options |= s3.options(settings)
    if "://" not in settings.checkpoints or settings.checkpoints.startswith("file:"):
        # Spark's own choice for local paths starts a process, readlink, for each file: six to nine a batch,
        # half of a small batch's time. This one renames just as atomically.
        options["spark.sql.streaming.checkpointFileManagerClass"] = (
            "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
        )
    if settings.master.startswith("local"):
        options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if _JAVA_OPTIONS in given and not submitted:
        given[_JAVA_OPTIONS] = f"{options[_JAVA_OPTIONS]} {given[_JAVA_OPTIONS]}"
    for key, value in (options | submitted | given).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    _check_cluster(spark, settings.master)
    if not settings.master.startswith("local") and not submitted:
        spark.sparkContext.addPyFile(str(write_package(Path(tempfile.mkdtemp(prefix="fieldgate-")))))
    if s3.uses_s3(settings):
        s3.log_in(spark, settings)
        s3.refuse_unsafe(spark, settings)
    return spark


@contextmanager
def running_session(settings: Settings, app: str = "fieldgate") -> Iterator[SparkSession]:
    """A session that ends with the block."""
    spark = spark_session(settings, app)
    try:
        yield spark
    finally:
        # A Java that has died can't be stopped any more, and that it died is being raised.
        with suppress(Py4JError, OSError):
            spark.stop()


def task_slots(spark: SparkSession) -> int:
    """Tasks of one query that can run at once."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 2)


def small_batch_session(spark: SparkSession) -> SparkSession:
    """A session of the same Spark for plans over few rows.

    Every batch's plan has new literals and ids, so its generated projections are never found in the cache;
    compiling them was half the CPU of a small batch (4.0 s to 2.0 s for 12 intervals, measured).
    """
    session = spark.newSession()
    plan_for(session, 0)
    return session


def plan_for(session: SparkSession, rows: int) -> None:
    """Has a small-batch session generate code from now on where it is about so many rows that this pays."""
    session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if rows >= _MANY_ROWS else "NO_CODEGEN")
