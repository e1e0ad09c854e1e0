"""The Debian package of this machine's release: what is in it, the same twice, and that it runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.support.debian_package import EPOCH, ROOT, build

LIBRARY = "usr/lib/fieldgate"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def field(package: Path, name: str) -> str:
    return subprocess.run(
        ["dpkg-deb", "-f", str(package), name], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def fieldgate(tree: Path, release: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the unpacked command with a bare Python of that release."""
    from targets import RELEASES

    version = RELEASES[release].python
    found = [
        each
        for each in ("/usr/bin/python3", sys.executable)
        if Path(each).exists()
        and subprocess.run([each, "-V"], capture_output=True, text=True, check=True).stdout.startswith(
            f"Python {version}."
        )
    ]
    if not found:
        pytest.skip(f"no Python {version} here, only other releases' packages can be built")

    def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        # As it is called on a mast, where /usr/bin/python3 is that one. Else with the link to it resolved,
        # which puts the virtual environment's packages out of sight.
        program = str(tree / "usr/bin/fieldgate")
        native = found[0] == "/usr/bin/python3"
        command = [program, *arguments] if native else [os.path.realpath(found[0]), "-I", program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)

    return run


def test_owner_and_modes(package: Path) -> None:
    listed = subprocess.run(["dpkg-deb", "-c", str(package)], capture_output=True, text=True, check=True)
    entries = [line.split(maxsplit=5) for line in listed.stdout.splitlines()]
    assert {entry[1] for entry in entries} == {"root/root"}
    assert {entry[3] for entry in entries} == {"2025-11-21"}
    modes = {entry[5]: entry[0] for entry in entries}
    assert modes.pop("./usr/bin/fieldgate") == "-rwxr-xr-x"
    programs = {path for path in modes if path.startswith("./usr/libexec/fieldgate/") and path[-1] != "/"}
    assert {modes.pop(path) for path in programs} <= {"-rwxr-xr-x"}
    assert set(modes.values()) == {"drwxr-xr-x", "-rw-r--r--"}


def test_all_that_is_needed_is_inside_and_nothing_else(tree: Path) -> None:
    library = tree / LIBRARY
    assert {
        "gateway",
        "drivers",
        "buffer",
        "cloud",
        "pydantic",
        "confluent_kafka",
        "paho",
        "pymodbus",
        "adafruit_dht.py",
    } <= {path.name for path in library.iterdir()}
    for absent in (
        "spark_jobs",
        "pyspark",
        "pip",
        "pygments",
        "systemd",
        "lgpio.py",
        "RPi",
        "duckdb",
        "pytest",
        "tests",
    ):
        assert not (library / absent).exists(), absent
    # Zstandard's second backend can't be imported without cffi; 2 of 13 MB, over a mast's uplink.
    assert not list(library.rglob("*cffi*"))
    assert not (library / "confluent_kafka" / "kafkatest").exists()
    assert not list(tree.rglob("*.pyc"))
    assert not list(tree.rglob("__pycache__"))
    for path in (
        "usr/lib/systemd/system/fieldgate.service",
        "usr/lib/sysusers.d/fieldgate.conf",
        "usr/lib/tmpfiles.d/fieldgate.conf",
        "usr/lib/udev/rules.d/60-fieldgate.rules",
        "usr/lib/modules-load.d/fieldgate.conf",
        "usr/share/bash-completion/completions/fieldgate",
        "usr/share/man/man1/fieldgate.1.gz",
        "usr/share/doc/fieldgate/install.md",
        "usr/share/doc/fieldgate/copyright",
        f"{LIBRARY}/fieldgate-{VERSION}.dist-info/licenses/LICENSE",
        "usr/share/doc/fieldgate/examples/mast.toml",
    ):
        assert (tree / path).is_file(), path
    # No config of ours is installed: people's causes no prompt, and is never in the way.
    assert not (tree / "etc").exists()
    assert not (tree / "DEBIAN" / "conffiles").exists()


