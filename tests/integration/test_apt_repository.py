"""The signed repository, as apt itself sees it: with a root of its own, over HTTP."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
OLD, NEW = "0.1.0+{}", "0.2.0+{}"
RELEASES = {"bookworm": "deb12.bookworm", "trixie": "deb13.trixie"}
Make = Callable[[str], subprocess.CompletedProcess[str]]
ARCHITECTURES = ("amd64", "arm64", "armhf")


def package(directory: Path, version: str, architecture: str, text: str = "") -> Path:
    """A package of that name that holds its own version."""
    stage = directory / "stage"
    (stage / "DEBIAN").mkdir(parents=True, exist_ok=True)
    (stage / "version").write_text(version + text)
    (stage / "DEBIAN/control").write_text(
        f"Package: fieldgate\nVersion: {version}\nArchitecture: {architecture}\n"
        "Maintainer: x <x@example.org>\nDescription: a gateway\n"
    )
    made = directory / f"fieldgate_{version}_{architecture}.deb"
    subprocess.run(
        ["dpkg-deb", "-Zgzip", "--root-owner-group", "--build", str(stage), str(made)],
        env={**os.environ, "SOURCE_DATE_EPOCH": "1763700000"}, check=True, capture_output=True,
    )  # fmt: skip
    return made


def key(home: Path, name: str) -> str:
    """A new key's fingerprint."""
    gpg = ["gpg", "--homedir", str(home), "--batch"]
    subprocess.run(
        [*gpg, "--passphrase", "", "--quick-generate-key", name, "ed25519", "sign", "never"],
        check=True, capture_output=True,
    )  # fmt: skip
    listed = subprocess.run(
        [*gpg, "--with-colons", "--list-secret-keys", name], check=True, capture_output=True, text=True
    ).stdout
    return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A keyring directory; its agent's socket needs a short path."""
    home = tmp_path_factory.mktemp("gpg")
    home.chmod(0o700)
    yield home
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False, capture_output=True)


