"""The shape of the tree: which room may import which, how large a room, a module and a constructor may be."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("gateway", "drivers", "buffer", "cloud", "spark_jobs")
MOST_LINES = 700
MOST_LINES_OF_A_ROOM = {
    "gateway": 27_200,
    "drivers": 8_170,
    "buffer": 2_100,
    "cloud": 23_670,
    "spark_jobs": 13_670,
}
"""These are lowered when a room gets smaller, and raised by what a feature that was asked for adds."""
MOST_ARGUMENTS = 7


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def test_a_planted_upward_import_breaks_the_contract_of_its_layers(tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layered = [contract for contract in contracts if contract["type"] == "layers"]
    assert len(layered) >= 2
    for contract in layered:
        prefix = f"{contract['containers'][0]}." if "containers" in contract else ""
        top, bottom = (prefix + contract["layers"][at].split()[0] for at in (0, -1))
        place = tmp_path / bottom.replace(".", "/")
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        file.write_text(f"{file.read_text()}\nimport {top}\n")
    linted = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert linted.returncode == 1, linted.stderr
    broken = [line.removesuffix(" BROKEN") for line in linted.stdout.splitlines() if line.endswith(" BROKEN")]
    assert broken == [contract["name"] for contract in layered]


def test_no_module_is_long() -> None:
    lengths = {str(each.relative_to(ROOT)): each.read_text().count("\n") for each in modules()}
    assert not {name: lines for name, lines in lengths.items() if lines > MOST_LINES}


def test_no_room_grows() -> None:
    lines = dict.fromkeys(PACKAGES, 0)
    for each in modules():
        lines[each.relative_to(ROOT).parts[0]] += each.read_text().count("\n")
    assert not {room: count for room, count in lines.items() if count > MOST_LINES_OF_A_ROOM[room]}


def arguments_of_constructor(node: ast.ClassDef) -> int:
    for made in node.body:
        if isinstance(made, ast.FunctionDef) and made.name == "__init__":
            return len([*made.args.posonlyargs, *made.args.args, *made.args.kwonlyargs]) - 1
    decorators = [ast.unparse(each) for each in node.decorator_list]
    if not any("dataclass" in each and "frozen=True" not in each for each in decorators):
        return 0
    methods = any(isinstance(each, ast.FunctionDef) for each in node.body)
    fields = [ast.unparse(each) for each in node.body if isinstance(each, ast.AnnAssign)]
    return sum("init=False" not in each for each in fields) if methods else 0


def test_no_constructor_takes_many_arguments() -> None:
    """Frozen dataclasses and named tuples are records, which may be long; others have state, and parts."""
    long = {}
    for module in modules():
        name = str(module.relative_to(ROOT))
        for node in ast.walk(ast.parse(module.read_text())):
            if not isinstance(node, ast.ClassDef):
                continue
            count = arguments_of_constructor(node)
            if count > MOST_ARGUMENTS:
                long[node.name] = f"{name}: {count}"
    assert not long
