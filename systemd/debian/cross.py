"""Wheels that nobody publishes for armhf: those of arm64, their C compiled anew from the lock's sources.

This machine's cross compiler makes them, with headers and libraries of the target's release and none of the
machine's own. The same compiler makes the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from targets import Target

_TRIPLET: Final = "arm-linux-gnueabihf"

_KAFKA: Final = "@confluentinc/kafka-javascript@1.10.1"
_KAFKA_SHA256: Final = "ada7d703bb1d3237e2292bfabf438d663b6160c9f1ac2a2406b5dc4257c81b66"
"""Confluent's client for Node.js has librdkafka's sources inside, 2.15.1. Their client for Python compiles
with one of its own minor version or later, and Debian's are older."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a package's one C module is compiled, in its source tree: globs of sources, flags, libraries.

    ``@FILE`` in a flag stands for what that file contains.
    """

    module: str
    sources: str
    flags: str = ""
    libraries: str = ""


_ZSTD: Final = "-DZSTD_SINGLE_FILE -DZSTDLIB_VISIBLE= -DZDICTLIB_VISIBLE= -DZSTDERRORLIB_VISIBLE="
RECIPES: Final[Mapping[str, Recipe]] = {
    "confluent-kafka": Recipe(
        "confluent_kafka/cimpl",
        "src/confluent_kafka/src/*.c",
        libraries="-lrdkafka -lssl -lcrypto -lzstd -lz -lm",
    ),
    "gpiod": Recipe(
        "gpiod/_ext",
        "gpiod/ext/*.c lib/*.c",
        '-D_GNU_SOURCE -Iinclude -Ilib -Igpiod/ext -DGPIOD_API_VERSION_STR="@libgpiod-version.txt"',
    ),
    "msgspec": Recipe("msgspec/_core", "src/msgspec/_core.c", libraries="-lm"),
    "zstandard": Recipe("zstandard/backend_c", "c-ext/backend_c.c", f"{_ZSTD} -Ic-ext -Izstd"),
}


class CrossError(Exception):
    """No compiler, no headers, or sources that don't compile."""


def libraries(target: Target) -> tuple[str, ...]:
    """Debian's packages that the modules are linked with; Python and dpkg need the same ones."""
    return ("libssl3t64" if target.release.time_bits == 64 else "libssl3", "libzstd1", "zlib1g")


def compiled(name: str, published: Path, sources: Path, target: Target, cache: Path) -> Path:
    """The wheel for the target, made once of the one ``published`` for arm64. Raises CrossError."""
    # What is cached was made as this file says now.
    key = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    folder = cache / f"cross-{key}"
    made = folder / f"{published.stem.rpartition('-')[0]}-linux_{target.machine}.whl"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        compiler = Compiler(target, _sysroot(target, folder))
        flags = _librdkafka(compiler, folder) if name == "confluent-kafka" else []
        with tempfile.TemporaryDirectory(dir=folder) as top:
            module, content = compiler.module(RECIPES[name], _unpacked(sources, Path(top)), flags)
            draft = Path(top) / made.name
            repack(published, module, content, target, draft)
            draft.rename(made)
    return made


class Compiler:
    """The cross compiler: all but libgcc and the headers built into it is taken from ``sysroot``."""

    def __init__(self, target: Target, sysroot: Path) -> None:
        _need(f"{_TRIPLET}-gcc")
        built_in = _run([f"{_TRIPLET}-gcc", "-print-file-name=include"]).strip()
        include = sysroot / "usr/include"
        folders = (sysroot / "usr/lib" / _TRIPLET, sysroot / "lib" / _TRIPLET)
        self.command = [
            f"{_TRIPLET}-gcc", f"--sysroot={sysroot}", "-fPIC", "-fvisibility=hidden", "-ffunction-sections",
            "-fdata-sections", "-w", "-nostdinc",
            *(f"-isystem{each}" for each in (built_in, include / _TRIPLET, include)),
            *(f"{option}{each}" for each in folders for option in ("-B", "-L")),
            *(["-D_FILE_OFFSET_BITS=64", "-D_TIME_BITS=64"] if target.release.time_bits == 64 else []),
        ]  # fmt: skip
        python = target.release.python
        self._include = include / f"python{python}"
        self._suffix = f".cpython-{python.replace('.', '')}-{_TRIPLET}.so"

    def module(self, recipe: Recipe, tree: Path, flags: Sequence[str]) -> tuple[str, bytes]:
        """The module's path in the wheel and its bytes, stripped."""
        sources = sorted(path for glob in recipe.sources.split() for path in tree.glob(glob))
        own = re.sub(r"@([\w.-]+)", lambda file: (tree / file[1]).read_text().strip(), recipe.flags)
        _run(
            [
                *self.command, "-shared", "-s", "-O2", "-DNDEBUG", "-fwrapv", f"-I{self._include}",
                *own.split(), *(str(path.relative_to(tree)) for path in sources),
                *flags, *recipe.libraries.split(),
                "-Wl,--gc-sections,--as-needed,--exclude-libs,ALL,-z,relro,-z,now", "-o", "module.so",
            ],
            tree,
        )  # fmt: skip
        return f"{recipe.module}{self._suffix}", (tree / "module.so").read_bytes()