def test_every_file_of_systemd_has_its_place(tree: Path) -> None:
    from products import GATEWAY
    from tree import StageError, place, sources

    ours = [PurePosixPath(*path.parts[1:]) for path in sources(ROOT) if path.parts[0] == "systemd"]
    units = [path for path in ours if path.parts[0] not in ("debian", "jobs", "container")]
    assert units
    for path in units:
        assert GATEWAY.unit(path) == path
        assert (tree / place(path)).read_bytes() == (ROOT / "systemd" / path).read_bytes()
    assert not list(tree.rglob("*fieldgate-jobs*"))
    with pytest.raises(StageError, match=r"systemd/fieldgate\.servce: no rule"):
        place(PurePosixPath("fieldgate.servce"))
    placed = str(place(PurePosixPath("mosquitto.service.d/fieldgate.conf")))
    assert placed == "usr/lib/systemd/system/mosquitto.service.d/fieldgate.conf"


def test_dependencies_and_version(package: Path, release: str, architecture: str) -> None:
    python = {"bookworm": ("3.11", "3.12"), "trixie": ("3.13", "3.14")}[release]
    depends = f"python3 (>= {python[0]}~), python3 (<< {python[1]}~), iproute2, python3-systemd, systemd"
    assert field(package, "Depends") == depends
    assert field(package, "Recommends") == "mosquitto"
    assert field(package, "Architecture") == architecture
    version = field(package, "Version")
    assert package.name == f"fieldgate_{version}_{architecture}.deb"
    assert version.endswith({"bookworm": "+deb12.bookworm", "trixie": "+deb13.trixie"}[release])


def debian_mirror() -> str:
    """The mirror that this machine's own apt is set up with."""
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"],
        capture_output=True, text=True, check=False,
    ).stdout.splitlines()  # fmt: skip
    found = [line.split()[1] for line in targets if line.startswith("Debian ")]
    if not found:
        pytest.skip("this machine's apt has no Debian mirror")
    return found[0]


@pytest.mark.parametrize("name", ["bookworm", "trixie"])
def test_what_the_package_names_is_in_the_releases_archive(
    name: str, package: Path, tmp_path: Path, full: bool
) -> None:
    if not full:
        pytest.skip("only with --full: the archives are fetched; what the package names is compared above")
    (tmp_path / "lists/partial").mkdir(parents=True)
    (tmp_path / "sources.list").write_text(
        f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {debian_mirror()} {name} main\n"
    )
    options = [
        f"-o{option}"
        for option in (
            f"Dir::Etc::SourceList={tmp_path}/sources.list",
            "Dir::Etc::SourceParts=/dev/null",
            f"Dir::State::Lists={tmp_path}/lists",
            f"Dir::Cache={tmp_path}",
            "Dir::State::status=/dev/null",
            "APT::Architecture=arm64",
            "APT::Architectures=arm64",
            "APT::Sandbox::User=root",
            "APT::Update::Post-Invoke-Success=",
            "Acquire::Languages=none",
        )
    ]
    subprocess.run(["apt-get", *options, "-qq", "update"], check=True, timeout=240)
    relations = ", ".join(field(package, each) for each in ("Depends", "Recommends", "Suggests"))
    wanted = {re.split(r"[ (]", each.strip())[0] for each in re.split(r"[,|]", relations)}
    found = subprocess.run(
        ["apt-cache", *options, "pkgnames"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert wanted - set(found) == set()
    assert {"python3-systemd", "mosquitto", "gpsd"} <= wanted


def test_libraries_have_no_symbols_for_debuggers(tree: Path) -> None:
    libraries = [path for path in (tree / LIBRARY).rglob("*.so*") if path.read_bytes()[:4] == b"\x7fELF"]
    assert len(libraries) > 5
    for path in libraries:
        sections = subprocess.run(["readelf", "-SW", str(path)], capture_output=True, text=True, check=True)
        assert not re.search(r"\.(symtab|debug_info)\b", sections.stdout), path.name


DEV = "0.1.0~dev20261121120000"


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (f"{DEV}.fffffff+deb12.bookworm", "0.1.0~dev20261121120001.0000000+deb12.bookworm"),
        (f"{DEV}.1e1cdda+deb13.trixie", f"{DEV}.1e1cdda.changed+deb13.trixie"),
        (f"{DEV}.1e1cdda+deb13.trixie", "0.1.0+deb12.bookworm"),
        ("0.1.0+deb12.bookworm", "0.1.0+deb13.trixie"),
        ("0.1.0+deb13.trixie", "0.1.0+deb14.forky"),
        ("0.1.0+deb13.trixie", f"0.1.1{DEV[5:]}.1e1cdda+deb13.trixie"),
    ],
)
def test_versions_rise(older: str, newer: str) -> None:
    subprocess.run(["dpkg", "--compare-versions", older, "lt", newer], check=True)


