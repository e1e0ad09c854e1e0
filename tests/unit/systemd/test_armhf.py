"""Packages for armhf: which wheels are compiled, what they need of Debian, and whom they refuse."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DEBIAN = ROOT / "systemd" / "debian"


@pytest.fixture(scope="module", autouse=True)
def _scripts() -> None:
    """The build's modules: scripts beside each other, in no package."""
    sys.path.append(str(DEBIAN))


def published(folder: Path) -> Path:
    """A wheel for arm64: a compiled module, a library that it brings with it, and Python."""
    wheel = folder / "pair-1.0-cp313-cp313-manylinux2014_aarch64.manylinux_2_17_aarch64.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("pair/", "")
        file.writestr("pair/core.cpython-313-aarch64-linux-gnu.so", b"arm64's")
        file.writestr("pair.libs/libpair-1e1b45fc.so.1", b"arm64's")
        file.writestr("pair/__init__.py", "from pair.core import one\n")
        file.writestr(
            "pair-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp313-cp313-manylinux2014_aarch64\n"
            "Tag: cp313-cp313-manylinux_2_17_aarch64\n\n",
        )
        file.writestr("pair-1.0.dist-info/RECORD", "pair/core.cpython-313-aarch64-linux-gnu.so,sha256=x,7\n")
    return wheel


def test_a_wheel_is_the_one_for_arm64_with_another_module(tmp_path: Path) -> None:
    from cross import CrossError, repack
    from targets import RELEASES, Target

    target = Target(RELEASES["trixie"], "armhf")
    ours, again = tmp_path / "ours.whl", tmp_path / "again.whl"
    module = "pair/core.cpython-313-arm-linux-gnueabihf.so"
    repack(published(tmp_path), module, b"armhf's", target, ours)
    with zipfile.ZipFile(ours) as file:
        assert file.testzip() is None
        about = "pair-1.0.dist-info"
        names = {f"{about}/RECORD", f"{about}/WHEEL", "pair/__init__.py", module}
        assert set(file.namelist()) == names
        assert file.read(module) == b"armhf's"
        assert file.read("pair/__init__.py") == b"from pair.core import one\n"
        assert file.read(f"{about}/WHEEL") == (
            b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp313-cp313-linux_armv7l\n"
        )
        assert "linux_armv7l" in target.platforms
        rows = [line.split(",") for line in file.read(f"{about}/RECORD").decode().splitlines()]
        assert {row[0] for row in rows} == names
        digest = base64.urlsafe_b64encode(hashlib.sha256(b"armhf's").digest()).decode().rstrip("=")
        assert [module, f"sha256={digest}", "7"] in rows
    repack(published(tmp_path), module, b"armhf's", target, again)
    assert again.read_bytes() == ours.read_bytes()
    with pytest.raises(CrossError, match=r"has pair/core\.cpython-313-aarch64-linux-gnu\.so, not pair/other"):
        repack(published(tmp_path), "pair/other.cpython-313-arm-linux-gnueabihf.so", b"", target, again)


@pytest.mark.parametrize(("release", "ssl"), [("bookworm", "libssl3"), ("trixie", "libssl3t64")])
def test_pins_and_dependencies(release: str, ssl: str) -> None:
    from control import control
    from cross import RECIPES
    from products import CLOUD, GATEWAY
    from targets import RELEASES, Target
    from wheels import pins

    target = Target(RELEASES[release], "armhf")
    assert target.platforms[0] == f"manylinux_2_{target.release.glibc_minor}_armv7l"
    lock = pins((ROOT / "requirements.lock").read_text())
    holds = {pin.name: pin.version for pin in lock if pin.holds(target)}
    assert holds.keys() >= RECIPES.keys()
    # The client for Python wants a librdkafka of its own minor version; the sources at hand are 2.15's.
    assert holds["confluent-kafka"].startswith("2.15.")
    [depends] = re.findall(r"^Depends: (.*)$", control(GATEWAY, target, "1", 1), re.MULTILINE)
    assert depends.split(", ")[-3:] == [ssl, "libzstd1", "zlib1g"]
    assert "libssl" not in control(GATEWAY, Target(RELEASES[release], "arm64"), "1", 1)
    assert "armhf" in GATEWAY.architectures
    # PyArrow has no wheel for it, and nobody runs Spark on one.
    assert "armhf" not in CLOUD.architectures


def test_time_has_the_width_of_the_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What Debian's Python of that release passes as ``time_t``; a wrong width corrupts memory in silence."""
    import cross
    from targets import RELEASES, Target

    compiler = tmp_path / "arm-linux-gnueabihf-gcc"
    compiler.write_text("#!/bin/sh\necho /usr/lib/gcc-cross/include\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    flags = {
        name: [flag for flag in cross.Compiler(Target(each, "armhf"), tmp_path).command if "BITS" in flag]
        for name, each in RELEASES.items()
    }
    assert flags == {"bookworm": [], "trixie": ["-D_FILE_OFFSET_BITS=64", "-D_TIME_BITS=64"]}


@pytest.mark.parametrize(("machine", "code"), [("armv6l", 1), ("armv7l", 0), ("aarch64", 0)])
def test_a_machine_that_would_kill_it_is_refused(machine: str, code: int, tmp_path: Path) -> None:
    uname, script = tmp_path / "uname", DEBIAN / "scripts" / "preinst"
    uname.write_text(f"#!/bin/sh\necho {machine}\n")
    uname.chmod(0o755)
    done = subprocess.run(
        ["sh", str(script), "install"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert ("ARMv6" in done.stderr) == bool(code)
    subprocess.run(["shellcheck", str(script)], check=True, timeout=60)