def _sysroot(target: Target, folder: Path) -> Path:
    """Headers and libraries of the release, by apt from the mirror that this machine has; needs no root."""
    made = folder / "sysroot"
    if made.exists():
        return made
    listed = _run(["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"])
    mirrors = [line.split()[1] for line in listed.splitlines() if line.startswith("Debian ")]
    if not mirrors:
        raise CrossError("apt has no mirror of Debian here: apt-get update")
    with tempfile.TemporaryDirectory(dir=folder) as name:
        top, root = Path(name), Path(name, "root")
        for each in ("parts", "lists/partial", "cache/archives/partial", "root"):
            (top / each).mkdir(parents=True)
        (top / "parts/debian.sources").write_text(
            f"Types: deb\nURIs: {mirrors[0]}\nSuites: {target.release.name}\nComponents: main\n"
            "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        )
        settings = (
            "Dir::Etc::SourceList=/dev/null", f"Dir::Etc::SourceParts={top}/parts", f"Dir::Cache={top}/cache",
            f"Dir::State::Lists={top}/lists", "Dir::State::Status=/dev/null", "APT::Sandbox::User=root",
            f"APT::Architecture={target.architecture}", f"APT::Architectures={target.architecture}",
            "Acquire::Languages=none", "Acquire::Retries=3",
        )  # fmt: skip
        apt = ["apt-get", "-qq", *(word for each in settings for word in ("-o", each))]
        _run([*apt, "update"])
        python = f"libpython{target.release.python}-dev"
        headers = ("linux-libc-dev", "libc6-dev", python, "libssl-dev", "libzstd-dev", "zlib1g-dev")
        _run([*apt, "download", "libc6", *headers, *libraries(target)], top)
        for package in sorted(top.glob("*.deb")):
            _run(["dpkg-deb", "-x", str(package), str(root)])
        if not (root / "lib").exists():
            (root / "lib").symlink_to("usr/lib")
        # An absolute link leads out of here, and the linker then takes the static library in silence.
        for link in [path for path in root.rglob("*") if path.is_symlink() and path.readlink().is_absolute()]:
            inside = root / link.readlink().relative_to("/")
            link.unlink()
            link.symlink_to(os.path.relpath(inside, link.parent))
        root.rename(made)
    return made


def _librdkafka(compiler: Compiler, folder: Path) -> list[str]:
    """Build the static library; the flags to compile and link with it."""
    _need("npm")
    with tempfile.TemporaryDirectory(dir=folder) as name:
        top = Path(name)
        _run(["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", name, _KAFKA], top)
        [archive] = top.glob("*.tgz")
        if (found := hashlib.sha256(archive.read_bytes()).hexdigest()) != _KAFKA_SHA256:
            raise CrossError(f"{_KAFKA}: the archive's SHA-256 is {found}, not the one in cross.py")
        source = _unpacked(archive, top) / "deps/librdkafka"
        # OpenSSL brings TLS, SCRAM and OAUTHBEARER; LZ4 and Snappy are among the sources.
        gcc = " ".join(compiler.command)
        tools = {"CC": gcc, "CXX": gcc, "AR": f"{_TRIPLET}-ar", "PKG_CONFIG_LIBDIR": "/nonexistent"}
        options = ("--enable-ssl", "--enable-zlib", "--enable-zstd", "--disable-lz4-ext", "--disable-gssapi")
        more = ("--disable-curl", "--disable-debug-symbols", "--no-download", "--arch=armv7l")
        _run(["./configure", *options, *more], source, tools)
        _run(["make", "-s", "-C", "src", f"-j{os.cpu_count()}", "librdkafka.a"], source)
        include = folder / "include/librdkafka"
        include.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / "src/rdkafka.h", include)
        shutil.copy(source / "src/librdkafka.a", folder)
    return [f"-I{include.parent}", f"-L{folder}"]


def _unpacked(archive: Path, top: Path) -> Path:
    """The one folder in an archive of sources."""
    with tarfile.open(archive) as file:
        file.extractall(top, filter="data")
        return top / file.getnames()[0].split("/")[0]


def repack(published: Path, module: str, content: bytes, target: Target, output: Path) -> None:
    """Write a wheel: the published one's files, with ``module`` in place of what is compiled in it."""
    with zipfile.ZipFile(published) as wheel:
        files = {
            name: wheel.read(name) for name in wheel.namelist() if name[-1] != "/" and ".libs/" not in name
        }
    old = [name for name in files if name.endswith(".so")]
    if module.partition(".")[0] not in {name.partition(".")[0] for name in old}:
        raise CrossError(f"{published.name} has {', '.join(old)}, not {module}: correct RECIPES")
    files = {name: each for name, each in files.items() if name not in old} | {module: content}
    [about] = {name.partition("/")[0] for name in files if ".dist-info/" in name}
    tag = "-".join((*published.stem.split("-")[-3:-1], f"linux_{target.machine}"))
    kept = [line for line in files[f"{about}/WHEEL"].decode().splitlines() if line and line[:4] != "Tag:"]
    files[f"{about}/WHEEL"] = "\n".join([*kept, f"Tag: {tag}", ""]).encode()
    del files[f"{about}/RECORD"]
    record = "".join(f"{name},sha256={_digest(each)},{len(each)}\n" for name, each in sorted(files.items()))
    files[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n".encode()
    with zipfile.ZipFile(output, "w") as wheel:
        for name, each in sorted(files.items()):
            wheel.writestr(zipfile.ZipInfo(name), each, zipfile.ZIP_DEFLATED)


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def _need(program: str) -> None:
    if shutil.which(program) is None:
        raise CrossError(f"there is no {program} here: .ci/install-packages armhf")


def _run(command: Sequence[str], where: Path | None = None, settings: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=where, env={**os.environ, **(settings or {}), "LC_ALL": "C.UTF-8"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise CrossError(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout
