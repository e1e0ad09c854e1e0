"""The table ``trends`` is what ``fieldgate health`` prints, and its alerts reach Kafka."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession, functions as F

from cloud.lake.health import read_trends
from spark_jobs.jobs.alerts import AlertsJob
from spark_jobs.jobs.maintain import Maintenance, MaintenanceOptions
from spark_jobs.platform.schemas import TRENDS
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table
from tests.spark.jobs.test_reported_alerts import found
from tests.support.worn_lake import write_worn


def test_a_worn_cup_is_in_the_table_and_raises_an_alert(
    spark: SparkSession, settings: Settings, provisioned: str
) -> None:
    settings = replace(settings, bootstrap_servers=provisioned)
    now = datetime.now(UTC)
    today = now.date()
    # In the tropics the sun is as high in all seasons.
    write_worn(Path(settings.lake), today, latitude=5.0)
    # The table is there when the job begins: what it has then is no news.
    ensure_table(spark, settings, TRENDS)
    job = AlertsJob(spark, settings)
    done = Maintenance(spark, settings, MaintenanceOptions(), lambda: now).round()
    assert {"action": "trends", "table": "trends", "rows": 7} in done.actions
    rows = spark.read.format("delta").load(settings.table("trends")).collect()
    printed, missing = read_trends({"lake": (settings.lake, None)}, today)
    assert missing == []
    # Two engines, the same queries.
    assert {(row.channel, row.kind, row.date, row.detail, row.crosses_until) for row in rows} == {
        (each.channel, each.kind, each.day, each.detail, each.crosses_until) for each in printed
    }
    [worn] = [each for each in printed if (each.channel, each.kind) == ("cup-a.wind_speed", "twins")]

    job.finish()
    raised = {each.rule: each for each in found(provisioned, "mast-07")}
    alert = raised["cup-wears"]
    assert (alert.channel, alert.state, alert.historical) == ("cup-a.wind_speed", "raised", False)
    assert alert.detail == f"mast-07: cup-a.wind_speed: {worn.detail}"
    assert alert.value == worn.days_left

    # A calm leaves no line, which is no end of what is nearly at its limit; a new cup's first weeks are one.
    written = spark.read.format("delta").load(settings.table("trends"))
    for days, value, expected in ((1, -2.7, ["raised"]), (2, -0.1, ["cleared", "raised"])):
        row = written.where("channel = 'cup-a.wind_speed' and kind = 'twins'").limit(1)
        later = row.withColumns({
            "date": F.date_add("date", days), "value": F.lit(value),
            "a_month": F.lit(None).cast("double"), "crosses_until": F.lit(None).cast("date"),
        })  # fmt: skip
        later.write.format("delta").mode("append").save(settings.table("trends"))
        job.finish()
        cup_wears = [each.state for each in found(provisioned, "mast-07") if each.rule == "cup-wears"]
        assert sorted(cup_wears) == expected