@pytest.fixture(scope="module")
def fingerprint(home: Path) -> str:
    return key(home, "packages@example.org")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions for each release and architecture."""
    packages = tmp_path_factory.mktemp("packages")
    for own in RELEASES.values():
        for architecture in ARCHITECTURES:
            for version in (OLD, NEW):
                package(packages, version.format(own), architecture)
    return packages


@pytest.fixture
def dist(packages: Path, tmp_path: Path) -> Path:
    """A copy of these packages, for the test to change."""
    return Path(shutil.copytree(packages, tmp_path / "dist"))


@pytest.fixture
def make(dist: Path, home: Path) -> Make:
    def make(fingerprint: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(ROOT / "systemd/debian/repository.py"), "--packages", str(dist),
             "--output", str(dist / "apt")],
            env={"PATH": os.environ["PATH"], "GNUPGHOME": str(home), "KEY": fingerprint},
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    return make


@pytest.fixture
def url(dist: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    (dist / "apt").mkdir()
    handler = functools.partial(Quiet, directory=str(dist / "apt"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Mast:
    """apt of a machine of a release and an architecture, as docs/install.md sets it up."""

    def __init__(self, root: Path, url: str, release: str, architecture: str, keyring: Path) -> None:
        for folder in (
            "etc/apt/sources.list.d", "etc/apt/keyrings", "var/lib/dpkg", "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial", "downloads",
        ):  # fmt: skip
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "var/lib/dpkg/status").touch()
        signed_by = root / "etc/apt/keyrings/fieldgate.gpg"
        signed_by.write_bytes(keyring.read_bytes())
        (root / "etc/apt/sources.list.d/fieldgate.sources").write_text(
            f"Types: deb\nURIs: {url}/\nSuites: {release}/\nSigned-By: {signed_by}\n"
        )
        self.root = root
        config = root / "apt.conf"
        settings = {
            "Dir": root,
            "Dir::State::status": root / "var/lib/dpkg/status",
            "Dir::Bin::dpkg": "/usr/bin/dpkg",
            "Dir::Bin::Methods": "/usr/lib/apt/methods",
            "APT::Architecture": architecture,
            "APT::Architectures::": architecture,
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
        }
        config.write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
        self._environment = {"PATH": os.environ["PATH"], "APT_CONFIG": str(config), "LC_ALL": "C.UTF-8"}

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env=self._environment, cwd=self.root / "downloads", capture_output=True, text=True,
            check=False, timeout=60,
        )  # fmt: skip

    def update(self) -> subprocess.CompletedProcess[str]:
        return self("apt-get", "--error-on=any", "update")

    @property
    def candidate(self) -> str:
        policy = self("apt-cache", "policy", "fieldgate").stdout
        return policy.partition("Candidate: ")[2].partition("\n")[0]

    def download(self, what: str) -> str:
        """The version inside what apt downloads."""
        done = self("apt-get", "download", what)
        assert done.returncode == 0, done.stderr
        [file] = (self.root / "downloads").glob("*.deb")
        inside = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(file)], check=True, capture_output=True)
        file.unlink()
        return subprocess.run(
            ["tar", "-xO", "./version"], input=inside.stdout, check=True, capture_output=True
        ).stdout.decode()


@pytest.mark.parametrize(
    ("release", "architecture"), [("bookworm", "arm64"), ("trixie", "armhf"), ("trixie", "amd64")]
)
def test_apt_takes_the_newest_package_of_its_release(
    dist: Path, make: Make, fingerprint: str, url: str, tmp_path: Path, release: str, architecture: str
) -> None:  # fmt: skip
    made = make(fingerprint)
    assert made.returncode == 0, made.stderr
    mast = Mast(tmp_path / "mast", url, release, architecture, dist / "apt/fieldgate.gpg")
    updated = mast.update()
    assert updated.returncode == 0, updated.stderr
    assert mast.candidate == NEW.format(RELEASES[release])
    # The other release's isn't offered, though trixie's version is the higher one.
    assert mast("apt-cache", "madison", "fieldgate").stdout.count("|") == 2 * 2
    assert mast.download("fieldgate") == NEW.format(RELEASES[release])
    # The way back.
    assert mast.download(f"fieldgate={OLD.format(RELEASES[release])}") == OLD.format(RELEASES[release])
    # As /usr/libexec/fieldgate/upgrade forbids a version that a mast has gone back from.
    preferences = mast.root / "etc/apt/preferences.d/fieldgate-refused"
    preferences.parent.mkdir()
    pin = f"Pin: version {NEW.format(RELEASES[release])}"
    preferences.write_text(f"# Versions …\n\nPackage: fieldgate\n{pin}\nPin-Priority: -1\n")
    assert mast.candidate == OLD.format(RELEASES[release])
    # What unattended-upgrades is given.
    policy = mast("apt-cache", "policy").stdout
    assert f"o=fieldgate,a={release},n={release},l=fieldgate" in policy


def test_a_second_call_writes_nothing_and_a_new_version_is_added(
    dist: Path, make: Make, fingerprint: str, url: str, tmp_path: Path
) -> None:
    make(fingerprint)
    before = {path: path.stat().st_mtime_ns for path in (dist / "apt").rglob("*")}
    assert make(fingerprint).stdout == f"{dist}/apt: unchanged\n"
    assert {path: path.stat().st_mtime_ns for path in (dist / "apt").rglob("*")} == before
    mast = Mast(tmp_path / "mast", url, "trixie", "arm64", dist / "apt/fieldgate.gpg")
    # A server says by whole seconds whether a file has changed.
    for path in (dist / "apt").rglob("*"):
        os.utime(path, (path.stat().st_mtime - 2,) * 2)
    mast.update()
    # As after `make clean`: what is in the repository stays.
    for path in dist.glob("*.deb"):
        path.unlink()
    newer = package(dist, "0.3.0+deb13.trixie", "arm64")
    assert make(fingerprint).returncode == 0
    assert mast.update().returncode == 0
    assert mast.candidate == "0.3.0+deb13.trixie"
    assert mast("apt-cache", "madison", "fieldgate").stdout.count("|") == 3 * 2
    # Bytes that a mast may have never change.
    package(dist, "0.3.0+deb13.trixie", "arm64", "!")
    refused = make(fingerprint)
    assert refused.returncode == 1
    assert f"{newer.name} is another build of the same version" in refused.stderr


def test_the_same_packages_make_the_same_indexes(dist: Path, make: Make, fingerprint: str) -> None:
    def clear() -> dict[str, str]:
        made = make(fingerprint)
        assert made.returncode == 0, made.stderr
        found = {
            str(path.relative_to(dist)): path.read_bytes().hex() for path in (dist / "apt").rglob("Packages*")
        }
        for path in (dist / "apt").rglob("InRelease"):
            found[path.parent.name] = path.read_text().partition("-----BEGIN PGP SIGNATURE-----")[0]
        return found

    first = clear()
    subprocess.run(["rm", "-r", str(dist / "apt")], check=True)
    assert clear() == first
    assert len(first) == 6
    assert "Date: Fri, 21 Nov 2025 04:40:00 GMT" in first["trixie"]


@pytest.mark.parametrize("what", ["release", "index", "package", "key"])
def test_apt_refuses_what_was_tampered_with(
    dist: Path, make: Make, home: Path, fingerprint: str, url: str,
    tmp_path: Path, what: str,
) -> None:  # fmt: skip
    make(fingerprint)
    mast = Mast(tmp_path / "mast", url, "trixie", "arm64", dist / "apt/fieldgate.gpg")
    suite = dist / "apt/trixie"
    if what in ("release", "index"):
        if what == "release":
            signed = suite / "InRelease"
            signed.write_text(signed.read_text().replace("Origin: fieldgate", "Origin: elsewhere"))
        else:
            index = suite / "Packages"
            index.write_text(index.read_text().replace("0.2.0", "0.2.1"))
            (suite / "Packages.xz").unlink()
        refused = mast.update()
        assert refused.returncode != 0
        assert {"release": "InRelease", "index": "Hash Sum mismatch"}[what] in refused.stderr
        assert mast.candidate in ("", "(none)")
    elif what == "package":
        assert mast.update().returncode == 0
        path = suite / f"fieldgate_{NEW.format('deb13.trixie')}_arm64.deb"
        # Half of it has come, and something else.
        path.write_bytes(path.read_bytes()[:-100] + bytes(100))
        done = mast("apt-get", "download", "fieldgate")
        assert done.returncode != 0
        assert "Hash Sum mismatch" in done.stderr
        assert not list((mast.root / "downloads").glob("*.deb"))
    else:
        assert make(key(home, f"{tmp_path.name}@example.org")).returncode == 0
        refused = mast.update()
        assert refused.returncode != 0
        assert "NO_PUBKEY" in refused.stderr or "Missing key" in refused.stderr


@pytest.mark.parametrize(
    ("given", "problem"),
    [("", "error: no key to sign with: "), ("me@example.org", "error: me@example.org is no fingerprint: "),
     ("0" * 40, f"error: gpg has no secret key {'0' * 40}: ")],
)  # fmt: skip
def test_without_a_key_it_says_how_to_make_one(dist: Path, make: Make, given: str, problem: str) -> None:
    refused = make(given)
    assert refused.returncode == 1
    assert refused.stderr.startswith(problem)
    assert "gpg --quick-generate-key" in refused.stderr
    assert not (dist / "apt").exists()


def test_a_package_of_no_release_is_refused(dist: Path, make: Make, fingerprint: str) -> None:
    package(dist, "0.2.0", "amd64")
    assert "its version names no release (bookworm, trixie)" in make(fingerprint).stderr
    assert not (dist / "apt").exists()
