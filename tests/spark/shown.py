"""What others may read of a running driver: its files, command lines, and Spark's interface."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection
from pathlib import Path
from urllib.request import urlopen

import psutil

from tests.spark.programs import Program


def shown(folder: Path, left_out: Collection[str], ui: int, jobs: Program) -> dict[str, str]:
    """Texts by where they are shown; of the folder, without files of the names that are left out.

    ``ui`` is the port of Spark's interface; its pages' and answers' names end as their addresses do.
    """
    texts = {str(file): file.read_bytes().decode(errors="replace")
             for file in folder.rglob("*") if file.is_file() and file.name not in left_out}  # fmt: skip
    tree = [psutil.Process(jobs.pid), *psutil.Process(jobs.pid).children(recursive=True)]
    for process in tree:
        with contextlib.suppress(psutil.Error):
            texts[f"command line of {process.pid}"] = " ".join(process.cmdline())
    base = f"http://127.0.0.1:{ui}"
    application = json.loads(_fetched(f"{base}/api/v1/applications"))[0]["id"]
    pages = [f"{base}/{page}/" for page in ("environment", "StreamingQuery", "SQL", "jobs")]
    answers = [f"{base}/api/v1/applications/{application}/{ask}"
               for ask in ("environment", "sql?details=true&length=99")]  # fmt: skip
    texts |= {page: _fetched(page) for page in (*pages, *answers)}
    assert any("SparkListenerSQLExecutionStart" in text for name, text in texts.items() if "/events/" in name)
    return texts


def _fetched(url: str) -> str:
    with urlopen(url, timeout=200) as answer:  # noqa: S310 - Spark's own interface
        text: str = answer.read().decode(errors="replace")
    return text
