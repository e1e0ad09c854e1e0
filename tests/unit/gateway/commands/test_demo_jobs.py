"""Which Spark jobs a demo runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from gateway.commands.demo.layout import Layout, Options, add_arguments
from spark_jobs.platform.settings import Settings, parse_run


def jobs_run(tmp_path: Path, *arguments: str) -> Settings:
    """The settings of the jobs that a demo starts."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = Options.of(parser.parse_args(arguments))
    command = Layout(tmp_path).jobs_command(options)
    return parse_run(command[command.index("run") + 1 :])


def test_all_that_need_no_model_or_those_named_in_the_order_of_their_tables(tmp_path: Path) -> None:
    assert jobs_run(tmp_path).jobs == ("ingest", "statistics", "mast", "presence", "alerts")
    assert jobs_run(tmp_path, "--jobs", "mast, statistics,ingest").jobs == ("ingest", "statistics", "mast")


def test_a_fleet_has_ten_minute_intervals_and_people_have_pages(tmp_path: Path) -> None:
    assert jobs_run(tmp_path).interval_s == 60
    assert jobs_run(tmp_path, "--fleet").interval_s == 600
    assert jobs_run(tmp_path, "--fleet", "--interval", "5m").interval_s == 300
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    attended, unattended = (Options.of(parser.parse_args(each)) for each in ([], ["--json"]))
    layout = Layout(tmp_path)
    components = layout.components(attended)
    assert [*components.programs][-1] == "dashboard"
    assert layout.describe(components, "mast-07", "starting")["dashboard"]["url"] == layout.pages
    assert "dashboard" not in layout.components(unattended).programs
