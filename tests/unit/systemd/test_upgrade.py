"""Upgrades by dpkg itself, with the package's own scripts; only systemd is played. A machine: tests/vm."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SYSTEMD = ROOT / "systemd"
OLD, NEW, NEWER = "1.0+deb13.trixie", "1.1+deb13.trixie", "1.2+deb13.trixie"

# A start runs the program that is installed; two files tell what it did: READY, and a reading that is safe.
SYSTEMCTL = """\
#!/bin/sh
cd "$STATE"
echo "$*" >>calls
case "$1 $2" in
"show -P") cat "$3" ;;
"is-active --quiet") grep -qx active ActiveState ;;
"restart fieldgate.service")
    echo $(($(cat InvocationID) + 1)) >InvocationID
    if "$DPKG_ROOT/usr/bin/fieldgate" run; then
        echo active >ActiveState
        cat InvocationID >"$DPKG_ROOT/run/fieldgate/durable"
    else
        echo activating >ActiveState
        echo 3 >NRestarts
    fi
    ;;
esac
"""
PROGRAM = """\
#!/bin/sh
# {version}
case $1 in
check) exit {check} ;;
run) exit {run} ;;
service) echo "{version}: $*" >>"$DPKG_ROOT/events" ;;
esac
"""


class Mast:
    """A root directory with dpkg's database, and a gateway that runs in it."""

    def __init__(self, top: Path) -> None:
        self.root, self._top = top / "root", top
        self._state = top / "state"
        self.kept = self.root / "var/lib/fieldgate-upgrade"
        self.forbidden = self.root / "etc/apt/preferences.d/fieldgate-refused"
        for folder in (
            "run/systemd/system", "run/fieldgate", "etc/fieldgate", "etc/apt/preferences.d",
            "etc/systemd/system", "var/lib/dpkg/info", "var/lib/dpkg/updates",
        ):  # fmt: skip
            (self.root / folder).mkdir(parents=True)
        for name in ("status", "available"):
            (self.root / "var/lib/dpkg" / name).touch()
        (self.root / "etc/fieldgate/gateway.toml").touch()
        programs = top / "programs"
        self._state.mkdir()
        programs.mkdir()
        fakes = {"systemctl": SYSTEMCTL, "deb-systemd-invoke": '#!/bin/sh\nexec systemctl "$@"\n'}
        for name in ("systemctl", "deb-systemd-invoke", "systemd-sysusers", "systemd-tmpfiles"):
            program = programs / name
            program.write_text(fakes.get(name, "#!/bin/sh\n"))
            program.chmod(0o755)
        self._environment = {
            "PATH": f"{programs}:{os.environ['PATH']}:/usr/sbin:/sbin", "STATE": str(self._state),
            "DPKG_ROOT": str(self.root), "DPKG_ADMINDIR": str(self.root / "var/lib/dpkg"),
            "DPKG_FORCE": "script-chrootless,not-root,depends", "LC_ALL": "C.UTF-8",
        }  # fmt: skip
        self.shows("ActiveState", "inactive")
        self.shows("NRestarts", "0")
        self.shows("InvocationID", "1")
        self.shows("ActiveEnterTimestampMonotonic", f"{(_uptime_s() + 8) * 1_000_000:.0f}")
        assert self.install(self.package(OLD)).returncode == 0
        self.shows("ActiveState", "active")
        (self.root / "run/fieldgate/durable").write_text("1\n")

    def shows(self, name: str, value: str) -> None:
        """What systemctl show prints of the service from now on."""
        (self._state / name).write_text(f"{value}\n")

    @property
    def start(self) -> int:
        """Which start of the daemon it is that runs."""
        return int((self._state / "InvocationID").read_text())

    def boots(self) -> None:
        """As if the power had been away: it is not the boot that it was."""
        pending = self.kept / "pending"
        pending.write_text(" ".join([*pending.read_text().split()[:3], "another-boot"]) + "\n")

    def package(self, version: str, *, check: int = 0, run: int = 0) -> Path:
        """A package with the real scripts, and a program whose check and run end so."""
        stage = self._top / f"stage-{version}"
        program = PROGRAM.format(version=version, check=check, run=run)
        for name, text in (
            ("usr/bin/fieldgate", program),
            ("usr/lib/fieldgate/gateway.py", f"VERSION = '{version}'\n"),
            (f"usr/lib/fieldgate/of {version}.py", ""),
            ("usr/libexec/fieldgate/upgrade", (SYSTEMD / "libexec/upgrade").read_text()),
            *(
                (f"DEBIAN/{script.name}", script.read_text().replace("@UNITS@", "fieldgate.service"))
                for script in (SYSTEMD / "debian/scripts").iterdir()
            ),
        ):
            path = stage / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o644 if path.suffix == ".py" else 0o755)
        (stage / "DEBIAN/control").write_text(
            f"Package: fieldgate\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@example.org>\n"
            "Description: a gateway\n of a mast\n .\n and more\n"
        )
        package = self._top / f"{version}.deb"
        subprocess.run(
            ["dpkg-deb", "-Zgzip", "--root-owner-group", "--build", str(stage), str(package)],
            check=True, capture_output=True,
        )  # fmt: skip
        return package

    @property
    def calls(self) -> str:
        """What systemctl was called with."""
        return (self._state / "calls").read_text()

    def install(self, package: Path) -> subprocess.CompletedProcess[str]:
        return self._run("dpkg", "--log=/dev/null", "--install", str(package))

    def upgrade(self, word: str) -> subprocess.CompletedProcess[str]:
        """The script that the units start, and a person."""
        return self._run("sh", str(SYSTEMD / "libexec/upgrade"), word)

    def ends_its_trial(self) -> None:
        assert "start --no-block fieldgate-trial.service" in self.calls
        done = self.upgrade("trial")
        assert done.returncode == 0, done.stderr
        assert not (self.kept / "pending").exists()
        assert not (self.kept / "refused").exists()

    @property
    def installed(self) -> str:
        """What dpkg has, whole."""
        return self._run("dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", "fieldgate").stdout

    @property
    def tree(self) -> dict[str, bytes]:
        """The package's files and scripts as they are."""
        paths = (*self.root.glob("usr/**/*"), *self.root.glob("var/lib/dpkg/info/fieldgate.p*"))
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in paths
            if path.is_file() and path.suffix != ".pyc"
        }

    @property
    def bytecode(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.root.glob("usr/**/*.pyc")}

    @property
    def events(self) -> list[str]:
        path = self.root / "events"
        return path.read_text().splitlines() if path.exists() else []

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = words if os.geteuid() == 0 else ("unshare", "--map-root-user", *words)
        return subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=False, timeout=60
        )