def test_versions_are_named_by_tag_or_commit(tmp_path: Path) -> None:
    from control import version

    def git(*words: str) -> None:
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    def built_version() -> str:
        return version(tmp_path, "0.1.0", 12, "bookworm", EPOCH)

    git("init", "-q")
    assert built_version() == "0.1.0~dev20251121044000.uncommitted+deb12.bookworm"
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-q", "-m", "first")
    assert re.fullmatch(r"0\.1\.0~dev20251121044000\.[0-9a-f]{7}\+deb12\.bookworm", built_version())
    git("tag", "v0.1.0")
    assert built_version() == "0.1.0+deb12.bookworm"
    (tmp_path / "file").write_text("2")
    assert re.fullmatch(r"0\.1\.0~dev20251121044000\.[0-9a-f]{7}\.changed\+deb12\.bookworm", built_version())


def test_the_same_sources_make_the_same_bytes(
    package: Path, release: str, architecture: str, tmp_path: Path
) -> None:
    done = build(tmp_path / "again", "--release", release, "--arch", architecture)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again" / package.name).read_bytes() == package.read_bytes()


def test_no_path_of_this_machine_inside(tree: Path) -> None:
    places = [str(each).encode() for each in (ROOT, Path.home() / ".cache", Path(sys.prefix))]
    for path in tree.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [each for each in places if each in content], path


def test_it_runs_isolated(
    fieldgate: Callable[..., subprocess.CompletedProcess[str]], tree: Path, tmp_path: Path
) -> None:
    # What would be imported in place of ours, from the working directory and from PYTHONPATH.
    for name in ("gateway.py", "drivers.py", "pydantic.py", "sitecustomize.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong one was imported')\n")
    where: dict[str, Any] = {"cwd": tmp_path, "env": {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)}}
    done = fieldgate("--version", **where)
    assert (done.stdout, done.stderr, done.returncode) == (f"fieldgate {VERSION}\n", "", 0)
    assert "provision" in fieldgate("--help", **where).stdout
    example = tree / "usr/share/doc/fieldgate/examples/simulated.toml"
    checked = fieldgate("check", "-c", str(example), **where)
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.startswith("good: gateway demo-mast")
    # Without what only a clone has: a sentence, no traceback.
    for command in (["demo"], ["jobs", "run", "ingest"], ["query", "SELECT 1"]):
        refused = fieldgate(*command, **where)
        assert refused.returncode == 1
        assert re.fullmatch(r"fieldgate: .*\n", refused.stderr), refused.stderr


