"""The manifests: against Kubernetes' own schemas, and that what they name is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.platform.settings import parse_command, parse_run

_PROJECT = Path(__file__).resolve().parents[3]
_MANIFESTS = _PROJECT / "systemd" / "container" / "kubernetes.yaml"


@cache
def manifests() -> list[dict[str, Any]]:
    import yaml

    return list(yaml.safe_load_all(_MANIFESTS.read_text()))


def named(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in manifests() if each["kind"] == kind}


def config_map(name: str) -> dict[str, str]:
    """The files in a ConfigMap."""
    data: dict[str, str] = named("ConfigMap")[name]["data"]
    return data


def spark_conf() -> dict[str, str]:
    lines = config_map("fieldgate-spark")["spark-defaults.conf"].splitlines()
    return dict(line.split(maxsplit=1) for line in lines if not line.startswith("#"))


def pods() -> dict[str, dict[str, Any]]:
    return {name: each["spec"]["template"]["spec"] for name, each in named("StatefulSet").items()}


def test_kubernetes_accepts_every_manifest() -> None:
    import kubernetes_validate
    import yaml

    template = yaml.safe_load(config_map("fieldgate-spark")["executor.yaml"])
    # What Spark adds to it.
    template["spec"]["containers"][0]["image"] = "image"
    for each in (*manifests(), template):
        kubernetes_validate.validate(each, "1.37", strict=True)
    template["spec"]["containers"][0]["imagePulPolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(template, "1.37", strict=True)


@pytest.mark.parametrize("name", ["tables", "alerts", "upkeep"])
def test_each_driver_runs_a_command(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "cloud.toml"
    config.write_text('[kafka]\nbootstrap_servers = "kafka:9092"\n[lake]\npath = "s3a://masts/lake"\n')
    jobs, command, *arguments = pods()[name]["containers"][0]["args"]
    assert jobs == "jobs"
    given = [word.replace("/etc/fieldgate-cloud/cloud.toml", str(config)) for word in arguments]
    settings = parse_run(given) if command == "run" else parse_command(command, given)[1]
    assert settings.lake == "s3a://masts/lake"
    assert settings.master == ("k8s://https://kubernetes.default.svc" if name == "tables" else "local[2]")
    assert pods()[name]["terminationGracePeriodSeconds"] > 30


def test_executors_come_and_go_as_the_page_has_it() -> None:
    """What a standalone cluster was tried with (tests/spark/platform/test_standalone.py)."""
    page = (_PROJECT / "docs" / "operate-cluster.md").read_text()
    (block,) = re.findall(r"^```properties\n(spark\.dynamicAllocation.*?)^```$", page, re.M | re.S)
    printed = dict(line.split() for line in block.splitlines())
    assert printed.items() <= spark_conf().items()
    # With an executor goes what a query keeps there, but for these.
    assert printed["spark.decommission.enabled"] == printed["spark.storage.decommission.enabled"] == "true"


def test_what_the_manifests_name_is_there() -> None:
    tables = pods()["tables"]
    assert tables["serviceAccountName"] in named("ServiceAccount")
    (binding,) = named("RoleBinding").values()
    assert binding["roleRef"]["name"] in named("Role")
    (service,) = named("Service").values()
    ports = {port["name"]: str(port["port"]) for port in service["spec"]["ports"]}
    conf = spark_conf()
    assert (ports["driver"], ports["blocks"]) == (
        conf["spark.driver.port"],
        conf["spark.driver.blockManager.port"],
    )
    images = {pod["containers"][0]["image"] for pod in pods().values()}
    assert images == {conf["spark.kubernetes.container.image"]}
    for pod in pods().values():
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == volumes
    host = next(word for word in tables["containers"][0]["args"] if "spark.driver.host" in word)
    assert host.endswith(f"=$(POD_NAME).{service['metadata']['name']}.$(POD_NAMESPACE).svc")
    for each in named("StatefulSet").values():
        assert each["spec"]["serviceName"] == service["metadata"]["name"]
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert each["spec"]["selector"]["matchLabels"] == labels
        assert service["spec"]["selector"].items() <= labels.items()


def test_only_its_executors_reach_a_driver_and_each_proves_itself() -> None:
    assert spark_conf()["spark.authenticate"] == spark_conf()["spark.network.crypto.enabled"] == "true"
    tables = named("StatefulSet")["tables"]["spec"]["template"]["metadata"]["labels"]
    policy = named("NetworkPolicy")["fieldgate-spark"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= tables.items()
    ports = {str(each["port"]) for each in policy["ingress"][0]["ports"]}
    assert ports == {spark_conf()["spark.driver.port"], spark_conf()["spark.driver.blockManager.port"]}
    executor = policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert f"labels: {{app: {executor['app']}}}" in config_map("fieldgate-spark")["executor.yaml"]