def _uptime_s() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


@pytest.fixture
def mast(tmp_path: Path) -> Mast:
    return Mast(tmp_path)


def test_a_good_version_stays(mast: Mast) -> None:
    done = mast.install(mast.package(NEW))
    assert done.returncode == 0, done.stderr
    assert "on trial" in done.stdout
    mast.ends_its_trial()
    assert mast.installed == f"installed {NEW}"
    [event] = mast.events
    assert event.startswith(
        f"{NEW}: service report -c {mast.root}/etc/fieldgate/gateway.toml --upgrade {OLD} {NEW} --gap-s "
    )
    assert 0 < float(event.split()[-1]) <= 8
    assert not mast.forbidden.exists()


def test_a_version_that_crashes_gives_way(mast: Mast) -> None:
    before, bytecode = mast.tree, mast.bytecode
    mast.install(mast.package(NEW, run=1))
    assert not [path for path in mast.bytecode if OLD in path.name]
    assert mast.installed == f"installed {NEW}"
    failures = mast.root / "run/fieldgate/failures"
    failures.write_text("4\n")
    mast.ends_its_trial()
    assert not failures.exists()
    assert (mast.installed, mast.tree) == (f"installed {OLD}", before)
    # Compiling it would take a minute, in which nothing is sampled.
    assert bytecode.items() <= mast.bytecode.items()
    assert len(bytecode) == 2
    assert mast.start == 3
    # Left to itself systemd would start the former one as soon as it is unpacked, and the trial once more.
    assert mast.calls.index("stop fieldgate.service") < mast.calls.rindex("restart fieldgate.service")
    [event] = mast.events
    assert event.startswith(f"{OLD}: ")
    assert f"--upgrade {OLD} {NEW} --reverted crashes --gap-s" in event
    assert f"Package: fieldgate\nPin: version {NEW}\nPin-Priority: -1\n" in mast.forbidden.read_text()
    # The next one is tried as the first was, and what it makes obsolete is no longer forbidden.
    mast.install(mast.package(NEWER))
    mast.ends_its_trial()
    assert mast.installed == f"installed {NEWER}"
    assert not mast.forbidden.exists()


def test_a_version_that_refuses_the_config_never_stops_the_former_one(mast: Mast) -> None:
    before = mast.tree
    done = mast.install(mast.package(NEW, check=1))
    assert done.returncode == 0
    assert f"{OLD} runs on, and comes back" in done.stdout
    mast.ends_its_trial()
    assert (mast.installed, mast.tree) == (f"installed {OLD}", before)
    assert mast.start == 1
    [event] = mast.events
    assert event.endswith(f"--upgrade {OLD} {NEW} --reverted check")


def test_ready_alone_is_no_proof(mast: Mast, tmp_path: Path) -> None:
    mast.install(mast.package(NEW))
    (mast.root / "run/fieldgate/durable").write_text("1\n")
    # As if the five minutes were over.
    script = tmp_path / "upgrade"
    script.write_text((SYSTEMD / "libexec/upgrade").read_text().replace("patience_s=300", "patience_s=0"))
    mast._run("sh", str(script), "trial")
    assert mast.installed == f"installed {OLD}"
    assert "--reverted no_reading" in mast.events[0]


