"""A lake's tables by name, for JDBC (Spark's Thrift server) and for Python without Java (Spark Connect).

``.venv/bin/python docs/examples/sql_server.py ./lake`` serves this machine alone, until Ctrl-C. Neither has a
login of its own: who reaches the ports may read and write all that this program may.
"""

import contextlib
import signal
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

lake = Path(sys.argv[1] if len(sys.argv) > 1 else "lake").resolve(strict=True)
jars = Path(__file__).resolve().parents[2] / ".jars" / "spark"
options = {
    # On the class path of the JVM itself: the servers' sessions find no class of --jars.
    "spark.driver.extraClassPath": f"{jars}/*",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # Where a CREATE TABLE of a client's would go, and the Thrift server's log of its own metastore.
    "spark.driver.extraJavaOptions": f"-Dderby.system.home={tempfile.gettempdir()}",
    "spark.sql.warehouse.dir": Path(tempfile.gettempdir(), "spark-warehouse").as_uri(),
    # Spark's and Delta's own choices, 200 and 50 tasks, are for larger machines.
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.hadoop.hive.server2.thrift.bind.host": "127.0.0.1",
}
spark = SparkSession.builder.master("local[*]").config(map=options).getOrCreate()
for log in sorted(lake.glob("[!_.]*/_delta_log")):
    spark.sql(f"CREATE TABLE {log.parent.name} USING delta LOCATION '{log.parent}'")
thrift = spark._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
thrift.startWithSparkSession(spark._jsparkSession, False)
print("jdbc:hive2://127.0.0.1:10000 and sc://127.0.0.1:15002; Ctrl-C stops", flush=True)
with contextlib.suppress(KeyboardInterrupt):
    signal.pause()
