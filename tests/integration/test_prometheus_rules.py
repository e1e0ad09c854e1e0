"""The example rules for Prometheus name metrics that are there: on another name no alert would be raised."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from gateway.status import metrics
from gateway.status.status import ParkedStatus
from tests.support.status import channel, status

PLACE: Final = Path(__file__).parents[2] / "docs" / "examples" / "prometheus"
RULES: Final = PLACE / "fieldgate.rules.yml"
_SAMPLE: Final = re.compile(r"^([a-z_0-9]+)(?:\{[^}]*\})? ", re.MULTILINE)
_METRIC: Final = re.compile(r"\b(?:fieldgate|process)_[a-z0-9_]+")


def _group(name: str) -> str:
    """The text of one group of rules."""
    groups = re.split(r"^  - name: ", RULES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (found,) = [group for group in groups if group.startswith(f"{name}\n")]
    return found


def _named(group: str) -> set[str]:
    """The metrics of a group's expressions; folded ones go on on further lines."""
    expressions = re.findall(r"^        expr: (.*(?:\n          .*)*)", _group(group), re.MULTILINE)
    assert len(expressions) == _group(group).count("- alert: ")
    return {name for expression in expressions for name in _METRIC.findall(expression)}


def test_every_metric_of_the_masts_rules_is_there() -> None:
    """What this machine may not report, and what there is none of on a mast where all is well, is there."""
    parked = {"mqtt.co2": ParkedStatus(for_s=60, problem="missing")}
    known = status(channels={"cup.wind_speed": channel()}, parked=parked)
    exported = set(_SAMPLE.findall(metrics.render(known, resident=1 << 26).decode()))
    named = _named("fieldgate-mast")
    assert len(named) > 10
    assert named - exported == set()


def test_every_metric_of_the_jobs_rules_is_there() -> None:
    spark_metrics = pytest.importorskip("spark_jobs.platform.metrics")
    exported = set()
    for family in spark_metrics.REGISTRY.collect():
        exported.add(f"{family.name}_total" if family.type == "counter" else family.name)
    named = _named("fieldgate-jobs")
    assert len(named) == 5
    assert named - exported == set()


def test_promtool_takes_the_rules_and_the_config() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian: prometheus) is not installed")
    for what, file in (("rules", RULES), ("config", PLACE / "prometheus.yml")):
        done = subprocess.run([promtool, "check", what, file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
