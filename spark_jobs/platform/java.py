"""Spark's Java. PySpark has no public way to it: its private names are used in this module alone."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession


def java_of(spark: SparkSession) -> Any:
    """Returns Java's packages and classes, as attributes."""
    return spark._jvm


def submitted_java() -> Any:
    """Returns ``java_of`` under spark-submit, before there is a session."""
    SparkContext._ensure_initialized()
    return SparkContext._jvm


def java_session(spark: SparkSession) -> Any:
    """Returns Java's session."""
    return spark._jsparkSession


def java_frame(rows: DataFrame) -> Any:
    """Returns Java's frame."""
    return rows._jdf


def java_gateway(spark: SparkSession) -> Any:
    """Returns the connection by which Java calls Python."""
    return spark.sparkContext._gateway


def hadoop_configuration(spark: SparkSession) -> Any:
    """Returns the configuration of all sessions' file systems."""
    return spark.sparkContext._jsc.hadoopConfiguration()


def is_stopped(spark: SparkSession) -> bool:
    """Returns whether Spark has stopped. Raises Py4JError, OSError where its Java has died."""
    return bool(spark.sparkContext._jsc.sc().isStopped())
