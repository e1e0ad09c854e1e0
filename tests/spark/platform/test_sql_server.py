"""The example that serves a lake's tables: beeline over JDBC, and Spark Connect's port."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyspark
import pytest

from cloud.exports import fieldgate
from tests.support.fleet_lake import write_fleet

PROJECT = Path(__file__).parents[3]
BY_CHANNEL = "SELECT channel, round(avg(avg), 6) AS mean FROM statistics GROUP BY channel ORDER BY channel"


@pytest.mark.timeout(600)
def test_beeline_asks_the_lake_by_its_tables_names(tmp_path: Path, full: bool) -> None:
    if not full:
        pytest.skip("only with --full: it starts Spark")
    write_fleet(tmp_path / "lake", 1, 1, end=datetime(2026, 5, 30, tzinfo=UTC))
    command = (sys.executable, str(PROJECT / "docs" / "examples" / "sql_server.py"), "lake")
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert "jdbc:hive2://127.0.0.1:10000" in server.stdout.readline()
            beeline = (
                Path(pyspark.__file__).with_name("bin") / "beeline",
                "-u",
                "jdbc:hive2://127.0.0.1:10000",
            )
            asked = subprocess.run(
                (*beeline, "--outputformat=csv2", "--silent=true", "-e", BY_CHANNEL),
                cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
            )  # fmt: skip
            # beeline prints its prompt before the header.
            lines = [line for line in asked.stdout.splitlines() if not line.endswith("channel,mean")]
            rows = [line.split(",") for line in lines]
            lake = fieldgate.open(tmp_path / "lake").sql(BY_CHANNEL).to_pandas()
            assert [name for name, _ in rows] == lake.channel.tolist(), asked.stderr
            assert [float(mean) for _, mean in rows] == pytest.approx(lake["mean"].tolist())
            socket.create_connection(("127.0.0.1", 15002), 20).close()
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(60)
    assert [each.name for each in tmp_path.iterdir()] == ["lake"]