def test_half_a_package_changes_nothing(mast: Mast) -> None:
    before, bytecode = mast.tree, mast.bytecode
    package = mast.package(NEW)
    whole = package.read_bytes()
    package.write_bytes(whole[: len(whole) * 9 // 10])
    assert mast.install(package).returncode != 0
    assert (mast.installed, mast.tree) == (f"installed {OLD}", before)
    assert not (mast.kept / "pending").exists()
    assert mast.start == 1
    assert mast.bytecode == bytecode


@pytest.mark.parametrize("moment", ["unpacking", "configuring"])
def test_a_power_cut_on_the_way_brings_the_former_version_back(mast: Mast, moment: str) -> None:
    before = mast.tree
    package = mast.package(NEW)
    if moment == "unpacking":
        # The former one's is called when all files are there, and dpkg's account of them isn't.
        _dies_at(mast.root / "var/lib/dpkg/info/fieldgate.postrm", f"upgrade {NEW}")
    else:
        stage = package.with_name(f"stage-{NEW}")
        _dies_at(stage / "DEBIAN/postinst", f"configure {OLD}")
        subprocess.run(["dpkg-deb", "-b", str(stage), str(package)], check=True, capture_output=True)
    assert mast.install(package).returncode == -9
    unfinished = {"unpacking": f"half-installed {OLD}", "configuring": f"half-configured {NEW}"}
    assert mast.installed == unfinished[moment]
    assert mast.tree != before
    mast.boots()
    assert mast.upgrade("repair").returncode == 0
    mast.ends_its_trial()
    assert mast.installed == f"installed {OLD}"
    assert {name: mast.tree[name] for name in before if "postrm" not in name} == {
        name: content for name, content in before.items() if "postrm" not in name
    }
    # No start of its own: the daemon's at the boot came after the repair.
    assert mast.start == 1
    assert mast.events[0].endswith("--reverted interrupted")
    assert not mast.forbidden.exists()


@pytest.mark.parametrize("refused", [False, True])
def test_a_power_cut_in_a_trial(mast: Mast, refused: bool) -> None:
    """The trial goes on at the boot; what had lost it already is gone before the daemon starts."""
    mast.install(mast.package(NEW, check=int(refused)))
    mast.boots()
    assert mast.upgrade("repair").returncode == 0
    assert mast.installed == f"installed {OLD if refused else NEW}"
    mast.ends_its_trial()
    assert mast.installed == f"installed {OLD if refused else NEW}"
    # Seconds without power are no seconds of the switch.
    [event] = mast.events
    assert event.endswith(f"--upgrade {OLD} {NEW}" + " --reverted check" * refused)


def _dies_at(script: Path, call: str) -> None:
    """At this call dpkg is killed, and the script too."""
    kill = f'if [ "$1 $2" = "{call}" ]; then kill -9 "$(ps -o ppid= -p $$ | tr -d " ")" $$; fi'
    script.write_text(script.read_text().replace("set -e\n", f"set -e\n{kill}\n", 1))


def test_another_version_in_the_middle_of_a_trial(mast: Mast) -> None:
    """What comes back is the one that had proved itself."""
    mast.install(mast.package(NEW))
    mast.install(mast.package(NEWER, run=1))
    mast.ends_its_trial()
    assert mast.installed == f"installed {OLD}"
    assert f"--upgrade {OLD} {NEWER} --reverted crashes" in mast.events[0]


def test_back_by_hand(mast: Mast) -> None:
    assert "no former version" in mast.upgrade("back").stderr
    mast.install(mast.package(NEW))
    mast.ends_its_trial()
    assert mast.upgrade("back").returncode == 0
    mast.ends_its_trial()
    assert mast.installed == f"installed {OLD}"
    assert f"--upgrade {OLD} {NEW} --reverted by_hand --gap-s" in mast.events[1]
    assert f"Pin: version {NEW}\n" in mast.forbidden.read_text()
    assert f"{OLD} is the former version" in mast.upgrade("back").stderr


def test_without_a_running_gateway_there_is_no_trial(mast: Mast) -> None:
    mast.shows("ActiveState", "inactive")
    mast.install(mast.package(NEW, run=1))
    assert not mast.kept.exists()
    mast.shows("ActiveState", "active")
    # Nor over a release of Debian, with which Python changes.
    mast.install(mast.package("1.3+deb14.forky"))
    assert not mast.kept.exists()


def test_removed_and_purged_nothing_stays(mast: Mast) -> None:
    mast.install(mast.package(NEW, run=1))
    mast.ends_its_trial()
    mast._run("dpkg", "--log=/dev/null", "--remove", "fieldgate")
    assert not mast.kept.exists()
    assert (mast.root / "etc/fieldgate/gateway.toml").exists()
    mast._run("dpkg", "--log=/dev/null", "--purge", "fieldgate")
    assert not mast.forbidden.exists()
    assert not (mast.root / "etc/fieldgate").exists()


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck")
def test_the_scripts_are_sound() -> None:
    scripts = [*(SYSTEMD / "libexec").iterdir(), *(SYSTEMD / "debian/scripts").iterdir()]
    subprocess.run(["shellcheck", "-S", "warning", *map(str, scripts)], check=True, timeout=60)
