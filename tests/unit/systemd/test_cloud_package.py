"""The package of the cloud side: what is staged of ours, and that its scripts do nothing rash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DEBIAN = ROOT / "systemd" / "debian"
LIBRARY = "usr/lib/fieldgate-cloud"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package without the wheels of others, which are too large here."""
    sys.path.append(str(DEBIAN))
    from control import write
    from products import CLOUD
    from targets import RELEASES, Target
    from tree import Stage, stage

    top, jars = tmp_path_factory.mktemp("top"), tmp_path_factory.mktemp("jars")
    for jar in ("spark/delta-spark.jar", "s3/fieldgate-s3.jar"):
        (jars / jar).parent.mkdir()
        (jars / jar).write_bytes(b"jar")
    staged = Stage(top)
    stage(staged, ROOT, CLOUD, [], jars)
    write(staged, CLOUD, Target(RELEASES["trixie"], "amd64"), "0.2.0")
    return top


def test_what_is_inside(tree: Path) -> None:
    for path in (
        "usr/lib/systemd/system/fieldgate-jobs@.service",
        "usr/lib/systemd/system/fieldgate-notify.service",
        "usr/lib/systemd/system/fieldgate-deliver.service",
        "usr/lib/systemd/system/fieldgate-deliver.timer",
        "usr/lib/systemd/system/fieldgate-jobs@maintain.service.d/command.conf",
        "usr/lib/sysusers.d/fieldgate-cloud.conf",
        "usr/lib/tmpfiles.d/fieldgate-cloud.conf",
        "usr/share/doc/fieldgate-cloud/examples/cloud.toml",
        f"{LIBRARY}/spark_jobs/submit.py",
        f"{LIBRARY}/.jars/spark/delta-spark.jar",
        f"{LIBRARY}/.jars/s3/fieldgate-s3.jar",
    ):
        assert (tree / path).is_file(), path
    # Nothing of the gateway's package: both may be on one machine.
    assert not list(tree.rglob("fieldgate.service"))
    assert not (tree / "usr/lib/fieldgate").exists()
    assert [path.name for path in (tree / "usr/bin").iterdir()] == ["fieldgate-cloud"]
    control = (tree / "DEBIAN/control").read_text()
    assert "Package: fieldgate-cloud\n" in control
    assert "default-jre-headless" in control
    assert not [line for line in control.splitlines() if line.endswith(": ")]


def test_the_command_finds_what_is_inside_and_so_do_its_children(tree: Path) -> None:
    """Away from our own packages; those of others are this environment's."""
    site = next(path for path in sys.path if path.endswith("site-packages"))
    launcher = (tree / "usr/bin/fieldgate-cloud").read_text().replace("/usr/bin/python3 -I", sys.executable)
    program = tree / "usr/bin/tried"
    program.write_text(launcher.replace("sys.path[0]\n", f'sys.path[0] + ":{site}"\n'))
    done = subprocess.run(
        [sys.executable, "-I", str(program), "jobs", "--help"],
        cwd="/", env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    program.unlink()
    assert done.stdout.startswith("usage: fieldgate jobs COMMAND"), done.stderr


@pytest.mark.parametrize("name", ["postinst", "prerm", "postrm"])
def test_the_scripts_are_sound(name: str, tree: Path) -> None:
    script = tree / "DEBIAN" / name
    assert "@" not in script.read_text().replace("fieldgate-jobs@", "")
    if shutil.which("shellcheck") is not None:
        subprocess.run(["shellcheck", "-S", "warning", str(script)], check=True)


def test_a_purge_keeps_the_lake(tree: Path) -> None:
    purge = (tree / "DEBIAN/postrm").read_text().partition("purge)")[2].partition(";;")[0]
    (removed,) = [line for line in purge.splitlines() if "rm -rf" in line]
    assert "/var/lib" not in removed


def test_the_entrypoint_is_sound() -> None:
    if shutil.which("shellcheck") is not None:
        subprocess.run(["shellcheck", str(ROOT / "systemd/container/entrypoint")], check=True)
