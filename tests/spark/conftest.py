"""One Spark session for all tests here; a lake and checkpoints of its own for each."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaPackage, JVMView
from pyspark.sql import SparkSession

from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.s3 import LOG_STORE
from spark_jobs.platform.schemas import Table
from spark_jobs.platform.session import find_jars, spark_session
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks import delta
from tests.spark.running import QUICK_JAVA, QUICK_PLANS


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                # Cut short in the middle of a call it would leave the session of all that follow out of step.
                item.add_marker(pytest.mark.timeout(900))


_SETTINGS = Settings(
    jobs=("ingest", "statistics"),
    bootstrap_servers="127.0.0.1:1",
    lake="unset",
    checkpoints="unset",
    interval_s=60,
    trigger_s=0.1,
    once=True,
    conf=(("spark.driver.extraJavaOptions", f"{QUICK_JAVA} -Xms1g -Xmn400m"), *QUICK_PLANS),
)


def _jars() -> str:
    """Those for lakes in buckets too, so that no session of their own is needed."""
    jars = find_jars()
    with suppress(SettingsError):
        jars += find_jars("s3")
    return os.pathsep.join(map(str, jars))


@pytest.fixture(scope="session", autouse=True)
def _java_names_are_looked_up_once() -> Iterator[None]:
    """Py4J asks at each use whether ``a`` of ``a.b.C`` is a class, and Java searches three hundred jars.

    That is a twentieth of the CPU time of a small batch (measured).
    """
    with pytest.MonkeyPatch.context() as patch:
        for kind in (JVMView, JavaPackage):

            def look_up(place: Any, name: str, find: Any = kind.__getattr__) -> Any:
                found = place.__dict__[name] = find(place, name)
                return found

            patch.setattr(kind, "__getattr__", look_up)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    class_path = ("spark.driver.extraClassPath", _jars()), ("spark.delta.logStore.s3a.impl", LOG_STORE)
    session = spark_session(replace(_SETTINGS, conf=(*_SETTINGS.conf, *class_path)), app="fieldgate-tests")
    yield session
    session.stop()


@pytest.fixture(scope="session", autouse=True)
def _tables_are_copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each kind of empty table is created once: that takes a fifth of a second, and each test has several."""
    created: dict[Table, Path] = {}
    create, places = delta.create_table, tmp_path_factory.mktemp("tables")

    def copy(spark: SparkSession, location: str, table: Table) -> None:
        log = Path(location, "_delta_log")
        if "://" in location or log.exists():
            create(spark, location, table)
        elif table in created:
            # Without the times of the files, which are those of its commits, and with an id of its own, by
            # which Delta counts small files.
            ignored = shutil.ignore_patterns("*.crc")
            shutil.copytree(created[table], log, copy_function=shutil.copyfile, ignore=ignored)
            first = log / f"{0:020}.json"
            first.write_text(re.sub('("metaData":{"id":")[^"]+', rf"\g<1>{uuid.uuid4()}", first.read_text()))
        else:
            create(spark, location, table)
            created[table] = places / str(len(created))
            shutil.copytree(log, created[table])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta, "create_table", copy)
        yield


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(_SETTINGS, lake=str(tmp_path / "lake"), checkpoints=str(tmp_path / "checkpoints"))
