"""The example rules for Prometheus name metrics that are there: on another name no alert would be raised."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Final

import msgspec
import pytest

from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.status import metrics
from gateway.status.status import Status
from tests.support.config import ID, baro, config_text
from tests.support.mast import run_gateway
from tests.support.servers import eventually

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


def test_every_metric_of_the_masts_rules_is_there(
    tmp_path: Path, nowhere: str, mosquitto: LocalMosquitto
) -> None:
    with run_gateway(tmp_path, config_text(baro()), ID, nowhere, mosquitto) as gateway:
        eventually(lambda: gateway.status_now().get("channels"), 30)
        with urllib.request.urlopen(f"http://127.0.0.1:{gateway.status_port}/metrics", timeout=5) as answer:
            exported = set(_SAMPLE.findall(answer.read().decode()))
        status = gateway.status()
        assert gateway.stop() == 0
    # What this machine or this broker may not report is left out of /metrics, and what there is none of.
    known = {
        **status,
        "broker_dropped": 0,
        "machine": {**status["machine"], "cpu_celsius": 50.0},
        "parked": {"mqtt.co2": {"for_s": 60, "problem": "missing"}},
    }
    exported |= set(_SAMPLE.findall(metrics.render(msgspec.convert(known, Status)).decode()))
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