def test_a_driver_of_others_is_found(
    fieldgate: Callable[..., subprocess.CompletedProcess[str]], tree: Path, tmp_path: Path
) -> None:
    example = ROOT / "docs" / "examples" / "driver"
    drivers = tree / "usr/local/lib/fieldgate"
    about = drivers / "fieldgate_sht31-0.1.0.dist-info"
    about.mkdir(parents=True)
    shutil.copy(example / "fieldgate_sht31.py", drivers)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: fieldgate-sht31\nVersion: 0.1.0\n")
    points = tomllib.loads((example / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [line for name, each in points.items() for line in (f"[{name}]", *map(" = ".join, each.items()))]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    schema = fieldgate("schema", cwd=tmp_path)
    shutil.rmtree(tree / "usr/local")
    assert '"sht31"' in schema.stdout, schema.stderr
    assert '"sht31"' not in fieldgate("schema", cwd=tmp_path).stdout


def test_a_wheel_that_does_not_exist_is_named(
    release: str, architecture: str, package: Path, tmp_path: Path
) -> None:
    lock = (ROOT / "requirements.lock").read_text()
    changed = tmp_path / "requirements.lock"
    # A version that exists for no target at all.
    changed.write_text(re.sub(r"^zstandard==\S+", "zstandard==0.0.0.1", lock, flags=re.MULTILINE))
    done = build(tmp_path, "--release", release, "--arch", architecture, "--lock", str(changed))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: no wheel for {release}-{architecture} ")
    assert "zstandard 0.0.0.1" in done.stderr
    changed.write_text(re.sub(r"^zstandard==", "zstandard-of-others==", lock, flags=re.MULTILINE))
    done = build(tmp_path, "--release", release, "--arch", architecture, "--lock", str(changed))
    assert done.returncode == 1
    assert done.stderr.startswith("error: requirements.lock has no version of zstandard for ")


def test_markers_are_the_targets_not_this_machines() -> None:
    from targets import RELEASES, Target
    from wheels import pins

    lock = (ROOT / "requirements-dev.lock").read_text()
    holds = {
        (pin.name, name): pin.holds(Target(RELEASES[name], "arm64"))
        for pin in pins(lock)
        for name in RELEASES
    }
    assert holds["gpiod", "bookworm"]
    assert holds["lgpio", "bookworm"]
    assert not holds["lgpio", "trixie"]
    assert not holds["colorama", "trixie"]
    trixie = Target(RELEASES["trixie"], "arm64")
    [numpy] = [pin.version for pin in pins(lock) if pin.name == "numpy" and pin.holds(trixie)]
    assert numpy == "2.5.5"


def complete(tree: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    script = tree / "usr/share/bash-completion/completions/fieldgate"
    typed = " ".join(f"'{word}'" for word in words)
    program = (
        f"source '{script}'; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _shtab_fieldgate;"
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_completion(tree: Path) -> None:
    assert complete(tree, "fieldgate", "pro") == ["provision"]
    assert "topics" in complete(tree, "fieldgate", "provision", "")
    assert complete(tree, "fieldgate", "provision", "topics", "--part") == ["--partitions"]
    assert complete(tree, "fieldgate", "outbox", "ex") == ["export"]
    assert complete(tree, "fieldgate", "init", "--board", "") == ["raspberry-pi", "simulated"]
    # A number can't be guessed, and what needs a clone isn't offered.
    assert complete(tree, "fieldgate", "read", "--seconds", "") == []
    assert not {"demo", "jobs", "query"} & set(complete(tree, "fieldgate", ""))


def test_the_manual_has_every_command_and_option(tree: Path) -> None:
    from command_line import packaged_parser, parsers

    page = tree / "usr/share/man/man1/fieldgate.1.gz"
    text = subprocess.run(["gzip", "-dc", str(page)], capture_output=True, text=True, check=True).stdout
    plain = text.replace("\\-", "-")
    for parser in parsers(packaged_parser()):
        assert parser.prog in plain
        for flag in {flag for action in parser._actions for flag in action.option_strings} - {"-h", "--help"}:
            assert f"\\fB{flag}\\fR" in plain, parser.prog
    if shutil.which("groff"):
        rendered = subprocess.run(
            ["groff", "-man", "-ww", "-Kutf8", "-Tutf8"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        assert rendered.stderr == ""


def test_maintainer_scripts(tree: Path) -> None:
    scripts = [tree / "DEBIAN" / name for name in ("postinst", "prerm", "postrm", "preinst")]
    for script in scripts:
        assert not re.findall(r"@[A-Z]+@", script.read_text())
    subprocess.run(["shellcheck", *map(str, scripts)], check=True, timeout=60)
    assert 'systemd-sysusers ${root:+--root="$root"} fieldgate.conf' in scripts[0].read_text()
    # Every unit stops when the program goes; drop-ins of other units are none of ours to stop.
    stop = re.search(r"systemctl stop (.*) \|\| true", scripts[1].read_text())
    assert stop is not None
    assert set(stop[1].split()) == {
        path.name for path in (tree / "usr/lib/systemd/system").glob("fieldgate*")
    }
    assert "fieldgate.service" in stop[1].split()
    # Only a purge removes what people wrote.
    removal = scripts[2].read_text().partition("purge)")
    assert "/etc/fieldgate" not in re.sub(r"^ *echo .*", "", removal[0], flags=re.MULTILINE)
    assert "rm -rf" not in scripts[0].read_text()
    assert "/etc/fieldgate" in removal[2]
