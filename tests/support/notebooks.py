"""The examples' notebooks as Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

EXAMPLES: Final = Path(__file__).parents[2] / "docs" / "examples"


def code_of(name: str) -> str:
    """The code cells in their order. They have no outputs, which would grow with each run."""
    cells = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells), name
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
