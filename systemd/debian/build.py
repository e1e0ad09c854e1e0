"""Builds the packages fieldgate and fieldgate-cloud for Debian's releases and architectures, with dpkg-deb.

``make deb`` calls it. The same commit gives the same bytes: times are the commit's (or SOURCE_DATE_EPOCH).
Exit codes: 0 built, 1 not.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_ROOT))

from command_line import completion, manual  # noqa: E402
from control import commit_time, copyright_of, version, write  # noqa: E402
from cross import CrossError  # noqa: E402
from products import GATEWAY, PRODUCTS, Product  # noqa: E402
from targets import MACHINES, RELEASES, Target  # noqa: E402
from tree import Stage, StageError, stage, strip  # noqa: E402
from wheels import NoWheelError, fetch  # noqa: E402


def build(
    product: Product, target: Target, lock: Path, cache: Path, output: Path, epoch: int, quick: bool
) -> Path:
    """Build one package into ``output``. Raises NoWheelError, CrossError, StageError."""
    root = _ROOT
    wheels = fetch(target, root / "pyproject.toml", lock, cache / target.name, product.extras)
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    full_version = version(root, project, target.release.number, target.release.name, epoch)
    output.mkdir(parents=True, exist_ok=True)
    package = output / f"{product.name}_{full_version}_{target.architecture}.deb"
    with tempfile.TemporaryDirectory(prefix="fieldgate-deb-") as top:
        staged = Stage(Path(top))
        staged.top.chmod(0o755)
        stage(staged, root, product, wheels, root / ".jars")
        if product is GATEWAY:
            strip(staged, target)
            completed = PurePosixPath("usr/share/bash-completion/completions/fieldgate")
            staged.write(completed, completion().encode())
            staged.compressed(PurePosixPath("usr/share/man/man1/fieldgate.1"), manual(project, epoch))
        staged.write(product.documents / "copyright", copyright_of(product, wheels).encode())
        write(staged, product, target, full_version)
        # Times later than SOURCE_DATE_EPOCH, which all are, become it.
        # One thread: how xz cuts its blocks would depend on the machine's cores.
        how = ["-Zgzip", "-z1"] if quick else ["-Zxz", "--threads-max=1"]
        subprocess.run(
            ["dpkg-deb", *how, "--root-owner-group", "--build", top, str(package)],
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "LC_ALL": "C.UTF-8"},
            stdout=subprocess.DEVNULL, check=True,
        )  # fmt: skip
    return package


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the packages chosen; the exit code."""
    parser = argparse.ArgumentParser(prog="build.py", description="Build Debian packages.")
    parser.add_argument("--product", choices=PRODUCTS, default="gateway", help="default: gateway")
    parser.add_argument("--release", nargs="+", choices=RELEASES, default=list(RELEASES))
    parser.add_argument("--arch", nargs="+", choices=MACHINES, help="default: all of the product's")
    parser.add_argument("--output", type=Path, default=_ROOT / "dist", metavar="DIR", help="default: dist")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="default: $FIELDGATE_WHEELS, else .wheels")
    parser.add_argument("--lock", type=Path, metavar="FILE", help="default: the product's")
    parser.add_argument("--quick", action="store_true", help="larger: gzip instead of xz")
    options = parser.parse_args(arguments)
    given = os.environ.get("SOURCE_DATE_EPOCH")
    epoch = int(given) if given else commit_time(_ROOT)
    if epoch is None:
        sys.stderr.write("error: no commit here to take the time from: set SOURCE_DATE_EPOCH\n")
        return 1
    cache = options.wheels or Path(os.environ.get("FIELDGATE_WHEELS") or _ROOT / ".wheels")
    product = PRODUCTS[options.product]
    lock = options.lock or _ROOT / product.lock
    for release in options.release:
        for architecture in options.arch or product.architectures:
            target = Target(RELEASES[release], architecture)
            try:
                package = build(product, target, lock, cache, options.output, epoch, options.quick)
            except (NoWheelError, CrossError, StageError) as error:
                sys.stderr.write(f"error: {error}\n")
                return 1
            sys.stdout.write(f"{package}  {package.stat().st_size / 1e6:.1f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
